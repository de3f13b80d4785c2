"""``python -m tests.oracles.certificates``: certificates of costs and frontiers.

For each model and number of devices:

- checker: all points of the frontier (or a sample), and random strategies in both memory models,
  are priced again by equations 1 to 3 (`tests.oracles.certificates.checker`). The integers must be
  equal.
- linear programs: at memory limits along the frontier, HiGHS finds the least time, or a time that
  no strategy undercuts when its time is up. Both are compared with the frontier's time. If a
  program would be too large, fixing by reduced costs makes it smaller first.
- plain solver: eliminations alone find the same frontier as the search with bounds, if the graph is
  small enough for them.

The last line is one JSON object. The exit status says whether everything agrees.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.report.text_table import table
from tensoropt.search import Frontier, frontier_tracking
from tests.oracles.certificates.checker import Checker
from tests.oracles.certificates.comparison import Row, compared, limits_of
from tests.oracles.certificates.kept import kept_frontier
from tests.oracles.certificates.models import MODELS, OF_ZOO, step_of
from tests.oracles.certificates.reduction import reduced

__all__ = ["main"]

PARTS = ("checker", "programs", "plain")
MOST_POINTS = 200  # largest number of a frontier's points that the checker prices
RANDOM_STRATEGIES = 3
PLAIN_CELLS = 200_000  # largest number of edges' cells for eliminations alone


@dataclass(slots=True)
class Tally:
    """Counts of agreements and contradictions of all models."""

    programs: list[dict[str, Any]] = field(default_factory=list)
    points: int = 0
    disagreements: list[str] = field(default_factory=list)
    graphs: int = 0
    equal: int = 0

    def line(self) -> dict[str, Any]:
        """The content of the last line."""
        return {
            "certificates": self.programs,
            "checker": {"points": self.points, "disagreements": len(self.disagreements)},
            "plain_solver": {"graphs": self.graphs, "equal": self.equal},
        }

    @property
    def agrees(self) -> bool:
        """Whether nothing contradicts a frontier or a cost."""
        wrong = any(one["contradictions"] for one in self.programs)
        return not wrong and not self.disagreements and self.graphs == self.equal


def main() -> int:
    """Compute the certificates; the status is 1 if something disagrees."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracles.certificates", description=__doc__
    )
    parser.add_argument("--models", nargs="+", choices=[*MODELS, *OF_ZOO], default=[*MODELS])
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 8])
    parser.add_argument("--limits", type=int, default=10, help="memory limits of each frontier")
    parser.add_argument(
        "--only", nargs="+", type=int, help="numbers of limits, from 0, for runs in portions"
    )
    parser.add_argument("--seconds", type=float, default=12.0, help="for HiGHS at each limit")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--cluster", default="8-v100")
    parser.add_argument("--keep", type=Path, help="folder of frontiers, for runs in portions")
    options = parser.parse_args()
    tally = Tally()
    for model in options.models:
        for devices in options.devices:
            _certify(model, devices, options, tally)
    for text in tally.disagreements:
        print(f"DISAGREEMENT: {text}")
    print(json.dumps(tally.line()))
    return int(not tally.agrees)


def _certify(model: str, devices: int, options: argparse.Namespace, tally: Tally) -> None:
    cluster = load_cluster(options.cluster)
    mesh = cluster.mesh(devices)
    step = step_of(model, cluster, devices)
    cost = ClusterCostModel(cluster, mesh)
    whole = graph_problem(
        AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders, step.reads)
    )
    name = f"{model}-{options.cluster}-{devices}"
    frontier = kept_frontier(options.keep, name, lambda: frontier_tracking(whole.problem))
    exact = "exact" if frontier.exact else _within(frontier.within)
    points = f"{len(frontier)} points, {exact}"
    print(f"\n{model}, {devices} devices: {len(step.graph)} operators, {points}")
    if "checker" in options.parts:
        name = f"{model} on {devices} devices"
        checker = Checker(step.graph, mesh, cost, step.batch_placeholders, step.reads)
        _check(checker, whole, _sample(frontier), name, tally)
        for memory in ("paper", "execution"):
            price = ClusterCostModel(cluster, mesh, memory)
            again = graph_problem(
                AnnotatedGraph.of(step.graph, mesh, price, step.batch_placeholders, step.reads)
            )
            checker = Checker(step.graph, mesh, price, step.batch_placeholders, step.reads)
            _check(checker, again, _random(again), f"{name}, {memory} memory", tally)
        print(f"checker: {tally.points} strategies so far, {len(tally.disagreements)} disagree")
    if "programs" in options.parts:
        tally.programs.append(_programs(model, mesh, whole, frontier, options))
    if "plain" in options.parts:
        _plain(whole, frontier, tally)
    sys.stdout.flush()


