"""What the nodes of a search problem cost: operators, and sums of gradients that arrive at them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.assignments import split_dims
from tensoropt.parallel.choices import Choices
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.edges.tensor_reuse import KeptTensors
from tensoropt.problem.operators.all_configurations import AllOperatorCosts
from tensoropt.problem.operators.gradient_sums import gradient_sums, sum_operator, value_dtype
from tensoropt.tdl import Derivation

__all__ = ["NodeCosts"]


class NodeCosts:
    """Time and memory of operators under all their configurations, once for all that are alike.

    Args:
        graph: the operators.
        derivations: of all of them.
        mesh: the devices.
        cost: the prices.
        choices: per group its options.
        slots: of the graph's tensors.
        kept: what is kept of them.
        differentiated: per operator the inputs that a gradient leaves.
        sparse: the tensors whose gradient is sparse.
    """

    def __init__(
        self,
        graph: Graph,
        derivations: Mapping[str, Derivation],
        mesh: Mesh,
        cost: CostModel,
        choices: Sequence[Choices],
        slots: GraphSlots,
        kept: KeptTensors,
        differentiated: Mapping[str, tuple[int, ...]],
        sparse: frozenset[TensorName],
    ) -> None:
        self._graph = graph
        self._derivations = derivations
        self._mesh = mesh
        self._choices = choices
        self._slots = slots
        self._kept = kept
        self._differentiated = differentiated
        self._added = _added_outputs(gradient_sums(graph, differentiated), sparse)
        self._all = AllOperatorCosts(mesh, cost)
        self._summed: dict[Hashable, Int64Array] = {}
        self._alone: dict[Hashable, tuple[Int64Array, Int64Array]] = {}
        self._with_sums: dict[Hashable, tuple[Int64Array, Int64Array]] = {}

    def of(self, operator: Operator) -> tuple[Int64Array, Int64Array]:
        """Nanoseconds and bytes by configuration: of computing, and of the sums of gradients that
        arrive at the outputs. Operators alike share the arrays."""
        key = self._key(operator)
        alone = self._alone.get(key)
        if alone is None:
            alone = self._alone[key] = self._computing(operator)
        added = self._added.get(operator.name)
        if added is None:
            return alone
        sums = [self._sum(operator, number, count) for number, count in added]
        both = id(alone), *map(id, sums)  # which are remembered, so ids stay theirs
        if both not in self._with_sums:
            self._with_sums[both] = np.sum([alone[0], *sums], axis=0), alone[1]
        return self._with_sums[both]

    def _key(self, operator: Operator) -> Hashable:
        """What the costs of computing an operator depend on, as small values."""
        name = operator.name
        key = self._slots.alike[name], len(self._differentiated.get(name, ()))
        if self._kept.is_plain:
            return key
        outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
        return key, tuple(map(self._kept.role, outputs)), self._kept.carried.get(name, ())

    def _computing(self, operator: Operator) -> tuple[Int64Array, Int64Array]:
        name = operator.name
        outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
        return self._all.of(
            operator,
            self._derivations[name],
            self._slots.follower[name].assigned,
            len(self._differentiated.get(name, ())),
            self._kept.made,
            self._kept.carried.get(name, ()),
            self._choices[self._slots.node_of[name]].options.kept,
            frozenset(tensor for tensor in outputs if self._kept.role(tensor) == "edge"),
        )

    def _sum(self, operator: Operator, number: int, count: int) -> Int64Array:
        """Nanoseconds of adding up so many gradients of an output, by configuration."""
        tensor = TensorName(operator.name, number)
        shape, dtype = self._graph.spec(tensor).shape, value_dtype(self._graph, tensor)
        made = self._slots.made(tensor, carries=True)
        key = "sum", shape, dtype, count, id(made)
        if key not in self._summed:
            adding = self._sum_times(made.gradient, shape, dtype, count)
            self._summed[key] = adding[made.of_option]
        return self._summed[key]

    def _sum_times(
        self, codes: Int64Array, shape: tuple[int, ...], dtype: str, count: int
    ) -> Int64Array:
        """Nanoseconds of adding up so many gradients in every layout of ``codes``."""
        operator = sum_operator(shape, dtype, count)
        derivation = derivation_of(operator)
        index_of = [-1 if index is None else index for index in derivation.outputs[0]]
        assigned = split_dims(codes, len(self._mesh.axes), index_of)
        return self._all.of(operator, derivation, assigned, 0)[0]


def _added_outputs(
    counts: Mapping[TensorName, int], sparse: frozenset[TensorName]
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Per operator its outputs at which several gradients arrive, and how many.

    Slices are put together, not added.
    """
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for tensor, count in counts.items():
        if tensor not in sparse:
            found[tensor.operator] = (*found.get(tensor.operator, ()), (tensor.index, count))
    return found
