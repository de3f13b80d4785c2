"""``python -m reproduction.tofu``: the evaluation of Tofu's paper on its described test bed.

The parts are Table 2 (weights), Figure 10 (Tofu's partition and four others), Figure 11 with
section 7.4 (the splits of convolutions and the data that they fetch) and Theorem 2 (the
communication that each halving adds). ``--systems`` has Figures 8 and 9 and Table 3: Tofu beside
Ideal, SmallBatch, Swapping and operator placement, from plans of `find_strategy`. Nothing runs on
the eight K80: times are costs of `8-k80`.

Tofu stores every tensor in pieces and fetches the pieces that an operator needs, so the storage of
a weight is chosen apart from its reader's layout (`Space.sharded_storage`). Memory is weights,
gradients and history, and every output once; fetched bytes are shown beside it. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models import lstm_language_model
from examples.models.lstm import lstm_parameters
from examples.models.wide_resnet import wide_resnet_parameters
from reproduction.baselines import tofu_recursive
from reproduction.links import with_links
from reproduction.paper.breakdown import breakdown
from reproduction.tofu.alternatives import ALTERNATIVES
from reproduction.tofu.claims import Claim, claims
from reproduction.tofu.models import BYTES_PER_PARAMETER, DEVICES, TOFU_MODELS, TofuModel, search
from reproduction.tofu.partition_claims import partition_claims
from reproduction.tofu.systems import ALL, CLUSTER, SYSTEMS, Assumed, throughputs
from reproduction.tofu.traffic import Traffic, step_bytes
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import Operator
from tensoropt.parallel.strategy import Strategy
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import WHOLE_OPERANDS
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["main", "table_2"]

GB = 2**30
MODELS = {
    **TOFU_MODELS,
    # The models of Figure 10; the other two are the largest of their kind.
    "rnn_4": TofuModel(
        "RNN-4-8K",
        lambda: lstm_language_model(8192, layers=4, steps=20, vocabulary=1024, embedding=128),
        512,
        0.0,
        0.0,
    ),
}
SOLVERS: dict[str, Callable[[GraphProblem], Frontier]] = {
    **ALTERNATIVES,
    "Tofu": tofu_recursive.solve,
}
_RNN_GB = {
    4096: (8.4, 11.4, 14.4),
    6144: (18.6, 28.5, 32.1),
    8192: (33.0, 45.3, 57.0),
}
_WRESNET_GB = {
    4: (4.2, 7.8, 10.5),
    6: (9.6, 17.1, 23.4),
    8: (17.1, 30.6, 41.7),
    10: (26.7, 47.7, 65.1),
}
_LAYERS, _DEPTHS = (6, 8, 10), (50, 101, 152)
_CONVOLUTION = re.compile(r"stage(\d)/block(\d+)/(\w+)/")


class _Stored(ClusterCostModel):
    """Tofu's memory (section 7.1): weights, gradients and history, and every output once."""

    __slots__ = ()

    def operator_memory(self, footprint: Footprint, /) -> int:
        """See `tensoropt.cost.model.CostModel`."""
        outputs = footprint.output_bytes - footprint.added_bytes
        return 3 * footprint.variable_bytes + outputs


def table_2() -> list[dict[str, Any]]:
    """Weights, gradients and history of every model in GB, beside the paper's."""
    rows = []
    for hidden, papers in _RNN_GB.items():
        for layers, paper in zip(_LAYERS, papers, strict=True):
            count = lstm_parameters(hidden, layers, 1024, 128)
            rows.append(_row(f"RNN-{layers}-{hidden // 1024}K", count, paper))
    for width, papers in _WRESNET_GB.items():
        for depth, paper in zip(_DEPTHS, papers, strict=True):
            count = wide_resnet_parameters(depth, width)
            rows.append(_row(f"WResNet-{depth}-{width}", count, paper))
    return rows


def _row(model: str, parameters: int, paper: float) -> dict[str, Any]:
    return {
        "model": model,
        "gb": round(BYTES_PER_PARAMETER * parameters / GB, 2),
        "paper_gb": paper,
    }


