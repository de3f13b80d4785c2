"""Convolutions and pooling split over space: halos are exchanged, then the kernel runs unpadded.

A window that lies over the end of a device's shard reads its neighbours'. So each split dimension
is exchanged, one after the other (then the corners come along), and the other dimensions are
padded as the operator asks; the kernel finds all that its windows read and pads nothing itself.
The gradient goes back the same way: a halo's is added to its owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.operations.tensors import padded
from tensoropt.execution.edge import dual_reshard
from tensoropt.execution.rules.within import Rule, Shards
from tensoropt.execution.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange
from tensoropt.tdl import Derivation
from tensoropt.tdl.ops.windows import windows
from tensoropt.tensorflow_private import op_def_registry

__all__ = ["average_pool", "convolution", "max_pool", "transposed_convolution"]

_KEPT = ("strides", "dilations", "data_format", "use_cudnn_on_gpu", "ksize", "rates")


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One spatial dimension of windows that go from a large tensor to a small one.

    Attributes:
        dim: its number in both tensors.
        axes: the mesh axes that split it.
        large: its extent in the large tensor.
        small: the number of windows.
        stride: between windows.
        span: of a window, dilated.
        before: padding before the large tensor's first element.
    """

    dim: int
    axes: tuple[int, ...]
    large: int
    small: int
    stride: int
    span: int
    before: int

    def reach(self, count: int) -> int:
        """Elements from the first of the first to the last of the last of ``count`` windows."""
        return (count - 1) * self.stride + self.span

    def read(self, mesh: Mesh, fill: float) -> Exchange | None:
        """Where the windows of each shard of the small tensor read; None if in its own shard."""
        shards = mesh.pieces(self.axes)
        count, extent = self.small // shards, self.large // shards
        starts = tuple(k * count * self.stride - self.before for k in range(shards))
        return _exchange(self, extent, starts, self.reach(count), fill)

    def written(self, mesh: Mesh) -> tuple[tuple[int, ...], int]:
        """Which windows lie over each shard of the large tensor: the first, and how many."""
        shards = mesh.pieces(self.axes)
        extent = self.large // shards
        firsts = [
            -((self.span - 1 - self.before - k * extent) // self.stride) for k in range(shards)
        ]
        ends = [((k + 1) * extent - 1 + self.before) // self.stride + 1 for k in range(shards)]
        count = max(1, *(end - first for first, end in zip(firsts, ends, strict=True)))
        return tuple(firsts), count


def _exchange(
    dimension: _Dimension, extent: int, starts: tuple[int, ...], length: int, fill: float = 0
) -> Exchange | None:
    if length == extent and all(start == k * extent for k, start in enumerate(starts)):
        return None
    return Exchange(dimension.axes, dimension.dim, extent, starts, length, fill)


def _dimensions(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    large: tuple[int, ...],
    small: tuple[int, ...],
    kernel: tuple[int, ...],
) -> list[_Dimension]:
    attributes = operator.attributes
    dilations = attributes.get("dilations", attributes.get("rates", ()))
    lie = windows(
        large,
        small,
        kernel,
        _strides(operator),
        _text(attributes["padding"]),
        data_format=_text(attributes.get("data_format", "NHWC")),
        dilations=_numbers(dilations),
        explicit_paddings=_numbers(attributes.get("explicit_paddings", ())),
    )
    assert lie is not None, "other windows have no indices to split"
    found = []
    for dim, size, stride, dilation, before in zip(
        lie.spatial, kernel, lie.strides, lie.dilations, lie.before, strict=True
    ):
        index = derivation.outputs[0][dim]
        axes = () if index is None else configuration.splits[index]
        span = (size - 1) * dilation + 1
        found.append(_Dimension(dim, axes, large[dim], small[dim], stride, span, before))
    return found


def _windows_of(
    world: World,
    shards: list[tf.Tensor],
    dimensions: list[_Dimension],
    label: str,
    fill: float = 0,
) -> list[tf.Tensor]:
    """What the windows of each rank's part of the output read, padding included."""
    for dimension in dimensions:
        if not dimension.axes:
            dim, before = dimension.dim, dimension.before
            more = max(dimension.reach(dimension.small), dimension.large + before) - dimension.large
            shards = [padded(x, dim, before, x.shape.as_list()[dim] + more, fill) for x in shards]
    steps = [d.read(world.mesh, fill) for d in dimensions if d.axes]
    return _exchanged(world, shards, [step for step in steps if step is not None], label)


def _exchanged(
    world: World, shards: list[tf.Tensor], steps: list[Exchange], label: str
) -> list[tf.Tensor]:
    """The exchanges one after another; a gradient comes back through them as shares."""
    if not steps:
        return shards
    if not shards[0].dtype.is_floating:
        return world.reshard(shards, steps, f"{label}/halo")
    back = tuple(step.adjoint for step in reversed(steps))
    return dual_reshard(
        world, shards, tuple(steps), back, f"{label}/halo", f"{label}/halo/gradient"
    )


def convolution(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """Conv2D, Conv3D and DepthwiseConv2dNative, padded with zeros; Dilation2D, a maximum."""
    large, filters = derivation.input_shapes
    small = derivation.output_shapes[0]
    kernel = filters[: len(large) - 2]
    dimensions = _dimensions(operator, derivation, configuration, large, small, kernel)
    fill = _lowest(inputs[0][0].dtype) if operator.type == "Dilation2D" else 0
    data = _windows_of(world, inputs[0], dimensions, operator.name, fill)
    return [[_run(operator, x, w) for x, w in zip(data, inputs[1], strict=True)]]


def _pool(fill_of: Callable[[tf.DType], float]) -> Rule:
    def rule(
        world: World,
        operator: Operator,
        derivation: Derivation,
        configuration: Configuration,
        inputs: Shards,
    ) -> Shards:
        dimensions = _pool_dimensions(operator, derivation, configuration)
        fill = fill_of(inputs[0][0].dtype)
        data = _windows_of(world, inputs[0], dimensions, operator.name, fill)
        return [[_run(operator, x) for x in data]]

    return rule


def _lowest(dtype: tf.DType) -> float:
    """What no maximum is: every element is at least as large."""
    return float("-inf") if dtype.is_floating else int(dtype.min)


max_pool = _pool(_lowest)
_sum_pool = _pool(lambda _: 0)


def average_pool(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """AvgPool and AvgPool3D: a mean is of the elements inside the whole, padding is none."""
    dimensions = _pool_dimensions(operator, derivation, configuration)
    (averages,) = _sum_pool(world, operator, derivation, configuration, inputs)
    scaled = []
    for average, rank in zip(averages, world.ranks, strict=True):
        factor = np.ones([1] * average.shape.rank)
        for dimension in dimensions:
            factor = factor * _of_real_elements(dimension, world.mesh, rank, factor.ndim)
        all_real = bool(np.all(factor == 1))
        scaled.append(average if all_real else average * tf.constant(factor, average.dtype))
    return [scaled]


def _of_real_elements(dimension: _Dimension, mesh: Mesh, rank: int, ndim: int) -> Any:
    """Per window on a rank, its span over how much of it lies inside the whole."""
    count = dimension.small // mesh.pieces(dimension.axes)
    own = mesh.piece(rank, dimension.axes) * count + np.arange(count)
    first = own * dimension.stride - dimension.before
    inside = np.minimum(first + dimension.span, dimension.large) - np.maximum(first, 0)
    shape = [count if d == dimension.dim else 1 for d in range(ndim)]
    return (dimension.span / inside).reshape(shape)


def _pool_dimensions(
    operator: Operator, derivation: Derivation, configuration: Configuration
) -> list[_Dimension]:
    large, small = derivation.input_shapes[0], derivation.output_shapes[0]
    channel = 1 if _text(operator.attributes["data_format"]).startswith("NC") else len(large) - 1
    kernel = tuple(n for d, n in enumerate(_ksize(operator)) if d not in (0, channel))
    return _dimensions(operator, derivation, configuration, large, small, kernel)


def transposed_convolution(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """Conv2DBackpropInput and its like, as a script's own operators.

    Here the small tensor is read, in windows of the numbers of windows that lie over a shard of
    the large one. The kernel makes all that they write, of which a shard is cut out.
    """
    large, small = derivation.output_shapes[0], derivation.input_shapes[2]
    kernel = derivation.input_shapes[1][:-2]
    dimensions = _dimensions(operator, derivation, configuration, large, small, kernel)
    steps = []
    for dimension in dimensions:
        if dimension.axes:
            firsts, count = dimension.written(world.mesh)
            extent = dimension.small // world.mesh.pieces(dimension.axes)
            steps.append(_exchange(dimension, extent, firsts, count))
    gradients = _exchanged(
        world, inputs[2], [step for step in steps if step is not None], operator.name
    )
    made = []
    for position, rank in enumerate(world.ranks):
        given, filters = gradients[position], inputs[1][position]
        local = list(derivation.output_shapes[0])
        channel = 1 if _text(operator.attributes["data_format"]).startswith("NC") else -1
        read = given.shape.as_list()
        local[0] = read[0]
        local[channel] = filters.shape.as_list()[-2]
        for dimension in dimensions:
            local[dimension.dim] = dimension.reach(read[dimension.dim])
        whole = _run(operator, tf.constant(local, inputs[0][0].dtype), filters, given)
        made.append(_cut(whole, dimensions, world.mesh, rank))
    return [made]


def _cut(whole: tf.Tensor, dimensions: Sequence[_Dimension], mesh: Mesh, rank: int) -> tf.Tensor:
    """A rank's shard of what its windows write; what none of them writes is zero.

    All dimensions at once: their gradients, each as large as what windows write, are there at the
    same time.
    """
    shape = whole.shape.as_list()
    begin, size, paddings = [0] * len(shape), list(shape), [[0, 0] for _ in shape]
    for dimension in dimensions:
        dim, place = dimension.dim, mesh.piece(rank, dimension.axes)
        extent = dimension.large // mesh.pieces(dimension.axes)
        first = dimension.written(mesh)[0][place] if dimension.axes else 0
        lead = place * extent - (first * dimension.stride - dimension.before)
        begin[dim] = min(max(lead, 0), shape[dim])
        size[dim] = max(0, min(lead + extent, shape[dim])) - begin[dim]
        before = max(0, -lead)
        paddings[dim] = [before, extent - before - size[dim]]
    found = whole if size == shape else tf.slice(whole, begin, size)
    return tf.pad(found, paddings) if any(map(any, paddings)) else found


def _run(operator: Operator, *inputs: tf.Tensor) -> tf.Tensor:
    """The operator's kernel, without padding."""
    attributes: dict[str, Any] = {
        name: _plain(operator.attributes[name]) for name in _KEPT if name in operator.attributes
    }
    attributes["padding"] = "VALID"
    op_type = operator.type
    if op_type == "MaxPoolV2":
        op_type = "MaxPool"
        attributes |= {"ksize": list(_ksize(operator)), "strides": list(_strides(operator))}
    arguments = op_def_registry.get(op_type).input_arg
    named = {argument.name: x for argument, x in zip(arguments, inputs, strict=True)}
    return getattr(tf.raw_ops, op_type)(**named, **attributes)


def _ksize(operator: Operator) -> tuple[int, ...]:
    return _sizes(operator, "ksize", 1)


def _strides(operator: Operator) -> tuple[int, ...]:
    return _sizes(operator, "strides", 2)


def _sizes(operator: Operator, name: str, operand: int) -> tuple[int, ...]:
    """An attribute, which MaxPoolV2 has as an operand."""
    if name in operator.attributes:
        return _numbers(operator.attributes[name])
    value = operator.input_specs[operand].value
    assert value is not None, "split only where it is known"
    return tuple(int(n) for n in value)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in value)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
