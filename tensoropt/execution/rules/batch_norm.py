"""Batch normalisation split over the batch or space, by global or local statistics.

Global statistics are those of the whole batch.

Each rank takes the statistics of its share; one collective brings all shares' to every rank, which
combines them (Chan, Golub and LeVeque 1979) and normalises with them. Backward each rank has its
share of two sums, which are the gradients by scale and offset; added up over the ranks, they make
the gradient by the images (Ioffe and Szegedy 2015, section 3). `batch_norm_kernels` has what a rank
computes.

Local statistics are those of a rank's shard: the kernel does it all, and its registered gradient.
The statistics that the operator returns are averages over the ranks, of which each has its share: a
partial sum, which is added up where something reads it (see `tensoropt.graph.batch_norm`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradients.custom_gradients import differentiated_as
from tensoropt.execution.rules.batch_norm_kernels import Kernels, kernels_for
from tensoropt.execution.rules.within import Shards, allreduce, total
from tensoropt.execution.world.world import World
from tensoropt.graph.batch_norm import LOCAL_STATISTICS
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.tdl import Derivation
from tensoropt.tensorflow_private import unrecorded_gradients

__all__ = ["fused_batch_norm"]


def fused_batch_norm(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """FusedBatchNorm in training.

    The variance that it returns has Bessel's correction by the whole batch's count, as the
    kernel's has; a local one by the shard's. No gradient passes the returned statistics: the
    kernel's has none, either.
    """
    channel = 1 if str(operator.attributes["data_format"]).startswith("NC") else -1
    of_channel = derivation.outputs[0][channel]
    axes = tuple(
        sorted(
            axis
            for number, splits in enumerate(configuration.splits)
            if number != of_channel
            for axis in splits
        )
    )
    if operator.attributes.get(LOCAL_STATISTICS):
        return _by_local_statistics(operator, inputs, world.mesh.pieces(axes))
    shape = derivation.input_shapes[0]
    images, scales, offsets = inputs[:3]
    layer = _Layer(world, operator, axes, prod(shape) // shape[channel], channel)
    kernels = layer.kernels(images[0])
    own = [kernels.statistics(tf.stop_gradient(x)) for x in images]
    means, variances = layer.combined(own)
    given = zip(images, scales, offsets, means, variances, strict=True)
    ys = [kernels.normalised(*each) for each in given]

    def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
        given = [*images, *scales, *offsets, *upstream]
        made = layer.gradients(kernels, upstream, images, scales, means, variances)

        def second(*upstream_of_gradients: tf.Tensor) -> list[Any]:
            return layer.second_gradients(given, upstream_of_gradients)

        return differentiated_as(made, given, second)

    outputs = differentiated_as(ys, [*images, *scales, *offsets], gradient)
    return [outputs, *_returned(operator, inputs, means, variances, layer.count)]


def _by_local_statistics(operator: Operator, inputs: Shards, pieces: int) -> Shards:
    """Each rank's shard by its own statistics, which are returned divided by their number."""
    kernel = getattr(tf.raw_ops, operator.type)
    made = [
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
    ys, *statistics = ([of_rank[n] for of_rank in made] for n in range(len(operator.outputs)))
    shares = [[value / pieces for value in values] for values in statistics[:4]]
    return [ys, *shares, *statistics[4:]]


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One normalisation that is split.

    Attributes:
        world: the ranks emitted here.
        operator: the script's.
        axes: of the mesh, over which its statistics are combined.
        count: of the whole batch's values in a channel.
        channel: the dimension of the channels.
    """

    world: World
    operator: Operator
    axes: tuple[int, ...]
    count: int
    channel: int

    @property
    def epsilon(self) -> float:
        """Is added to variances."""
        return float(str(self.operator.attributes["epsilon"]))

    def kernels(self, x: tf.Tensor) -> Kernels:
        """The kernels for a rank's shard ``x``."""
        return kernels_for(
            x,
            str(self.operator.attributes["data_format"]),
            self.epsilon,
            self.count,
            self.world.mesh.pieces(self.axes),
            says=self.world.is_first_of_machine,
        )

    def combined(self, own: list[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Means and variances of the whole batch on every rank: the same bits, whatever kernels
        ranks have, since what a script keeps of them is one value for all."""
        source = Layout((self.axes, (), ()))
        step = ReshardStep("allgather", self.axes, source, Layout.replicated(3), from_dim=0)
        means, variances = [], []
        for every in self.world.reshard(own, (step,), f"{self.operator.name}/statistics"):
            of_shards, within = tf.unstack(every, axis=1)
            mean = tf.reduce_mean(of_shards, 0)
            between = tf.reduce_mean(tf.math.squared_difference(of_shards, mean), 0)
            means.append(mean)
            variances.append(tf.reduce_mean(within, 0) + between)
        return means, variances

    def gradients(
        self,
        kernels: Kernels,
        upstream: Sequence[tf.Tensor],
        images: Sequence[tf.Tensor],
        scales: Sequence[tf.Tensor],
        means: Sequence[tf.Tensor],
        variances: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """By the images, then each rank's share of those by scales, then of those by offsets."""
        known = list(zip(images, scales, means, variances, strict=True))
        own = [kernels.sums(dy, *each) for dy, each in zip(upstream, known, strict=True)]
        label = f"{self.operator.name}/gradient"
        totals = allreduce(self.world, [sums for sums, _ in own], self.axes, "sum", label)
        by_images = [
            kernels.gradient(given, *each, total)
            for (_, given), each, total in zip(own, known, totals, strict=True)
        ]
        by_scales, by_offsets = zip(*(tf.unstack(sums) for sums, _ in own), strict=True)
        return [*by_images, *by_scales, *by_offsets]

    def second_gradients(
        self, given: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor]
    ) -> list[Any]:
        """Gradients of `gradients`, by TensorFlow from the normalisation in plain operators.

        Args:
            given: images, scales, offsets and the gradients that arrived, on all ranks.
            upstream: gradients by what `gradients` made of them.
        """
        again = [tf.identity(each) for each in given]
        width = len(given) // 4
        images, scales, offsets, arrived = (
            again[place * width : (place + 1) * width] for place in range(4)
        )
        outputs = self._spelled_out(images, scales, offsets)
        sources = [*images, *scales, *offsets]
        first = unrecorded_gradients(outputs, sources, grad_ys=arrived)
        return list(unrecorded_gradients(first, again, grad_ys=list(upstream)))

    def _spelled_out(
        self, images: list[tf.Tensor], scales: list[tf.Tensor], offsets: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """The normalisation, differentiable as often as one likes."""
        means = self._averages(images, "mean")
        centred = [x - m for x, m in zip(images, means, strict=True)]
        variances = self._averages([tf.square(x) for x in centred], "variance")
        found = []
        for x, variance, scale, offset in zip(centred, variances, scales, offsets, strict=True):
            wide = variance.shape
            factor = tf.math.rsqrt(variance + self.epsilon)
            found.append(x * (factor * tf.reshape(scale, wide)) + tf.reshape(offset, wide))
        return found

    def _averages(self, shards: list[tf.Tensor], label: str) -> list[tf.Tensor]:
        """Mean over everything but the channels, kept as dimensions of 1."""
        rank = len(shards[0].shape)
        others = [d for d in range(rank) if d != self.channel % rank]
        sums = [tf.reduce_sum(shard, others, keepdims=True) for shard in shards]
        name = f"{self.operator.name}/{label}"
        sums = total(self.world, sums, self.axes, name, gradient_is_partial=True)
        return [value / self.count for value in sums]


def _averaging_factor(operator: Operator) -> float:
    return float(str(operator.attributes.get("exponential_avg_factor", 1.0)))


def _returned(
    operator: Operator,
    inputs: Shards,
    means: list[tf.Tensor],
    variances: list[tf.Tensor],
    count: int,
) -> Shards:
    """Running mean and variance, then what the kernel reserves for its own gradient."""
    factor = _averaging_factor(operator)
    corrected = [v * (count / max(count - 1, 1)) for v in variances]
    running = [means, corrected]
    if factor != 1.0:
        running = [
            [(1 - factor) * old + factor * new for old, new in zip(olds, news, strict=True)]
            for olds, news in zip(inputs[3:5], running, strict=True)
        ]
    found = [*running, means, variances]
    reserved = [[tf.zeros([0], v.dtype) for v in variances] for _ in operator.outputs[5:]]
    return [*([tf.stop_gradient(v) for v in each] for each in found), *reserved]
