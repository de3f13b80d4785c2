"""Rules of convolutions and pooling split over space: exchange halos, then run without padding.

A window that crosses the end of a device's shard reads the neighbours' shards. Therefore ranks
exchange halos along each split dimension, one dimension after the other (so corners are exchanged,
too). The other dimensions are padded as the operator asks. Then the kernel has all elements that
its windows read, and runs without padding. Backward, the gradient of a halo is sent to the rank
that owns it, and added there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.operations.tensors import padded
from tensoropt.execution.edges.edge import dual_reshard
from tensoropt.execution.rules.within import Rule, Shards, SplitOperator
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange
from tensoropt.parallel.resharding.windows import (
    WindowedDimension,
    channel_dim,
    window_sizes,
    windowed_dimensions,
)
from tensoropt.tensorflow_private import op_def_registry

__all__ = ["average_pool", "convolution", "max_pool", "transposed_convolution"]

_KEPT = ("strides", "dilations", "data_format", "use_cudnn_on_gpu", "ksize", "rates")


def _windows_of(split: SplitOperator, shards: list[tf.Tensor], fill: float = 0) -> list[tf.Tensor]:
    """Return the elements, with padding, that the windows of each rank's outputs read."""
    dimensions = windowed_dimensions(split.operator, split.derivation)
    for dimension in dimensions:
        if not _axes(dimension, split.configuration):
            dim, before = dimension.dim, dimension.before
            more = dimension.padded - dimension.large
            shards = [padded(x, dim, before, x.shape.as_list()[dim] + more, fill) for x in shards]
    return _exchanged(split, shards, _exchanges(split, dimensions, False, fill))


def _axes(dimension: WindowedDimension, configuration: Configuration) -> tuple[int, ...]:
    """The mesh axes that split a dimension."""
    return () if dimension.index is None else configuration.splits[dimension.index]


def _exchanges(
    split: SplitOperator, dimensions: list[WindowedDimension], transposed: bool, fill: float = 0
) -> list[Exchange]:
    """The exchanges, one per split dimension, that bring each rank the inputs of its windows."""
    axes_of = [(d, _axes(d, split.configuration)) for d in dimensions]
    steps = [d.exchange(split.world.mesh, axes, transposed, fill) for d, axes in axes_of if axes]
    return [step for step in steps if step is not None]


def _exchanged(
    split: SplitOperator, shards: list[tf.Tensor], steps: list[Exchange]
) -> list[tf.Tensor]:
    """Exchange halos step by step. Backward, the adjoint steps add up shares of the gradient."""
    if not steps:
        return shards
    label = f"{split.operator.name}/halo"
    if not shards[0].dtype.is_floating:
        return split.world.reshard(shards, steps, label)
    back = tuple(step.adjoint for step in reversed(steps))
    return dual_reshard(split.world, shards, tuple(steps), back, label, f"{label}/gradient")


