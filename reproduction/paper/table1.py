"""The paper's Table 1: parameters, and memory of training on one device at a batch of 256.

    python -m reproduction.paper.table1 [MODEL ...]

Two estimates use the paper's model of memory (variables once, outputs kept for the backward pass)
with two readings of "operator":

- **operators**: TensorFlow's operators, as the search plans them;
- **layers**: a bias, a scale or a mask is applied in place; a layer normalisation has one output;
  an LSTM's step keeps its gates, its state and its output; tensors of the optimizer are not kept.

GB is 2**30 bytes in both columns of the paper: only then 138,357,544 parameters are 0.52 GB. Data
parallelism on 16 devices takes 109 GB for the RNN (section 5.1), which is 108 and a sixteenth of
the 18 of activations. The paper gives no lengths of sequences and no sizes of images, on which
memory depends and parameters do not. So other sizes with the same parameters are shown, too. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.training_step import gradient_descent_step
from examples.models import (
    Model,
    lstm_language_model,
    transformer,
    wide_resnet,
)
from reproduction.paper.layers import kept_by_layers
from reproduction.paper.models import BATCH_SIZE, PAPER_MODELS
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import WHOLE_OPERANDS
from tensoropt.problem.from_graph import graph_problem

__all__ = ["OTHER_SIZES", "Estimate", "estimate", "main"]

GB = 2**30
_ENTRIES = 5


@dataclass(frozen=True, slots=True)
class Estimate:
    """The memory of a model on one device, in GB.

    Attributes:
        parameters: memory of the variables, once.
        operators: memory of outputs of TensorFlow's operators, by type, without the variables.
        layers: memory of outputs of layers, by type.
    """

    parameters: float
    operators: Mapping[str, float]
    layers: Mapping[str, float]

    @property
    def of_operators(self) -> float:
        """The total if operators are TensorFlow's."""
        return self.parameters + sum(self.operators.values())

    @property
    def of_layers(self) -> float:
        """The total if operators are layers."""
        return self.parameters + sum(self.layers.values())


def _transformer(heads: int, source: int, target: int) -> Model:
    return transformer(6, 3840, heads, 15360, source, target, 32000)


def _rnn(steps: int) -> Model:
    return lstm_language_model(24576, 6, steps, 1024)


def _wide_resnet(depth: int, channels: int, size: int) -> Model:
    return wide_resnet(depth, image_size=size, base_channels=channels)


OTHER_SIZES: dict[str, dict[str, Callable[[], Model]]] = {
    "wide_resnet": {
        "152 layers, images of 92": lambda: _wide_resnet(152, 368, 92),
        "152 layers, images of 112": lambda: _wide_resnet(152, 368, 112),
        "152 layers, images of 224": lambda: _wide_resnet(152, 368, 224),
        "101 layers of 6.75 times the width, images of 112": lambda: _wide_resnet(101, 432, 112),
        "50 layers of 9 times the width, images of 112": lambda: _wide_resnet(50, 576, 112),
    },
    "rnn": {
        "6 steps": lambda: _rnn(6),
        "10 steps": lambda: _rnn(10),
        "40 steps": lambda: _rnn(40),
    },
    "transformer": {
        "45 and 30 tokens, 32 heads": lambda: _transformer(32, 45, 30),
        "60 and 60 tokens, 32 heads": lambda: _transformer(32, 60, 60),
        "64 and 64 tokens, 8 heads": lambda: _transformer(8, 64, 64),
        "64 and 64 tokens, 32 heads": lambda: _transformer(32, 64, 64),
    },
    "vgg16": {},
}
"""Other sizes with the parameters of Table 1, by model."""


def estimate(build: Callable[[], Model]) -> Estimate:
    """Both estimates of a model; nothing runs.

    Args:
        build: makes the forward graph in the default graph.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow warns about gradients that it makes dense
        step = gradient_descent_step(build, BATCH_SIZE)
    graph = step.graph
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(1)
    problem = graph_problem(
        AnnotatedGraph.of(
            graph, mesh, ClusterCostModel(cluster, mesh, "paper"), space=WHOLE_OPERANDS
        )
    )
    made = {
        operator.name: int(problem.costs[operator.name].memory[0])
        for operator in graph
        if operator.name in problem.costs and not operator.is_variable
    }
    kept = kept_by_layers(graph)
    operators: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    for name, size in made.items():
        operators[graph[name].type] += size
        layers[graph[name].type] += size if name in kept else 0
    return Estimate(step.parameters_gb, _in_gb(operators), _in_gb(layers))


def _in_gb(counts: Counter[str]) -> dict[str, float]:
    """The nonzero counts in GB, largest first."""
    return {kind: size / GB for kind, size in counts.most_common() if size}


def _off(ours: float, paper: float) -> str:
    return f"{ours / paper - 1:+.1%}"


def _lines(name: str, found: Estimate) -> Iterator[str]:
    """The parts of a model's memory, in words."""
    paper = PAPER_MODELS[name]
    yield (
        f"{paper.title}: parameters {found.parameters:.2f} (paper {paper.parameters_gb}, "
        f"{_off(found.parameters, paper.parameters_gb)}), memory of operators "
        f"{found.of_operators:.1f}, of layers {found.of_layers:.1f} (paper {paper.memory_gb}, "
        f"{_off(found.of_operators, paper.memory_gb)} and "
        f"{_off(found.of_layers, paper.memory_gb)})"
    )
    for title, parts in (("operators", found.operators), ("layers", found.layers)):
        largest = list(parts.items())[:_ENTRIES]
        rest = sum(parts.values()) - sum(size for _, size in largest)
        shown = [f"{kind} {size:.1f}" for kind, size in largest] + [f"others {rest:.1f}"]
        yield f"    {title}: " + ", ".join(shown)


def _row(found: Estimate) -> dict[str, float]:
    return {
        "parameters_gb": round(found.parameters, 3),
        "operators_gb": round(found.of_operators, 2),
        "layers_gb": round(found.of_layers, 2),
    }


def main() -> None:
    """Print every model's estimates beside the paper's, and those of other sizes."""
    parser = argparse.ArgumentParser(description="the paper's Table 1")
    parser.add_argument("models", nargs="*", default=list(PAPER_MODELS))
    rows = []
    for name in parser.parse_args().models:
        paper = PAPER_MODELS[name]
        found = estimate(paper.build)
        print("\n".join(_lines(name, found)), flush=True)
        others = {}
        for title, build in OTHER_SIZES[name].items():
            other = estimate(build)
            others[title] = _row(other)
            print(
                f"    {title}: parameters {other.parameters:.2f}, operators "
                f"{other.of_operators:.1f}, layers {other.of_layers:.1f}",
                flush=True,
            )
        papers = {
            "paper_parameters_gb": paper.parameters_gb,
            "paper_memory_gb": paper.memory_gb,
        }
        rows.append({"model": paper.title, **papers, **_row(found), "other_sizes": others})
    print(json.dumps({"batch_size": BATCH_SIZE, "models": rows}))


if __name__ == "__main__":
    main()
