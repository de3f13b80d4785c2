"""Simple strategies in place of one that cannot be executed."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel, whole
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["is_demanded", "left_out", "simple_frontiers"]


def left_out(reason: str) -> str:
    """Return the note of a plan that replaces a faster one."""
    return f"a faster plan cannot be executed and is left out: {reason}"


def is_demanded(request: Request) -> bool:
    """Whether a script demands stages or an algorithm, so that no other plan may replace it."""
    stages = request.pipeline is not None and request.pipeline.stages is not None
    return stages or request.algorithm != "ft"


def simple_frontiers(request: Request, problem: GraphProblem) -> Iterator[Frontier]:
    """Yield data parallelism, then every operator whole, if they fit; each has one point."""
    usable = request.usable_bytes(problem.mesh.size)
    for baseline in (data_parallel, whole):
        frontier = baseline.solve(problem)
        if frontier.memory[0] <= usable:
            yield frontier
