"""Costs of the nodes of a search problem: operators, and sums of gradients of their outputs."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import split_dims
from tensoropt.parallel.strategy import derivation_of
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.operators.joined_products import (
    added_gradients,
    number_sharing,
    sharing_products,
)
from tensoropt.problem.operators.operator_costs import ConfigurationCosts, OperatorCosts
from tensoropt.problem.operators.reader_gradient_sums import sum_operator

__all__ = ["NodeCosts"]


class NodeCosts:
    """Time and memory of operators under all configurations, computed once for equal operators.

    Args:
        annotated: the graph.
        slots: the slots of its tensors.
        costs: the costs of operators on its mesh, by its cost model; new ones by default.

    Attributes:
        costs: see above.
    """

    def __init__(
        self, annotated: AnnotatedGraph, slots: GraphSlots, costs: OperatorCosts | None = None
    ) -> None:
        self._repeats = annotated.repeats
        self._derivations = annotated.kinds.derivations
        self._axes = len(annotated.mesh.axes)
        self._choices = annotated.choices
        self._slots = slots
        self._saved = annotated.saved
        self._differentiated = annotated.differentiated
        graph, differentiated = annotated.graph, annotated.differentiated
        shared = sharing_products(graph, differentiated)
        self._sharing = number_sharing(shared)
        sums = added_gradients(graph, differentiated, shared, annotated.mesh)
        # Sparse gradients are concatenated, not added.
        self._counts = {tensor: n for tensor, n in sums.items() if tensor not in annotated.sparse}
        self.costs = costs or OperatorCosts(annotated.mesh, annotated.cost)
        self._sums: dict[Hashable, ConfigurationCosts] = {}
        self._computing_costs: dict[Hashable, ConfigurationCosts] = {}
        self._with_sums: dict[tuple[ConfigurationCosts, ...], ConfigurationCosts] = {}

    def of(self, operator: Operator) -> ConfigurationCosts:
        """Return the costs of computing an operator and of adding the gradients of its outputs."""
        key = self._key(operator)
        computing = self._computing_costs.get(key)
        if computing is None:
            computing = self._computing_costs[key] = self._costs_of_computing(operator)
        outputs = (TensorName(operator.name, number) for number in range(len(operator.outputs)))
        with_sums = [tensor for tensor in outputs if tensor in self._counts]
        parts = computing, *(self._sum(operator, tensor) for tensor in with_sums)
        if parts not in self._with_sums:
            self._with_sums[parts] = ConfigurationCosts.sum(parts)
        return self._with_sums[parts]

    def _key(self, operator: Operator) -> Hashable:
        """Return a key of all that the costs of computing an operator depend on."""
        name = operator.name
        differentiated = len(self._differentiated.get(name, ()))
        sharing = self._sharing.get(name, 1)
        key = self._slots.signature[name], differentiated, self._repeats.get(name), sharing
        if self._saved.is_plain:
            return key
        outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
        return key, tuple(map(self._saved.role, outputs)), self._saved.saved_inputs.get(name, ())

    def _costs_of_computing(self, operator: Operator) -> ConfigurationCosts:
        name = operator.name
        outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
        once = self.costs.of(
            operator,
            self._derivations[name],
            self._slots.follower[name].assigned,
            len(self._differentiated.get(name, ())),
            self._saved.made,
            self._saved.saved_inputs.get(name, ()),
            self._choices[self._slots.node_of[name]].kept(name),
            frozenset(tensor for tensor in outputs if self._saved.role(tensor) == "edge"),
            self._sharing.get(name, 1),
        )
        return ConfigurationCosts(once.memory, once.time * self._repeats.get(name, 1))

    def _sum(self, operator: Operator, tensor: TensorName) -> ConfigurationCosts:
        """Return the costs of adding the gradients of an output, which take time only."""
        spec, count = operator.value_spec(tensor.index), self._counts[tensor]
        slots = self._slots.at_producer(tensor, carries=True)
        repeats = self._repeats.get(operator.name, 1)
        key = spec.shape, spec.dtype, count, slots, repeats
        if key not in self._sums:
            add = sum_operator(spec.shape, spec.dtype, count)
            derivation = derivation_of(add)
            index_of = [-1 if index is None else index for index in derivation.outputs[0]]
            assigned = split_dims(slots.gradient.codes, self._axes, index_of)
            of_slot = self.costs.of(add, derivation, assigned, 0).time
            time = of_slot[slots.of_option.slots] * repeats
            self._sums[key] = ConfigurationCosts(np.zeros_like(time), time)
        return self._sums[key]
