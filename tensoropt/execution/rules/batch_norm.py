"""Batch normalisation split over the batch or space: statistics are those of the whole batch."""

from __future__ import annotations

from math import prod

import tensorflow as tf

from tensoropt.execution.rules.within import Shards, total
from tensoropt.execution.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.tdl import Derivation

__all__ = ["fused_batch_norm"]


def fused_batch_norm(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """FusedBatchNorm in training, lowered to sums of means and variances.

    The variance that it returns has Bessel's correction by the whole batch's count, as the
    kernel's has. No gradient passes the returned statistics: the kernel's has none, either.
    """
    channel = 1 if str(operator.attributes["data_format"]).startswith("NC") else -1
    shape = derivation.input_shapes[0]
    of_channel = derivation.outputs[0][channel]
    axes = tuple(
        axis
        for number, splits in enumerate(configuration.splits)
        if number != of_channel
        for axis in splits
    )
    count = prod(shape) // shape[channel]
    images, scales, offsets = inputs[:3]
    means = _averages(world, images, axes, channel, count, f"{operator.name}/mean")
    centred = [x - m for x, m in zip(images, means, strict=True)]
    squares = [tf.square(x) for x in centred]
    variances = _averages(world, squares, axes, channel, count, f"{operator.name}/variance")
    epsilon = float(str(operator.attributes["epsilon"]))
    outputs = []
    for x, variance, scale, offset in zip(centred, variances, scales, offsets, strict=True):
        wide = variance.shape
        factor = tf.math.rsqrt(variance + epsilon) * tf.reshape(scale, wide)
        outputs.append(x * factor + tf.reshape(offset, wide))
    return [outputs, *_statistics(operator, inputs, means, variances, count)]


def _averages(
    world: World,
    shards: list[tf.Tensor],
    axes: tuple[int, ...],
    channel: int,
    count: int,
    label: str,
) -> list[tf.Tensor]:
    """Mean over everything but the channels, kept as dimensions of 1."""
    rank = len(shards[0].shape)
    others = [d for d in range(rank) if d != channel % rank]
    sums = [tf.reduce_sum(shard, others, keepdims=True) for shard in shards]
    sums = total(world, sums, axes, label, gradient_is_partial=True)
    return [value / count for value in sums]


def _statistics(
    operator: Operator,
    inputs: Shards,
    means: list[tf.Tensor],
    variances: list[tf.Tensor],
    count: int,
) -> Shards:
    """Running mean and variance, then what the kernel reserves for its own gradient."""
    factor = float(str(operator.attributes.get("exponential_avg_factor", 1.0)))
    flat_means = [tf.stop_gradient(tf.reshape(m, [-1])) for m in means]
    flat = [tf.stop_gradient(tf.reshape(v, [-1])) for v in variances]
    corrected = [v * (count / max(count - 1, 1)) for v in flat]
    running = [flat_means, corrected]
    if factor != 1.0:
        running = [
            [(1 - factor) * old + factor * new for old, new in zip(olds, news, strict=True)]
            for olds, news in zip(inputs[3:5], running, strict=True)
        ]
    reserved = [[tf.zeros([0], v.dtype) for v in flat] for _ in operator.outputs[5:]]
    return [*running, flat_means, flat, *reserved]