def _problem(step: TrainingStep, cost: ClusterCostModel) -> tuple[AnnotatedGraph, GraphProblem]:
    """The problem with weights stored apart from their readers, and with data in place, as in
    Tofu."""
    annotated = AnnotatedGraph.of(step.graph, cost.mesh, cost, space=WHOLE_OPERANDS)
    return annotated, graph_problem(annotated)


def _figure_10(step: TrainingStep, cluster: Cluster) -> dict[str, dict[str, Any]]:
    """For every solver the time of a step, the share of communication and the memory."""
    cost = _Stored(cluster, cluster.mesh(DEVICES))
    annotated, whole = _problem(step, cost)
    rows: dict[str, dict[str, Any]] = {}
    for name, solve in SOLVERS.items():
        found = solve(whole)
        parts = breakdown(whole, annotated, cost, found.strategies)
        strategy = Strategy(
            whole.graph, whole.mesh, whole.configurations(found.strategies[0].tolist())
        )
        fetched = [
            size
            for operator in whole.graph
            for number in range(len(operator.inputs))
            if (size := _fetched(strategy, operator, number)) > 0
        ]
        time, computing = int(found.time[0]), int(parts.computation[0])
        rows[name] = {
            "seconds": round(time / 1e9, 4),
            "computation_seconds": round(computing / 1e9, 4),
            "communication_share": round(1 - computing / time, 4),
            "stored_gb": round(int(found.memory[0]) / GB, 2),
            "fetched_gb": round(sum(fetched) / GB, 2),
            "largest_fetch_gb": round(max(fetched, default=0) / GB, 3),
            "exact": found.exact,
        }
    return rows


def _fetched(strategy: Strategy, operator: Operator, number: int) -> int:
    """Bytes of an input that a device has to read from other devices."""
    tensor, spec = operator.inputs[number], operator.input_specs[number]
    source = strategy.graph[tensor.operator]
    if operator.gradient is not None or source.is_constant or -1 in spec.shape:
        return 0
    made, read = strategy.output_slot(tensor).forward, strategy.input_slot(operator, number).forward
    sizes = (each.local_elements(spec.shape, strategy.mesh) for each in (read, made))
    needed, there = sizes
    return max(0, needed - there) * spec.itemsize if made != read else 0


def _figure_11(step: TrainingStep, cluster: Cluster) -> dict[str, Any]:
    """The split of each convolution of a residual network, and section 7.4's observations."""
    _, whole = _problem(step, ClusterCostModel(cluster, cluster.mesh(DEVICES)))
    chosen = whole.configurations(tofu_recursive.solve(whole).strategies[0].tolist())
    strategy = Strategy(whole.graph, whole.mesh, chosen)
    blocks: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    weights: Counter[int] = Counter()
    activations: Counter[int] = Counter()
    split: Counter[str] = Counter()
    for operator in whole.graph:
        place = _CONVOLUTION.search(operator.name)
        if operator.type != "Conv2D" or place is None:
            continue
        stage, block = int(place[1]), int(place[2])
        derivation, configuration = whole.derivations[operator.name], chosen[operator.name]
        blocks[stage, block][place[3]] = configuration.describe(derivation, whole.mesh)
        activations[stage] += _fetched(strategy, operator, 0)
        weights[stage] += _fetched(strategy, operator, 1)
        split.update(
            index.name
            for index, axes in zip(derivation.indices, configuration.splits, strict=True)
            if axes
        )
    stages = sorted({stage for stage, _ in blocks})
    share = {
        stage: weights[stage] / max(1, weights[stage] + activations[stage]) for stage in stages
    }
    repeated = [(own == blocks[stage, 2]) for (stage, block), own in blocks.items() if block > 2]
    return {
        "plan": {
            f"stage {stage}": {
                "first block": blocks[stage, 1],
                "second block": blocks[stage, 2],
            }
            for stage in stages
        },
        "indices_split": dict(split),
        "several_dimensions": len(split) > 1,
        "convolutions_of_a_block_differ": all(
            len(set(own.values())) > 1 for own in blocks.values()
        ),
        "repeated_blocks_alike": round(sum(repeated) / len(repeated), 3),
        "first_block_differs": {
            f"stage {stage}": any(
                blocks[stage, 1].get(name) != split_ for name, split_ in blocks[stage, 2].items()
            )
            for stage in stages
        },
        "fetched_gb": {
            f"stage {stage}": {
                "weights": round(weights[stage] / GB, 4),
                "activations": round(activations[stage] / GB, 4),
            }
            for stage in stages
        },
        "weights_share_falls": share[stages[0]] > share[stages[-1]],
    }


