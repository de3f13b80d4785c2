"""The operators that a step in microbatches adds: their layouts on the ranks, and their kernels.

Each microbatch has the layouts that the plan has for the batch. Every rank sums up its part over
microbatches until the last one. So gradients of weights are summed over devices once a step, and
weights are gathered once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

import tensorflow as tf

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration, fitted, input_slot
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy, derivation_under
from tensoropt.transformations.microbatches.accumulated import accumulated
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.microbatches.step_graph import (
    BOUNDARY,
    MICROBATCH,
    PART,
    RESULT,
    SUM,
)
from tensoropt.transformations.staged.stage_graph import TRANSFER

__all__ = [
    "TYPES_OF_MICROBATCHES",
    "PinnedStrategy",
    "in_microbatches",
    "microbatch_shards",
    "whole_region",
]

TYPES_OF_MICROBATCHES = frozenset({BOUNDARY, PART, RESULT, SUM})
"""Types of operators that only a step of several microbatches has."""


def in_microbatches(
    strategy: Strategy,
    roots: Collection[str],
    batch_placeholders: frozenset[str],
    microbatches: int,
    made: int | None = None,
) -> Strategy:
    """Return the strategy of a step in microbatches. The strategy's graph is that step.

    Args:
        strategy: the strategy of the step of the whole batch.
        roots: operators that are run or fetched.
        batch_placeholders: placeholders whose first dimension is the batch.
        microbatches: the number of microbatches, at least 2.
        made: see `BatchCut`; by default all of them.

    Raises:
        GraphError: if the step cannot be computed in microbatches, or its batch does not divide.
    """
    cut = cut_along_batch(strategy.graph, batch_placeholders, microbatches, made)

    def slot(copied: Operator, number: int) -> Slot:
        whole = strategy.configurations[copied.copy_of]
        derivation = derivation_under(copied, whole)
        return input_slot(derivation, fitted(whole, derivation, strategy.mesh), number)

    graph = accumulated(cut, roots, slot)
    keep_as_planned = frozenset(cut.indices)
    if differentiates_gradients(strategy.graph):
        keep_as_planned = frozenset()
    return PinnedStrategy(
        graph, strategy.mesh, strategy.configurations, batch_placeholders, keep_as_planned
    )


class PinnedStrategy(Strategy):
    """The strategy of a step in microbatches or of a stage.

    A copy of a script's operator has the operator's configuration. An operator that the
    transformation added has the layout of the tensor for which it stands.

    Args:
        graph: the step in microbatches, or a stage of it.
        mesh: the devices.
        configurations: the configurations of the script's operators.
        batch_placeholders: the script's placeholders whose first dimension is the batch.
        keep_as_planned: names of the script's operators whose copies keep for the backward pass
            only the tensors that the plan says. All other operators keep all tensors.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        configurations: Mapping[str, Configuration],
        batch_placeholders: frozenset[str],
        keep_as_planned: frozenset[str] = frozenset(),
    ) -> None:
        planned = {
            operator.name: configurations[operator.script_name]
            if operator.copy_of in keep_as_planned
            else replace(configurations[operator.script_name], kept="both")
            for operator in graph
            if operator.script_name in configurations
            and operator.type not in {*TYPES_OF_MICROBATCHES, TRANSFER}
        }
        fed = [op for op in graph if op.is_placeholder and op.script_name in batch_placeholders]
        super().__init__(graph, mesh, planned, frozenset(op.name for op in fed))
        self._inputs: dict[tuple[str, int], Slot] = {}
        self._outputs: dict[TensorName, Slot] = {}
        readers = graph.consumers()
        for operator in graph:
            if operator.type == TRANSFER:
                self._pin_received(operator, readers.get(TensorName(operator.name, 0), ()))
            elif operator.type in TYPES_OF_MICROBATCHES:
                self._pin(operator)

    def _pin_received(self, operator: Operator, readers: Sequence[tuple[Operator, int]]) -> None:
        """Lay out a received tensor as its first reader wants it; whole if none of them tells."""
        wanted = (self._wanted_by(reader, number) for reader, number in readers)
        slot = next((slot for slot in wanted if slot is not None), _replicated(operator))
        self._outputs[TensorName(operator.name, 0)] = slot

    def _wanted_by(self, reader: Operator, number: int) -> Slot | None:
        """Return the slot in which an operator wants to receive an input; None if any will do.

        A gradient that arrives at a tensor lies as it does where the tensor is made, but for
        partial sums.
        """
        tag = reader.gradient
        if tag is not None:
            arriving = [None] * len(tag.ys) + [
                y for y, gradient in zip(tag.ys, tag.grad_ys, strict=True) if gradient is not None
            ]
            y = arriving[number]
            return None if y is None else _whole_sums(_dual(self.output_slot(y)))
        if reader.type == BOUNDARY:
            return self._slot_at_boundary(reader)
        return None if reader.type in TYPES_OF_MICROBATCHES else super().input_slot(reader, number)

    def _slot_at_boundary(self, boundary: Operator) -> Slot:
        """Return the slot of the operators that read a boundary."""
        reader, number = cast("tuple[str, int]", boundary.attributes["reader"])
        slot = super().input_slot(self.graph[reader], number)
        dim = cast("int | None", boundary.attributes["dim"])
        return slot if dim is None else _whole_along(slot, dim)

    def input_slot(self, operator: Operator, number: int) -> Slot:
        """See `Strategy.input_slot`."""
        pinned = self._inputs.get((operator.name, number))
        return super().input_slot(operator, number) if pinned is None else pinned

    def output_slot(self, tensor: TensorName) -> Slot:
        """See `Strategy.output_slot`."""
        if tensor in self._outputs:
            return self._outputs[tensor]
        tag = self.graph[tensor.operator].gradient
        if tag is not None and tag.part == "dense" and tag.x in self._outputs:
            return _dual(self._outputs[tag.x])
        return super().output_slot(tensor)

    def _pin(self, operator: Operator) -> None:
        """Lay out an operator of `TYPES_OF_MICROBATCHES` as the tensor that it stands for."""
        attributes = operator.attributes
        count = len(operator.inputs) // len(operator.outputs)
        for number in range(len(operator.outputs)):
            first = operator.inputs[number * count]
            if operator.type == BOUNDARY:
                slot, dim = self._slot_at_boundary(operator), None
            elif operator.type == RESULT:
                slot = self.output_slot(first)
                dim = cast("tuple[int | None, ...]", attributes["dims"])[number]
            else:
                boundary, dim = attributes["boundary"], None
                slot = _replicated(operator)
                if boundary is not None:
                    slot = self._outputs[TensorName(str(boundary), 0)]
                slot = _dual(slot) if operator.type == SUM else slot
            slot = slot if dim is None else _whole_along(slot, dim)
            self._outputs[TensorName(operator.name, number)] = slot
            for input_number in range(number * count, (number + 1) * count):
                self._inputs[operator.name, input_number] = slot


