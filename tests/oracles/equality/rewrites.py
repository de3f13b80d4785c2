"""``python -m tests.oracles.equality.rewrites``: random substitutions against plain TensorFlow.

Each sequence rewrites a training step by up to four moves, drawn from all possible moves. The
rewritten step is trained for five steps under a random strategy, in one process. Losses and updated
variables are compared with plain TensorFlow's training of the original script. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.mesh import Mesh
from tensoropt.transformations.rewritten.application import Rewrite, substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable, moves
from tensoropt.transformations.rewritten.patterns import Patterns
from tests.oracles.equality.engine import (
    Script,
    Trained,
    executor_of,
    random_prices,
    train_plain,
    worst_error,
)
from tests.oracles.equality.rewrite_scripts import REWRITE_SCRIPTS

__all__ = ["Drawn", "draw_rewrites", "train_rewritten"]

BARS = {"float32": 1e-5, "float64": 1e-10}
MESHES = {2: (2,), 4: (2, 2)}
MOST_MOVES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A random sequence of substitutions.

    Attributes:
        rewrites: the substitutions in their order.
        graph: the step after them.
    """

    rewrites: tuple[Rewrite, ...]
    graph: Graph


def draw_rewrites(script: Script, random: np.random.Generator) -> Drawn:
    """Draw a sequence of moves. For each move the substitution is drawn first, then its place."""
    known = list(applicable(substitutions_by_name().values()))
    graph, found = script.imported(), list[Rewrite]()
    for _ in range(int(random.integers(1, MOST_MOVES + 1))):
        for number in random.permutation(len(known)):
            possible = list(moves(graph, Patterns([known[number]]), [script.train]))
            if possible:
                move = possible[int(random.integers(len(possible)))]
                graph, found = move.graph, [*found, *move.rewrites]
                break
    return Drawn(tuple(found), graph)


def train_rewritten(
    script: Script, drawn: Drawn, mesh: Mesh, batch: frozenset[str], random: np.random.Generator
) -> Trained:
    """Train after substitutions under a random strategy, with all ranks in this process."""
    choices = strategy_choices(drawn.graph, mesh, batch)
    numbers = [int(random.integers(len(group.options))) for group in choices]
    executor = executor_of(
        script.graph,
        mesh,
        configurations_of(choices, numbers),
        random_prices(int(random.integers(1000))),
        batch,
        rewrites=drawn.rewrites,
    )
    losses = [
        executor.run([script.loss], [script.train], values)[script.loss] for values in script.feeds
    ]
    variables = executor.run(script.variables, [], {})
    executor.close()
    return Trained(np.array(losses), variables)


def main() -> None:
    """Draw, train, and print the worst error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first sequence")
    parser.add_argument("--models", nargs="+", choices=REWRITE_SCRIPTS, default=[*REWRITE_SCRIPTS])
    options = parser.parse_args()
    tensoropt.enable_graph_mode()
    known: dict[tuple[str, str], tuple[Script, Trained]] = {}
    worst = dict.fromkeys(BARS, 0.0)
    used: Counter[str] = Counter()
    failures = []
    for number in range(options.first, options.first + options.sequences):
        model = options.models[number % len(options.models)]
        dtype = list(BARS)[number // len(options.models) % len(BARS)]
        if (model, dtype) not in known:
            script = REWRITE_SCRIPTS[model](tf.as_dtype(dtype))
            known[model, dtype] = script, train_plain(script)
        script, truth = known[model, dtype]
        random = np.random.default_rng([number, zlib.crc32(model.encode())])
        drawn = draw_rewrites(script, random)
        used.update({rewrite.substitution for rewrite in drawn.rewrites})
        mesh = Mesh(MESHES[int(random.choice(list(MESHES)))])
        batch = frozenset(script.shapes) if random.random() < 0.5 else frozenset[str]()
        error = worst_error(train_rewritten(script, drawn, mesh, batch, random), truth)
        worst[dtype] = max(worst[dtype], error)
        if error > BARS[dtype]:
            failures.append((number, model, dtype, error, [str(each) for each in drawn.rewrites]))
            print("FAILED", *failures[-1], flush=True)
    print(f"{options.sequences} sequences over {', '.join(options.models)}")
    print(json.dumps(_result(options.sequences, worst, used, failures)))


def _result(
    sequences: int, worst: Mapping[str, float], used: Mapping[str, int], failures: list[Any]
) -> dict[str, Any]:
    return {
        "sequences": sequences,
        "worst": worst,
        "bars": BARS,
        "failures": len(failures),
        "substitutions": len(used),
        "times": dict(used),
    }


if __name__ == "__main__":
    main()
