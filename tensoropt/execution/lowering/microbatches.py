"""A step of several microbatches on the ranks: how its own operators lie, and what they compute.

Each microbatch is laid out as the plan lays out the batch. Sums over microbatches stay on each rank
until the last microbatch. So gradients of weights are summed over devices once a step, and weights
are gathered once.
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
) -> Strategy:
    """The strategy of a step that is computed microbatch by microbatch; its graph is the step.

    Args:
        strategy: of the step of the whole batch.
        roots: operators that are run or fetched.
        batch_placeholders: placeholders whose first dimension is the batch.
        microbatches: how many, at least 2.

    Raises:
        GraphError: if the step cannot be computed so, or its batch does not divide.
    """
    cut = cut_along_batch(strategy.graph, batch_placeholders, microbatches)

    def slot(copied: Operator, number: int) -> Slot:
        whole = strategy.configurations[copied.copy_of]
        derivation = derivation_under(copied, whole)
        return input_slot(derivation, fitted(whole, derivation, strategy.mesh), number)

    graph = accumulated(cut, roots, slot)
    makes_again = frozenset(cut.indices)
    if differentiates_gradients(strategy.graph):
        makes_again = frozenset()
    return PinnedStrategy(
        graph, strategy.mesh, strategy.configurations, batch_placeholders, makes_again
    )


class PinnedStrategy(Strategy):
    """Operators are configured as those that they are copies of; the rest lies as what it is of.

    Args:
        graph: of a step of several microbatches, or of a stage of one.
        mesh: the devices.
        configurations: of the script's operators.
        batch_placeholders: the script's.
        makes_again: names of the script's operators whose copies keep what is planned for the
            backward pass; all others keep all.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        configurations: Mapping[str, Configuration],
        batch_placeholders: frozenset[str],
        makes_again: frozenset[str] = frozenset(),
    ) -> None:
        planned = {
            operator.name: configurations[operator.script_name]
            if operator.copy_of in makes_again
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
        """Lay out a received tensor as its first reader in the script wants it."""
        slot = _replicated(operator)
        for reader, number in readers:
            if reader.gradient is None and reader.type not in TYPES_OF_MICROBATCHES:
                slot = super().input_slot(reader, number)
                break
        self._outputs[TensorName(operator.name, 0)] = slot

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
                reader, place = cast("tuple[str, int]", attributes["reader"])
                slot = super().input_slot(self.graph[reader], place)
                dim = cast("int | None", attributes["dim"])
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
            for place in range(number * count, (number + 1) * count):
                self._inputs[operator.name, place] = slot


def _dual(slot: Slot) -> Slot:
    return Slot(slot.gradient, slot.forward)


def _replicated(operator: Operator) -> Slot:
    layout = Layout.replicated(len(operator.outputs[0].shape))
    return Slot(layout, layout)


def _whole_along(slot: Slot, dim: int) -> Slot:
    """The slot, with one dimension whole on every device."""
    forward, gradient = (
        replace(layout, dims=(*layout.dims[:dim], (), *layout.dims[dim + 1 :]))
        for layout in (slot.forward, slot.gradient)
    )
    return Slot(forward, gradient)


def whole_region(operator: Operator, region: tuple[slice, ...]) -> tuple[slice, ...]:
    """A region of a fed or drawn tensor, as a region of the whole batch.

    Args:
        operator: of the whole batch, or of a microbatch.
        region: of its own output.
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
    """Per rank the outputs of an operator of `TYPES_OF_MICROBATCHES`.

    Args:
        operator: of a step of several microbatches.
        inputs: the shards of each of its inputs, one per rank.
    """
    made = _MADE[operator.type]
    with tf.name_scope(operator.name):
        return [made(operator, list(own)) for own in zip(*inputs, strict=True)]


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
    return [shard] if dim is None else [tf.split(shard, count, dim)[cast("int", number)]]


def _sum(operator: Operator, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    del operator
    return [tf.add(*inputs)]


def _result(operator: Operator, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    dims = cast("tuple[int | None, ...]", operator.attributes["dims"])
    scales = cast("tuple[float | None, ...]", operator.attributes["scales"])
    count = len(inputs) // len(operator.outputs)
    found = []
    for number, (dim, scale) in enumerate(zip(dims, scales, strict=True)):
        parts = inputs[number * count : (number + 1) * count]
        if dim is not None:
            found.append(tf.concat(parts, dim))
        elif scale is None:
            found.append(tf.identity(parts[0]))
        else:
            total = tf.add_n(parts)
            found.append(total if scale == 1 else total * tf.constant(scale, total.dtype))
    return found


_MADE = {BOUNDARY: _boundary, PART: _part, SUM: _sum, RESULT: _result}