def _dual(slot: Slot) -> Slot:
    return Slot(slot.gradient, slot.forward)


def _replicated(operator: Operator) -> Slot:
    layout = Layout.replicated(len(operator.outputs[0].shape))
    return Slot(layout, layout)


def _whole_sums(slot: Slot) -> Slot:
    """Return a slot whose tensor is no partial sum."""
    return Slot(Layout(slot.forward.dims), slot.gradient)


def _whole_along(slot: Slot, dim: int) -> Slot:
    """Return a slot with one dimension whole on every device."""
    forward, gradient = (
        replace(layout, dims=(*layout.dims[:dim], (), *layout.dims[dim + 1 :]))
        for layout in (slot.forward, slot.gradient)
    )
    return Slot(forward, gradient)


def whole_region(operator: Operator, region: tuple[slice, ...]) -> tuple[slice, ...]:
    """Return a region of a fed or drawn tensor as a region of the whole batch.

    Args:
        operator: the operator of the whole batch, or of a microbatch.
        region: the region of the operator's output.
    """
    if MICROBATCH not in operator.attributes:
        return region
    dim, number, _ = cast("tuple[int, int, int]", operator.attributes[MICROBATCH])
    first = number * operator.outputs[0].shape[dim]
    part = slice(first + region[dim].start, first + region[dim].stop)
    return (*region[:dim], part, *region[dim + 1 :])


def microbatch_shards(
    operator: Operator, inputs: Sequence[list[tf.Tensor]]
) -> list[list[tf.Tensor]]:
    """Emit an operator of `TYPES_OF_MICROBATCHES`. Return its outputs per rank.

    Args:
        operator: the operator.
        inputs: the shards of each input, one per rank.
    """
    emit = _EMIT[operator.type]
    with tf.name_scope(operator.name):
        return [emit(operator, list(of_rank)) for of_rank in zip(*inputs, strict=True)]


def _boundary(operator: Operator, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    del operator
    return [tf.identity(inputs[0])]


def _part(operator: Operator, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    (shard,) = inputs
    dim, number, count, scale = (
        operator.attributes[n] for n in ("dim", "number", "count", "scale")
    )
    if scale != 1:
        shard *= tf.constant(scale, shard.dtype)
    if dim is None:
        return [shard]
    # A split would make all parts, once for each microbatch.
    size = shard.shape.as_list()
    size[dim] //= count
    begin = [number * extent if n == dim else 0 for n, extent in enumerate(size)]
    return [tf.slice(shard, begin, size)]


def _sum(operator: Operator, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    del operator
    return [tf.add(*inputs)]


def _result(operator: Operator, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    dims = cast("tuple[int | None, ...]", operator.attributes["dims"])
    scales = cast("tuple[float | None, ...]", operator.attributes["scales"])
    count = len(inputs) // len(operator.outputs)
    results = []
    for number, (dim, scale) in enumerate(zip(dims, scales, strict=True)):
        parts = inputs[number * count : (number + 1) * count]
        if dim is not None:
            results.append(tf.concat(parts, dim))
        elif scale is None:
            results.append(tf.identity(parts[0]))
        else:
            total = tf.add_n(parts)
            results.append(total if scale == 1 else total * tf.constant(scale, total.dtype))
    return results


_EMIT = {BOUNDARY: _boundary, PART: _part, SUM: _sum, RESULT: _result}
