"""The order in which `tensoropt profile` measures collectives: first those that plans need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log2

from tensoropt.cost.cluster import Cluster
from tensoropt.cost.measuring.measure import WantedCollective
from tensoropt.cost.model import ClusterCostModel
from tensoropt.frontend.measuring.reference_steps import references
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem

__all__ = ["by_importance"]

_Collective = tuple[str, tuple[int, ...], int]
"""A kind, ascending mesh axes, and the rounded power of 2 of the bytes."""
_KINDS = ("allreduce", "allgather", "reduce_scatter", "alltoall", "exchange", "broadcast")
"""Kinds by the time that steps usually spend in them, the most first."""
_COARSE = 4
"""Without a script, every fourth power of 2 is measured before the sizes between."""


def by_importance(
    wanted: Sequence[WantedCollective], request: Request | None
) -> list[WantedCollective]:
    """Return collectives in the order of the time that steps of a script spend in them.

    The smallest collective of each kind comes first, because it is the latency of all small ones.
    The steps are those of data parallelism and of random strategies, priced without measurements.
    A collective that no step needs comes last; so do all if there is no script.

    Args:
        wanted: the collectives to measure.
        request: the script's step; None without a script.
    """
    seconds = {} if request is None else _seconds_of_steps(request)

    smallest: dict[tuple[str, tuple[int, ...]], int] = {}
    for each in wanted:
        least = smallest.setdefault((each.kind, each.axes), each.wanted_bytes)
        smallest[each.kind, each.axes] = min(least, each.wanted_bytes)

    def key(collective: WantedCollective) -> tuple[float, ...]:
        power = round(log2(collective.wanted_bytes))
        # Sizes between two measured ones are interpolated, so both neighbours are needed.
        time = sum(
            seconds.get((collective.kind, collective.axes, near), 0.0)
            for near in (power - 1, power, power + 1)
        )
        between = power % _COARSE != 0
        is_larger = collective.wanted_bytes > smallest[collective.kind, collective.axes]
        return (is_larger, -time, between, _KINDS.index(collective.kind), -power)

    return sorted(wanted, key=key)


def _seconds_of_steps(request: Request) -> Mapping[_Collective, float]:
    """Return the seconds of all collectives of the steps."""
    cost = request.cost_model(request.devices)
    recorded = _Recording(cost.cluster, cost.mesh)
    problem = graph_problem(
        AnnotatedGraph.of(request.graph, cost.mesh, cost, request.batch_placeholders)
    )
    for numbers in references(problem):
        configurations = problem.configurations(numbers)
        strategy = Strategy(request.graph, cost.mesh, configurations, request.batch_placeholders)
        step_time(strategy, recorded, reads=request.reads)
    return recorded.seconds


class _Recording(ClusterCostModel):
    """A cost model that adds up the time of the collectives that it is asked for."""

    __slots__ = ("seconds",)

    def __init__(self, cluster: Cluster, mesh: Mesh) -> None:
        super().__init__(cluster, mesh)
        self.seconds = defaultdict[_Collective, float](float)

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """See `ClusterCostModel.network_seconds`."""
        time = super().network_seconds(kind, axes, bytes_, runs)
        self.seconds[kind, tuple(sorted(axes)), round(log2(max(bytes_, 1)))] += time
        return time
