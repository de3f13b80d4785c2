"""``python -m benchmarks.search.enumerated``: searches of small problems against enumeration.

The problems are artificial, with structures of training graphs that make a search hard: a weight
that the first and the last layers read, a mask that every layer reads, skips from the first layers
to the last, towers with shared weights, and equal layers. Each problem is searched with the default
limits, and with small limits by the solvers of large problems, exactly and within a gap. The
program checks that strategies cost what a frontier says, that an exact frontier equals that of all
strategies, and that no strategy is better than a stated gap allows. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from reproduction.baselines.brute_force import brute_force
from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem, SlotMap
from tensoropt.search import Frontier, frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits

__all__ = ["FAMILIES", "LIMITS", "SMALL", "main", "problem_of", "what_is_wrong"]

Pairs = list[tuple[int, int]]

SMALL = SearchLimits(
    table_points=4_000,
    simple_additions=1 << 12,
    bounded_cells=0,
    few_cells=40,
    plain_states=0,
    exact_points=60,
    branching_additions=2e5,
    line_additions=1e3,
    exact_states=4,
)
"""Limits that relate to problems of ten nodes as the default limits relate to problems of a
thousand."""
LIMITS = {
    "default": DEFAULT_LIMITS,
    "eliminations": SearchLimits(bounded_cells=0),
    "bounds": SearchLimits(bounded_cells=0, few_cells=0),
    "branches": SearchLimits(
        bounded_cells=0,
        plain_states=0,
        exact_points=4,
        exact_states=8,
        branching_additions=3e8,
    ),
    "small": SMALL,
}
_EPSILONS = (0.0, 0.002, 0.05)


@dataclass
class _Graph:
    """Nodes, and pairs of nodes that edges join; pairs of one kind have the same costs."""

    nodes: int = 0
    pairs: dict[str, Pairs] = field(default_factory=dict)
    alike: dict[int, str] = field(default_factory=dict)

    def node(self, kind: str) -> int:
        self.alike[self.nodes] = kind
        self.nodes += 1
        return self.nodes - 1

    def join(self, kind: str, source: int, target: int) -> None:
        self.pairs.setdefault(kind, []).append((source, target))

    def chain(self, layers: int, kind: str = "layer") -> list[int]:
        found = [self.node(kind) for _ in range(layers)]
        for pair in pairwise(found):
            self.join(f"to {kind}", *pair)
        return found


def _tied(graph: _Graph, random: np.random.Generator) -> None:
    """A chain whose two ends read one table."""
    table = graph.node("table")
    layers = graph.chain(int(random.integers(4, 7)))
    graph.join("looked up", table, layers[0])
    graph.join("logits", table, layers[-1])


def _masked(graph: _Graph, random: np.random.Generator) -> None:
    """Layers that all read a mask, and some of which read positions."""
    mask, positions = graph.node("mask"), graph.node("positions")
    layers = graph.chain(int(random.integers(4, 7)))
    for layer in layers:
        graph.join("masked", mask, layer)
    for layer in layers[::2]:
        graph.join("placed", positions, layer)


def _skipping(graph: _Graph, random: np.random.Generator) -> None:
    """Layers down and up again, each joined to its mirror image."""
    layers = graph.chain(2 * int(random.integers(2, 4)) + 1)
    for first, last in zip(layers, layers[::-1], strict=True):
        if first < last - 1:
            graph.join("skip", first, last)


def _towers(graph: _Graph, random: np.random.Generator) -> None:
    """Two towers that share their weights and are compared."""
    count = int(random.integers(2, 4))
    weights = [graph.node("weight") for _ in range(count)]
    towers = [graph.chain(count, "tower") for _ in range(2)]
    for tower in towers:
        for weight, layer in zip(weights, tower, strict=True):
            graph.join("read", weight, layer)
    compared = graph.node("compared")
    for tower in towers:
        graph.join("compare", tower[-1], compared)


def _all(graph: _Graph, random: np.random.Generator) -> None:
    """A graph with a tied table, a mask and a skip."""
    table, mask = graph.node("table"), graph.node("mask")
    layers = graph.chain(int(random.integers(4, 6)))
    graph.join("looked up", table, layers[0])
    graph.join("logits", table, layers[-1])
    for layer in layers[1:]:
        graph.join("masked", mask, layer)
    graph.join("skip", layers[0], layers[-1])


def _repeated(graph: _Graph, random: np.random.Generator) -> None:
    """Equal layers between unequal ones, joined by skips."""
    unlike = [graph.node("unlike 0")]
    for number in range(1, 4):
        inside = [graph.node("first"), graph.node("second")]
        unlike.append(graph.node(f"unlike {number}"))
        graph.join("in", unlike[-2], inside[0])
        graph.join("through", *inside)
        graph.join("out", inside[1], unlike[-1])
    for first, one in enumerate(unlike):
        for other in unlike[first + 2 :]:
            if random.uniform() < 0.5:
                graph.join(f"skip {one} {other}", one, other)


FAMILIES: dict[str, Callable[[_Graph, np.random.Generator], None]] = {
    "tied": _tied,
    "masked": _masked,
    "skipping": _skipping,
    "towers": _towers,
    "all": _all,
    "repeated": _repeated,
}


def problem_of(family: str, seed: int) -> Problem:
    """A problem of a family; costs have few or many ties, and few, many or no large trade-offs."""
    random = np.random.default_rng(seed)
    graph = _Graph()
    FAMILIES[family](graph, random)
    most = 4 if graph.nodes <= 7 else 3
    counts = {kind: int(random.integers(2, most + 1)) for kind in set(graph.alike.values())}
    counts = {kind: counts[kind] for kind in sorted(counts)}
    counts |= {kind: counts["unlike 0"] for kind in counts if kind.startswith("unlike")}
    top = int(random.choice([4, 30, 1000, 10**9]))
    large = int(random.choice([1, 1, 50]))  # the kinds of edges with a large trade-off
    costs = {}
    for kind, count in counts.items():
        memory, time_ = random.integers(1, top, (2, count))
        if random.uniform() < 0.3:
            memory, time_ = np.sort(memory) * large, np.sort(time_)[::-1] * large
        costs[kind] = memory, time_
    nodes = tuple(Node(f"{kind} {node}", *costs[kind]) for node, kind in graph.alike.items())
    takes_memory = random.uniform() < 0.4
    edges = []
    for pairs in graph.pairs.values():
        kinds: dict[tuple[int, int], EdgeKind] = {}
        for source, target in pairs:
            sizes = nodes[source].configurations, nodes[target].configurations
            if sizes not in kinds:
                slots = [int(random.integers(1, size + 1)) for size in sizes]
                table = CostTable(
                    random.integers(0, top, slots) * int(takes_memory),
                    random.integers(0, top, slots),
                )
                source_map, target_map = (
                    SlotMap(np.append(np.arange(own), random.integers(0, own, size - own)))
                    for size, own in zip(sizes, slots, strict=True)
                )
                kinds[sizes] = EdgeKind(source_map, target_map, table)
            edges.append(Edge(source, target, kinds[sizes]))
    return Problem(nodes, tuple(edges))


def what_is_wrong(problem: Problem, found: Frontier, truth: Frontier) -> str | None:
    """The error of a frontier by enumeration; an empty text if there is none."""
    memory, time_ = problem.costs(found.strategies)
    if not (np.array_equal(memory, found.memory) and np.array_equal(time_, found.time)):
        return "strategies cost something else"
    if not truth.dominates(found):
        return "points better than all strategies"
    if found.exact:
        return None if found.same_costs(truth) else "not exact"
    if found.within is None:
        return None
    most = 1 + found.within + 1e-9
    near = (found.memory[:, None] <= truth.memory * most) & (
        found.time[:, None] <= truth.time * most
    )
    return None if near.any(axis=0).all() else "wider than its gap"


def main() -> int:
    """Search the problems; the status is 1 if a frontier is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.enumerated")
    parser.add_argument("--problems", type=int, default=5_000, help="of all families together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.process_time()
    counts: Counter[str] = Counter()
    wrong = []
    for number in range(options.problems):
        family = list(FAMILIES)[number % len(FAMILIES)]
        seed = options.seed + number
        problem = problem_of(family, seed)
        truth = brute_force(problem)
        for name, limits in LIMITS.items():
            epsilon = _EPSILONS[(number // len(FAMILIES)) % len(_EPSILONS)]
            found = frontier_tracking(problem, epsilon=epsilon, limits=limits)
            counts["searches"] += 1
            counts["exact"] += found.exact
            counts["with a gap"] += not found.exact and found.within is not None
            reason = what_is_wrong(problem, found, truth)
            if reason is not None:
                wrong.append((family, seed, name, epsilon, reason))
                print(f"{family} {seed}, {name} limits, epsilon {epsilon}: {reason}", flush=True)
        if (number + 1) % 500 == 0:
            print(f"{number + 1} problems, {len(wrong)} wrong", flush=True)
    seconds = round(time.process_time() - begun, 1)
    print(
        json.dumps(
            {
                "problems": options.problems,
                **counts,
                "wrong": len(wrong),
                "cpu_seconds": seconds,
            }
        )
    )
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
