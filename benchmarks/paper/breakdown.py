"""What a strategy's time consists of: computation and network time, as in the paper's Figure 6."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.operators.local_work import attributes_that_matter
from tensoropt.problem.operators.operator_costs import OperatorCosts

__all__ = ["Breakdown", "breakdown"]


class _FreeNetwork(ClusterCostModel):
    """What things cost if collectives took no time."""

    __slots__ = ()

    def collective_nanoseconds(self, kind: str, axes: tuple[int, ...], bytes_: int, /) -> int:
        del kind, axes, bytes_
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """Nanoseconds of every strategy, int64[S] each; together they are its time.

    Attributes:
        computation: of operators, t_c of equation 1.
        variables: network time of parameters and their gradients, t_s.
        tensors: network time of all other tensors: t_x of equation 2, and what operators move
            themselves.
    """

    computation: Int64Array
    variables: Int64Array
    tensors: Int64Array


def breakdown(
    whole: GraphProblem, cost: ClusterCostModel, strategies: npt.NDArray[np.int32]
) -> Breakdown:
    """Take the times of strategies apart.

    Args:
        whole: the problem that they solve.
        cost: what it was priced with.
        strategies: int32[S, nodes].
    """
    problem = whole.problem
    _, total = problem.costs(strategies)
    free = _FreeNetwork(cost.cluster, cost.mesh)
    computation = np.full(len(strategies), cost.step_nanoseconds(), dtype=np.int64)
    for node, times in enumerate(_computation(whole, free)):
        computation += times[strategies[:, node]]
    holds_variable = [
        any(whole.graph[name].is_variable for name in group.members) for group in whole.choices
    ]
    variables = np.zeros(len(strategies), dtype=np.int64)
    for edge in problem.edges:
        if holds_variable[edge.source] or holds_variable[edge.target]:
            variables += edge.time[
                edge.source_slots[strategies[:, edge.source]],
                edge.target_slots[strategies[:, edge.target]],
            ]
    return Breakdown(computation, variables, total - computation - variables)


def _computation(whole: GraphProblem, free: ClusterCostModel) -> list[Int64Array]:
    """int64[K] for every node: what its members compute; alike operators are priced once."""
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