def _theorem_2(step: TrainingStep, cluster: Cluster) -> dict[str, Any]:
    _, whole = _problem(step, Traffic(cluster, cluster.mesh(DEVICES)))
    added = step_bytes(whole)
    return {
        "gb_of_each_halving": [round(int(each) / GB, 3) for each in added],
        "never_falls": bool((added[1:] >= added[:-1]).all()),
    }


def _figures_8_9(models: Sequence[str], search_seconds: float, assumed: Assumed) -> int:
    """Print the throughputs of all systems, the claims and a line of JSON."""
    found = {}
    for model in models:
        found[model] = throughputs(model, search_seconds, assumed)
        rates = [(name, found[model].get(name)) for name in SYSTEMS]
        print(model, *(f"{name} {rate:.1f}" if rate else f"{name} -" for name, rate in rates),
              sep=", ", flush=True)  # fmt: skip
    judged = _judged(claims(found))
    print(json.dumps({"systems": found, "claims": judged, "assumed": asdict(assumed)}))
    return 0


def _judged(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Print claims, and return them as JSON values."""
    judged = []
    for claim in claims:
        print("holds" if claim.holds else "FAILS", claim.claim, claim.here, sep="; ")
        judged.append(claim.to_json())
    return judged


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all four parts and a line of JSON; with ``--search`` times of searches instead."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.tofu", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--search", action="store_true", help="only time the search, as Table 1")
    parser.add_argument("--systems", nargs="*", choices=ALL, help="Figures 8 and 9, Table 3 alone")
    parser.add_argument("--search-seconds", type=float, default=30.0, help="of find_strategy")
    for each in fields(Assumed):
        parser.add_argument(f"--{each.name}", type=float, default=1.0, help="factor; see Assumed")
    options = parser.parse_args(arguments)
    assumed = Assumed(**{each.name: getattr(options, each.name) for each in fields(Assumed)})
    if options.systems is not None:
        return _figures_8_9(options.systems or list(ALL), options.search_seconds, assumed)
    names = options.models
    if options.search:
        print(json.dumps([search(name) for name in TOFU_MODELS], indent=1))
        return 0
    rows = table_2()
    print("Table 2: weights, gradients and history, GB")
    for row in rows:
        print(f"  {row['model']:15} {row['gb']:6.2f}, paper {row['paper_gb']}", flush=True)
    cluster = with_links(load_cluster(CLUSTER), assumed.links)
    report: dict[str, Any] = {"table2": rows, "figure10": {}, "figure11": {}, "theorem2": {}}
    for name in names:
        model = MODELS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorFlow warns about gradients that it makes dense
            step = gradient_descent_step(model.build, model.batch_size)
        found = report["figure10"][model.title] = _figure_10(step, cluster)
        print(f"Figure 10: {model.title}, batch of {model.batch_size}")
        for solver, row in found.items():
            print(
                f"  {solver:14} {row['seconds']:8.3f} s, {row['computation_seconds']:8.3f} s of it "
                f"computation, communication {row['communication_share']:.1%}; stored "
                f"{row['stored_gb']} GB, fetched {row['fetched_gb']} GB in all, at most "
                f"{row['largest_fetch_gb']} GB at once",
                flush=True,
            )
        report["theorem2"][model.title] = _theorem_2(step, cluster)
        print(f"Theorem 2: {report['theorem2'][model.title]}", flush=True)
        if name == "wresnet_152":
            report["figure11"] = _figure_11(step, cluster)
            print(f"Figure 11: {json.dumps(report['figure11'], indent=2)}", flush=True)
    report["claims"] = _judged(partition_claims(report))
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
