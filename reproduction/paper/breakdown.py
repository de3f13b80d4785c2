"""The parts of a strategy's time: computation and network time, as in the paper's Figure 6."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.edge_kinds import EdgeKinds
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.from_graph import GraphProblem, moved_reads
from tensoropt.problem.operators.local_work import attributes_that_matter
from tensoropt.problem.operators.operator_costs import OperatorCosts

__all__ = ["Breakdown", "breakdown"]


class _FreeNetwork(ClusterCostModel):
    """A cluster's costs if collectives took no time."""

    __slots__ = ()

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        del kind, axes, bytes_
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """Nanoseconds of every strategy, int64[S] each; their sum is its time.

    Attributes:
        computation: time of operators, t_c of equation 1.
        variables: network time of parameters and their gradients, t_s.
        tensors: network time of all other tensors: t_x of equation 2, and collectives inside
            operators.
    """

    computation: Int64Array
    variables: Int64Array
    tensors: Int64Array


def breakdown(
    whole: GraphProblem,
    annotated: AnnotatedGraph,
    cost: ClusterCostModel,
    strategies: npt.NDArray[np.int32],
) -> Breakdown:
    """Divide the times of strategies into parts.

    Args:
        whole: the problem that they solve.
        annotated: the graph of the problem.
        cost: the prices of the problem.
        strategies: int32[S, nodes].
    """
    problem = whole.problem
    _, total = problem.costs(strategies)
    free = _FreeNetwork(cost.cluster, cost.mesh)
    computation = np.full(len(strategies), cost.step_nanoseconds(), dtype=np.int64)
    for node, times in enumerate(_computation(whole, free)):
        computation += times[strategies[:, node]]
    variables = _of_variables(annotated, strategies)
    return Breakdown(computation, variables, total - computation - variables)


def _of_variables(annotated: AnnotatedGraph, strategies: npt.NDArray[np.int32]) -> Int64Array:
    """int64[S], the time of moving variables to their readers, and gradients back."""
    slots = GraphSlots(annotated)
    edges, node_of = EdgeKinds(annotated, slots), slots.node_of
    graph, leader_of = annotated.graph, annotated.leader_of
    found = np.zeros(len(strategies), dtype=np.int64)

    def is_variable(tensor: TensorName) -> bool:
        return graph[leader_of[tensor.operator]].is_variable

    for operator, number, kind in moved_reads(graph, node_of, edges):
        tensor = operator.inputs[number]
        if is_variable(tensor):
            ends = sorted((node_of[tensor.operator], node_of[operator.name]))
            rows, columns = (
                each.slots[strategies[:, node]] for each, node in zip(kind.maps, ends, strict=True)
            )
            found += kind.costs.time[rows, columns]
    shared: set[tuple[TensorName, int]] = set()
    for operator in graph:
        node = node_of.get(operator.name)
        if node is None or is_variable(TensorName(operator.name, 0)):
            continue
        for number, tensor in enumerate(operator.inputs):
            if node_of.get(tensor.operator) != node or not is_variable(tensor):
                continue
            if (tensor, number) not in shared or looks_up_rows(operator, number):
                found += edges.inside(operator, number).time[strategies[:, node]]
            shared.add((tensor, number))
    return found


def _computation(whole: GraphProblem, free: ClusterCostModel) -> list[Int64Array]:
    """int64[K] for every node: the computation of its members; equal operators are priced once."""
    differentiated = differentiated_inputs(whole.graph)
    costs = OperatorCosts(free.mesh, free)
    known: dict[Hashable, Int64Array] = {}
    found = []
    for group in whole.choices:
        total = np.zeros(len(group.options), dtype=np.int64)
        for name, follower in zip(group.members, group.options.followers, strict=True):
            operator, derivation = whole.graph[name], whole.derivations[name]
            backward = len(differentiated.get(name, ()))
            key = (
                operator.type,
                operator.is_variable,
                bool(operator.mutates),
                operator.gradient is None,
                derivation,
                follower,
                tuple((spec.shape, spec.dtype) for spec in operator.input_specs),
                tuple((spec.shape, spec.dtype) for spec in operator.outputs),
                attributes_that_matter(operator),
                backward,
            )
            if key not in known:
                known[key] = costs.of(operator, derivation, follower.assigned, backward).time
            total += known[key]
        found.append(total)
    return found
