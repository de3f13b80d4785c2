"""Batch normalisation split over the batch or space, by global or local statistics.

Global statistics are those of the whole batch. Each rank computes the statistics of its shard. One
collective sends them to every rank, which combines them (Chan, Golub and LeVeque 1979) and
normalises with the result. In the backward pass each rank computes its shares of two sums, which
are the gradients by scale and by offset. Their totals over the ranks also determine the gradient by
the images (Ioffe and Szegedy 2015, section 3). `batch_norm_kernels` has a rank's computations.

Local statistics are those of a rank's shard. TensorFlow's kernel and its registered gradient do all
work. The operator returns averages over the ranks: each rank returns its share as a partial sum,
which is added up when an operator reads it (`tensoropt.graph.batch_norm`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradient_functions.custom_gradients import differentiated_as
from tensoropt.execution.rules.batch_norm_kernels import Kernels, kernels_for
from tensoropt.execution.rules.within import Shards, SplitOperator, allreduce, total
from tensoropt.execution.world.world import World
from tensoropt.graph.batch_norm import LOCAL_STATISTICS
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import input_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.tensorflow_private import unrecorded_gradients

__all__ = ["fused_batch_norm"]


def fused_batch_norm(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower FusedBatchNorm in training.

    As in TensorFlow's kernel, the returned variance has Bessel's correction, by the count of the
    whole batch (for local statistics, of the shard), and the returned statistics have no gradient.
    """
    world, operator, derivation = split.world, split.operator, split.derivation
    channel = 1 if str(operator.attributes["data_format"]).startswith("NC") else -1
    of_channel = derivation.outputs[0][channel]
    axes = tuple(
        sorted(
            axis
            for number, splits in enumerate(split.configuration.splits)
            if number != of_channel
            for axis in splits
        )
    )
    if operator.attributes.get(LOCAL_STATISTICS):
        return _by_local_statistics(operator, inputs, world.mesh.pieces(axes))
    shape = derivation.input_shapes[0]
    images, scales, offsets = inputs[:3]
    layout = input_slot(derivation, split.configuration, 0).forward
    shares = _shares(world, layout, shape, axes)
    layer = _Layer(world, operator, axes, prod(shape) // shape[channel], channel, shares)
    kernels = layer.kernels(images[0])
    of_shards = [kernels.statistics(tf.stop_gradient(x)) for x in images]
    means, variances = layer.combined(of_shards)
    per_rank = zip(images, scales, offsets, means, variances, strict=True)
    ys = [kernels.normalised(*operands) for operands in per_rank]

    def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
        operands = [*images, *scales, *offsets, *upstream]
        gradients = layer.gradients(kernels, upstream, images, scales, means, variances)

        def second(*upstream_of_gradients: tf.Tensor) -> list[Any]:
            return layer.second_gradients(operands, upstream_of_gradients)

        return differentiated_as(gradients, operands, second)

    outputs = differentiated_as(ys, [*images, *scales, *offsets], gradient)
    return [outputs, *_returned(operator, inputs, means, variances, layer.count)]


def _by_local_statistics(operator: Operator, inputs: Shards, pieces: int) -> Shards:
    """Normalise each rank's shard by its own statistics; return these divided by their number."""
    kernel = getattr(tf.raw_ops, operator.type)
    results = [
        kernel(
            x=x,
            scale=scale,
            offset=offset,
            mean=mean,
            variance=variance,
            epsilon=float(str(operator.attributes["epsilon"])),
            exponential_avg_factor=_averaging_factor(operator),
            data_format=str(operator.attributes["data_format"]),
        )
        for x, scale, offset, mean, variance in zip(*inputs, strict=True)
    ]
    ys, *statistics = ([of_rank[n] for of_rank in results] for n in range(len(operator.outputs)))
    shares = [[value / pieces for value in values] for values in statistics[:4]]
    return [ys, *shares, *statistics[4:]]


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A normalisation whose images are split over ranks.

    Attributes:
        world: the ranks emitted here.
        operator: the script's operator.
        axes: the mesh axes over which statistics are combined.
        count: the number of values in a channel of the whole batch.
        channel: the dimension of the channels.
        shares: per rank emitted here the share of each shard of its group in these values; None if
            all shards are equal.
    """

    world: World
    operator: Operator
    axes: tuple[int, ...]
    count: int
    channel: int
    shares: list[list[float]] | None

    @property
    def epsilon(self) -> float:
        """The number that is added to variances."""
        return float(str(self.operator.attributes["epsilon"]))

    def kernels(self, x: tf.Tensor) -> Kernels:
        """The kernels for a rank's shard ``x``."""
        return kernels_for(
            x,
            str(self.operator.attributes["data_format"]),
            self.epsilon,
            self.count,
            says=self.world.is_first_of_machine,
        )

    def combined(self, of_ranks: list[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return means and variances of the whole batch on every rank, from each shard's.

        They have the same bits on all ranks, whatever kernels the ranks have, since variables that
        store them must be equal on all ranks.
        """
        source = Layout((self.axes, (), ()))
        step = ReshardStep("allgather", self.axes, source, Layout.replicated(3), from_dim=0)
        means, variances = [], []
        label = f"{self.operator.name}/statistics"
        for position, gathered in enumerate(self.world.reshard(of_ranks, (step,), label)):
            of_shards, within = tf.unstack(gathered, axis=1)
            average = self._average(position)
            mean = average(of_shards)
            means.append(mean)
            between = average(tf.math.squared_difference(of_shards, mean))
            variances.append(average(within) + between)
        return means, variances

    def _average(self, position: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function that averages the values of all shards, [shards, channels]."""
        if self.shares is None:
            return lambda values: tf.reduce_mean(values, 0)
        shares = tf.constant(self.shares[position], tf.float32)[:, tf.newaxis]
        return lambda values: tf.reduce_sum(values * shares, 0)

    def gradients(
        self,
        kernels: Kernels,
        upstream: Sequence[tf.Tensor],
        images: Sequence[tf.Tensor],
        scales: Sequence[tf.Tensor],
        means: Sequence[tf.Tensor],
        variances: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """Return gradients by images, and ranks' shares of gradients by scales, then by offsets."""
        operands = list(zip(images, scales, means, variances, strict=True))
        shares = [kernels.sums(dy, *xs) for dy, xs in zip(upstream, operands, strict=True)]
        label = f"{self.operator.name}/gradient"
        totals = allreduce(self.world, [sums for sums, _ in shares], self.axes, "sum", label)
        by_images = [
            kernels.gradient(passed, *xs, total)
            for (_, passed), xs, total in zip(shares, operands, totals, strict=True)
        ]
        by_scales, by_offsets = zip(*(tf.unstack(sums) for sums, _ in shares), strict=True)
        return [*by_images, *by_scales, *by_offsets]

    def second_gradients(
        self, operands: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor]
    ) -> list[Any]:
        """Differentiate `gradients`. TensorFlow does, from the normalisation in plain operators.

        Args:
            operands: images, scales, offsets and the gradients that arrived, on all ranks.
            upstream: the gradients by the results of `gradients`.
        """
        copies = [tf.identity(each) for each in operands]
        width = len(operands) // 4
        images, scales, offsets, arrived = (
            copies[kind * width : (kind + 1) * width] for kind in range(4)
        )
        outputs = self._spelled_out(images, scales, offsets)
        sources = [*images, *scales, *offsets]
        first = unrecorded_gradients(outputs, sources, grad_ys=arrived)
        return list(unrecorded_gradients(first, copies, grad_ys=list(upstream)))

    def _spelled_out(
        self, images: list[tf.Tensor], scales: list[tf.Tensor], offsets: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Normalise by plain operators, which can be differentiated any number of times."""
        means = self._averages(images, "mean")
        centred = [x - m for x, m in zip(images, means, strict=True)]
        variances = self._averages([tf.square(x) for x in centred], "variance")
        ys = []
        for x, variance, scale, offset in zip(centred, variances, scales, offsets, strict=True):
            shape = variance.shape
            factor = tf.math.rsqrt(variance + self.epsilon)
            ys.append(x * (factor * tf.reshape(scale, shape)) + tf.reshape(offset, shape))
        return ys

    def _averages(self, shards: list[tf.Tensor], label: str) -> list[tf.Tensor]:
        """Average over all dimensions but the channels; they stay as dimensions of 1."""
        rank = len(shards[0].shape)
        dims = [d for d in range(rank) if d != self.channel % rank]
        sums = [tf.reduce_sum(shard, dims, keepdims=True) for shard in shards]
        name = f"{self.operator.name}/{label}"
        sums = total(self.world, sums, self.axes, name, gradient_is_partial=True)
        return [value / self.count for value in sums]


def _shares(
    world: World, layout: Layout, shape: Sequence[int], axes: tuple[int, ...]
) -> list[list[float]] | None:
    """Return `_Layer.shares` of images in a layout."""
    if not layout.uneven_dims(shape, world.mesh):
        return None
    shares = []
    for rank in world.ranks:
        members = world.mesh.group(rank, axes)
        counts = [prod(layout.shape_on(shape, world.mesh, member)) for member in members]
        shares.append([count / sum(counts) for count in counts])
    return shares


def _averaging_factor(operator: Operator) -> float:
    return float(str(operator.attributes.get("exponential_avg_factor", 1.0)))


def _returned(
    operator: Operator,
    inputs: Shards,
    means: list[tf.Tensor],
    variances: list[tf.Tensor],
    count: int,
) -> Shards:
    """Return running mean and variance, then the outputs that the kernel's gradient reads."""
    factor = _averaging_factor(operator)
    corrected = [v * (count / max(count - 1, 1)) for v in variances]
    running = [means, corrected]
    if factor != 1.0:
        running = [
            [(1 - factor) * old + factor * new for old, new in zip(olds, news, strict=True)]
            for olds, news in zip(inputs[3:5], running, strict=True)
        ]
    outputs = [*running, means, variances]
    reserved = [[tf.zeros([0], v.dtype) for v in variances] for _ in operator.outputs[5:]]
    return [*([tf.stop_gradient(v) for v in of_ranks] for of_ranks in outputs), *reserved]