def convolution(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower Conv2D, Conv3D, DepthwiseConv2dNative and Dilation2D.

    Padding is zero; for Dilation2D, which computes a maximum, it is the lowest value.
    """
    operator = split.operator
    fill = _lowest(inputs[0][0].dtype) if operator.type == "Dilation2D" else 0
    data = _windows_of(split, inputs[0], fill)
    return [[_run(operator, x, w) for x, w in zip(data, inputs[1], strict=True)]]


def _pool(fill_of: Callable[[tf.DType], float]) -> Rule:
    def rule(split: SplitOperator, inputs: Shards) -> Shards:
        data = _windows_of(split, inputs[0], fill_of(inputs[0][0].dtype))
        return [[_run(split.operator, x) for x in data]]

    return rule


def _lowest(dtype: tf.DType) -> float:
    """The least value of a dtype: the padding for a maximum."""
    return float("-inf") if dtype.is_floating else int(dtype.min)


max_pool = _pool(_lowest)
_sum_pool = _pool(lambda _: 0)


def average_pool(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower AvgPool and AvgPool3D. Means are taken over elements of the tensor, without padding."""
    world, dimensions = split.world, windowed_dimensions(split.operator, split.derivation)
    (averages,) = _sum_pool(split, inputs)
    scaled = []
    for average, rank in zip(averages, world.ranks, strict=True):
        factor = np.ones([1] * average.shape.rank)
        for dimension in dimensions:
            axes = _axes(dimension, split.configuration)
            factor = factor * _of_real_elements(dimension, axes, world.mesh, rank, factor.ndim)
        all_real = bool(np.all(factor == 1))
        scaled.append(average if all_real else average * tf.constant(factor, average.dtype))
    return [scaled]


def _of_real_elements(
    dimension: WindowedDimension, axes: tuple[int, ...], mesh: Mesh, rank: int, ndim: int
) -> Any:
    """For each window on a rank, its span divided by the extent of it that is not padding."""
    count = dimension.small // mesh.pieces(axes)
    windows = mesh.piece(rank, axes) * count + np.arange(count)
    first = windows * dimension.stride - dimension.before
    inside = np.minimum(first + dimension.span, dimension.large) - np.maximum(first, 0)
    shape = [count if d == dimension.dim else 1 for d in range(ndim)]
    return (dimension.span / inside).reshape(shape)


def transposed_convolution(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower Conv2DBackpropInput and similar operators of a script.

    They read the small tensor, and their windows write to the large one. A rank gets the elements
    of all windows that write to its shard. The kernel computes the outputs of these windows, from
    which the shard is cut.
    """
    operator, derivation = split.operator, split.derivation
    dimensions = windowed_dimensions(operator, derivation)
    gradients = _exchanged(split, inputs[2], _exchanges(split, dimensions, True))
    shards = []
    for position, rank in enumerate(split.world.ranks):
        small, filters = gradients[position], inputs[1][position]
        local = list(derivation.output_shapes[0])
        read = small.shape.as_list()
        local[0] = read[0]
        local[channel_dim(operator, len(local))] = filters.shape.as_list()[-2]
        for dimension in dimensions:
            local[dimension.dim] = dimension.reach(read[dimension.dim])
        whole = _run(operator, tf.constant(local, inputs[0][0].dtype), filters, small)
        shards.append(_cut(whole, dimensions, split.configuration, split.world.mesh, rank))
    return [shards]


def _cut(
    whole: tf.Tensor,
    dimensions: Sequence[WindowedDimension],
    configuration: Configuration,
    mesh: Mesh,
    rank: int,
) -> tf.Tensor:
    """Cut a rank's shard from the outputs of its windows; elements that no window writes are zero.

    One slice cuts all dimensions. If each had its own, the gradients of all slices, each as large
    as the outputs of the windows, would be in memory at the same time.
    """
    shape = whole.shape.as_list()
    begin, size, paddings = [0] * len(shape), list(shape), [[0, 0] for _ in shape]
    for dimension in dimensions:
        axes = _axes(dimension, configuration)
        dim, piece, shards = dimension.dim, mesh.piece(rank, axes), mesh.pieces(axes)
        extent = dimension.large // shards
        first = dimension.written(shards)[0][piece] if axes else 0
        lead = piece * extent - (first * dimension.stride - dimension.before)
        begin[dim] = min(max(lead, 0), shape[dim])
        size[dim] = max(0, min(lead + extent, shape[dim])) - begin[dim]
        before = max(0, -lead)
        paddings[dim] = [before, extent - before - size[dim]]
    shard = whole if size == shape else tf.slice(whole, begin, size)
    return tf.pad(shard, paddings) if any(map(any, paddings)) else shard


def _run(operator: Operator, *inputs: tf.Tensor) -> tf.Tensor:
    """Emit the operator's kernel, without padding."""
    attributes: dict[str, Any] = {
        name: _plain(operator.attributes[name]) for name in _KEPT if name in operator.attributes
    }
    attributes["padding"] = "VALID"
    op_type = operator.type
    if op_type == "MaxPoolV2":
        op_type = "MaxPool"
        sizes, strides = window_sizes(operator)
        attributes |= {"ksize": list(sizes), "strides": list(strides)}
    arguments = op_def_registry.get(op_type).input_arg
    named = {argument.name: x for argument, x in zip(arguments, inputs, strict=True)}
    return getattr(tf.raw_ops, op_type)(**named, **attributes)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
