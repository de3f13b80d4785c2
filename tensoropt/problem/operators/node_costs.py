"""What the nodes of a search problem cost: operators, and sums of gradients that arrive at them."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import split_dims
from tensoropt.parallel.strategy import derivation_of
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.operators.gradient_sums import gradient_sums, sum_operator
from tensoropt.problem.operators.operator_costs import ConfigurationCosts, OperatorCosts

__all__ = ["NodeCosts"]


class NodeCosts:
    """Time and memory of operators under all their configurations, once for all that are alike.

    Args:
        annotated: the graph.
        slots: of its tensors.
    """

    def __init__(self, annotated: AnnotatedGraph, slots: GraphSlots) -> None:
        self._repeats = annotated.repeats
        self._derivations = annotated.kinds.derivations
        self._axes = len(annotated.mesh.axes)
        self._choices = annotated.choices
        self._slots = slots
        self._saved = annotated.saved
        self._differentiated = annotated.differentiated
        sums = gradient_sums(annotated.graph, annotated.differentiated)
        # Slices of sparse gradients are put together, not added.
        self._counts = {tensor: n for tensor, n in sums.items() if tensor not in annotated.sparse}
        self._costs = OperatorCosts(annotated.mesh, annotated.cost)
        self._sums: dict[Hashable, ConfigurationCosts] = {}
        self._alone: dict[Hashable, ConfigurationCosts] = {}
        self._with_sums: dict[tuple[ConfigurationCosts, ...], ConfigurationCosts] = {}

    def of(self, operator: Operator) -> ConfigurationCosts:
        """Of computing an operator, and of the sums of gradients that arrive at its outputs."""
        key = self._key(operator)
        alone = self._alone.get(key)
        if alone is None:
            alone = self._alone[key] = self._computing(operator)
        outputs = (TensorName(operator.name, number) for number in range(len(operator.outputs)))
        added = [tensor for tensor in outputs if tensor in self._counts]
        parts = alone, *(self._sum(operator, tensor) for tensor in added)
        if parts not in self._with_sums:
            self._with_sums[parts] = ConfigurationCosts.sum(parts)
        return self._with_sums[parts]

    def _key(self, operator: Operator) -> Hashable:
        """What the costs of computing an operator depend on, as small values."""
        name = operator.name
        differentiated = len(self._differentiated.get(name, ()))
        key = self._slots.alike[name], differentiated, self._repeats.get(name)
        if self._saved.is_plain:
            return key
        outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
        return key, tuple(map(self._saved.role, outputs)), self._saved.carried.get(name, ())

    def _computing(self, operator: Operator) -> ConfigurationCosts:
        name = operator.name
        outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
        once = self._costs.of(
            operator,
            self._derivations[name],
            self._slots.follower[name].assigned,
            len(self._differentiated.get(name, ())),
            self._saved.made,
            self._saved.carried.get(name, ()),
            self._choices[self._slots.node_of[name]].kept(name),
            frozenset(tensor for tensor in outputs if self._saved.role(tensor) == "edge"),
        )
        return ConfigurationCosts(once.memory, once.time * self._repeats.get(name, 1))

    def _sum(self, operator: Operator, tensor: TensorName) -> ConfigurationCosts:
        """What adding up the gradients of an output costs, which takes time alone."""
        spec, count = operator.value_spec(tensor.index), self._counts[tensor]
        made = self._slots.made(tensor, carries=True)
        repeats = self._repeats.get(operator.name, 1)
        key = spec.shape, spec.dtype, count, made, repeats
        if key not in self._sums:
            add = sum_operator(spec.shape, spec.dtype, count)
            derivation = derivation_of(add)
            index_of = [-1 if index is None else index for index in derivation.outputs[0]]
            assigned = split_dims(made.gradient.codes, self._axes, index_of)
            of_slot = self._costs.of(add, derivation, assigned, 0).time
            time = of_slot[made.of_option.slots] * repeats
            self._sums[key] = ConfigurationCosts(np.zeros_like(time), time)
        return self._sums[key]