def _within(share: float | None) -> str:
    return "not exact" if share is None else f"within {100 * share:.2g} %"


def _sample(frontier: Frontier) -> list[list[int]]:
    """All strategies of a frontier, or an even sample of them."""
    places = np.linspace(0, len(frontier) - 1, min(len(frontier), MOST_POINTS)).astype(np.int64)
    return [frontier.strategies[place].tolist() for place in np.unique(places)]


def _random(whole: GraphProblem) -> list[list[int]]:
    random = np.random.default_rng(0)
    counts = [node.configurations for node in whole.problem.nodes]
    return [[int(random.integers(count)) for count in counts] for _ in range(RANDOM_STRATEGIES)]


def _check(
    checker: Checker, whole: GraphProblem, strategies: list[list[int]], name: str, tally: Tally
) -> None:
    for strategy in strategies:
        found, claimed = checker.cost(whole.configurations(strategy)), whole.problem.cost(strategy)
        tally.points += 1
        if (found.memory, found.time) != claimed:
            tally.disagreements.append(
                f"{name}: {found.memory} bytes and {found.time} ns by equation 3, {claimed} by the "
                f"search, for strategy {strategy}"
            )


def _programs(
    model: str,
    mesh: Mesh,
    whole: GraphProblem,
    frontier: Frontier,
    options: argparse.Namespace,
) -> dict[str, Any]:
    left = reduced(whole.problem)
    limits = limits_of(frontier, options.limits)
    rows = [
        compared(whole.problem, left, frontier, limits[number], options.seconds)
        for number in options.only or range(len(limits))
        if number < len(limits)
    ]
    print(_table(rows))
    return {
        "model": model,
        "devices": mesh.size,
        "operators": len(whole.graph),
        "points": len(frontier),
        "exact": frontier.exact,
        "limits": len(rows),
        "equal": sum(row.verdict == "equal" for row in rows),
        "within_dual_bound": sum(row.verdict == "within dual bound" for row in rows),
        "better_than_an_inexact_frontier": sum(row.verdict == "better" for row in rows),
        "contradictions": sum(row.contradicts for row in rows),
        "worst_gap": max(row.gap for row in rows),
        "seconds": round(sum(row.seconds for row in rows), 1),
    }


def _table(rows: list[Row]) -> str:
    header = ["limit (GB)", "frontier (ns)", "program (ns)", "bound (ns)", "gap", "variables"]
    header += ["seconds", ""]
    lines = [
        [
            f"{row.limit / 2**30:.6f}",
            str(row.frontier),
            "-" if row.program is None else str(row.program),
            f"{row.bound:.0f}",
            f"{100 * row.gap:.4f} %",
            f"{row.variables}" + (" (fixed)" if row.fixed else ""),
            f"{row.seconds:.2f}",
            row.verdict,
        ]
        for row in rows
    ]
    return str(table(header, lines, [True] * (len(header) - 1) + [False]))


def _plain(whole: GraphProblem, frontier: Frontier, tally: Tally) -> None:
    """Compare with eliminations alone, if the graph is small enough for them."""
    cells = sum(edge.time.size for edge in whole.problem.edges)
    if cells > PLAIN_CELLS:
        print(f"plain solver: not tried, {cells} cells")
        return
    alone = frontier_tracking(whole.problem, bounds=False)
    if not (alone.exact and frontier.exact):
        print("plain solver: not exact here")
        return
    same = frontier.same_costs(alone)
    tally.graphs += 1
    tally.equal += same
    print(f"plain solver: {len(alone)} points, {'the same' if same else 'NOT the same'}")


if __name__ == "__main__":
    sys.exit(main())
