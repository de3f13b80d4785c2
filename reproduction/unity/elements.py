"""The strategy with the least communication in which devices share every product of matrices.

The program counts the elements that two devices send: 2 n for an all-reduce of n elements, of which
each device sends n. Nothing else has a price, so products must be split; otherwise all devices
would compute everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproduction.unity.fused import FUSED
from tensoropt.arrays import Int64Array
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorTime, OperatorWork
from tensoropt.graph.operator import Graph
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.baselines.nearest import leader_assignments

__all__ = ["MESH", "PRODUCTS", "SENT", "Elements", "elements_model", "least_elements"]

MESH = Mesh((2,))
PRODUCTS = frozenset({"BatchMatMulV2", FUSED, "MatMul"})
_SCALE = 1000  # price of an element in nanoseconds of the search
SENT = {"allreduce": 2.0, "reduce_scatter": 1.0, "allgather": 2.0, "alltoall": 1.0}
"""Elements that two devices send together, for each element that a device holds before."""


class Elements(ClusterCostModel):
    """Counts communicated elements and nothing else."""

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        """The number of elements, scaled; a local step has the least price."""
        del axes
        return round(SENT[kind] * bytes_ / 4 * _SCALE) if kind in SENT else 1

    def operator_nanoseconds(self, work: OperatorWork, /) -> OperatorTime:
        """Zero."""
        del work
        return OperatorTime(0, 0)

    def step_nanoseconds(self) -> int:
        """Zero."""
        return 0


def elements_model() -> Elements:
    """The prices."""
    return Elements(load_cluster("8-v100"), MESH)


def least_elements(
    graph: Graph, allowed: Mapping[int, frozenset[int]] | None = None
) -> tuple[int, dict[str, Any]]:
    """The fewest elements, and the configurations, if every product is split.

    Args:
        graph: the graph of the step.
        allowed: for each product, in order, the indices that may be split; None for any index.
    """
    cost = elements_model()
    problem = graph_problem(AnnotatedGraph.of(graph, MESH, cost))
    found = least_time(problem.problem, _kept(problem, allowed))
    strategy = found.strategies[0].tolist()
    return int(found.time[0]) // _SCALE, dict(problem.configurations(strategy))


def _kept(problem: GraphProblem, allowed: Mapping[int, frozenset[int]] | None) -> list[Int64Array]:
    kept, product = [], 0
    for node, group in enumerate(problem.choices):
        choices = np.arange(len(group.options))
        if problem.graph[group.leader].type in PRODUCTS:
            own = leader_assignments(problem, node)[:, 0]
            split = own >= 0 if allowed is None else np.isin(own, sorted(allowed[product]))
            choices = np.flatnonzero(split)
            product += 1
        kept.append(choices)
    return kept
