"""What the nodes of a search problem cost: operators, and sums of gradients that arrive at them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import CostModel
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.assignments import split_dims
from tensoropt.parallel.choices import Choices
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.search.all_operator_costs import AllOperatorCosts
from tensoropt.search.gradient_sums import gradient_sums, sum_operator, value_dtype
from tensoropt.search.graph_slots import GraphSlots
from tensoropt.search.kept import KeptTensors
from tensoropt.search.local_work import attributes_that_matter
from tensoropt.tdl import Derivation

__all__ = ["NodeCosts"]

Int64Array = npt.NDArray[np.int64]


class NodeCosts:
    """Time and memory of operators under all their configurations, once for all that are alike.

    Args:
        graph: the operators.
        mesh: the devices.
        cost: the prices.
        derivations: of all operators.
        choices: per group its options.
        slots: of the graph's tensors.
        kept: what is kept of them.
        differentiated: per operator the inputs that a gradient leaves.
        sparse: the tensors whose gradient is sparse.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        cost: CostModel,
        derivations: Mapping[str, Derivation],
        choices: Sequence[Choices],
        slots: GraphSlots,
        kept: KeptTensors,
        differentiated: Mapping[str, tuple[int, ...]],
        sparse: frozenset[TensorName],
    ) -> None:
        self._graph = graph
        self._mesh = mesh
        self._cost = cost
        self._derivations = derivations
        self._choices = choices
        self._slots = slots
        self._kept = kept
        self._differentiated = differentiated
        self._sparse = sparse
        self._counts = gradient_sums(graph, differentiated)
        self._summing = {tensor.operator for tensor in self._counts}
        self._all = AllOperatorCosts(mesh, cost)
        self._summed: dict[Hashable, Int64Array] = {}
        self._costs: dict[Hashable, tuple[Int64Array, Int64Array]] = {}

    def of(self, operator: Operator) -> tuple[Int64Array, Int64Array]:
        """Nanoseconds and bytes by configuration, as `AllOperatorCosts` has them."""
        derivation, follower = self._derivations[operator.name], self._slots.follower[operator.name]
        backward = len(self._differentiated.get(operator.name, ()))
        by_amounts = getattr(self._cost, "times_by_amounts", False) and not operator.is_variable
        attributes = () if by_amounts else attributes_that_matter(operator)
        outputs = [TensorName(operator.name, number) for number in range(len(operator.outputs))]
        key = (
            operator.type,
            operator.is_variable,
            bool(operator.mutates),
            self._slots.number(operator.name),
            id(follower.assigned),
            tuple((spec.shape, spec.dtype) for spec in operator.input_specs),
            tuple((spec.shape, spec.dtype) for spec in operator.outputs),
            attributes,
            backward,
            tuple(map(self._kept.role, outputs)),
            self._kept.carried.get(operator.name, ()),
            ways := self._choices[self._slots.node_of[operator.name]].options.kept,
        )
        if key not in self._costs:
            self._costs[key] = self._all.of(
                operator,
                derivation,
                follower.assigned,
                backward,
                self._kept.made,
                self._kept.carried.get(operator.name, ()),
                ways,
                frozenset(tensor for tensor in outputs if self._kept.role(tensor) == "edge"),
            )
        return self._costs[key]

    def sums(self, operator: Operator) -> Int64Array:
        """Nanoseconds of adding up gradients where several arrive at an output."""
        total = np.zeros(len(self._choices[self._slots.node_of[operator.name]].options), np.int64)
        if operator.name not in self._summing:
            return total
        for number in range(len(operator.outputs)):
            tensor = TensorName(operator.name, number)
            count = self._counts.get(tensor, 0)
            if count == 0 or tensor in self._sparse:  # slices are put together, not added
                continue
            shape, dtype = self._graph.spec(tensor).shape, value_dtype(self._graph, tensor)
            made = self._slots.made(tensor, carries=True)
            key = "sum", shape, dtype, count, id(made)
            if key not in self._summed:
                adding = self._sum_times(made.gradient, shape, dtype, count)
                self._summed[key] = adding[made.of_option]
            total += self._summed[key]
        return total

    def _sum_times(
        self, codes: Int64Array, shape: tuple[int, ...], dtype: str, count: int
    ) -> Int64Array:
        """Nanoseconds of adding up so many gradients in every layout of ``codes``."""
        operator = sum_operator(shape, dtype, count)
        derivation = derivation_of(operator)
        index_of = [-1 if index is None else index for index in derivation.outputs[0]]
        assigned = split_dims(codes, len(self._mesh.axes), index_of)
        return self._all.of(operator, derivation, assigned, 0)[0]
