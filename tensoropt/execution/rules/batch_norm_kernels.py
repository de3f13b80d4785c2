"""A rank's part of a split batch normalisation: by operators in C++, or by TensorFlow's.

Both compute the same, up to rounding. A rank uses either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from tensoropt.execution.native.library import batch_norm_operators

__all__ = ["Kernels", "kernels_for"]


class Kernels(Protocol):
    """The kernels of one layer on one rank. Statistics are float32, variances are uncorrected."""

    def statistics(self, x: tf.Tensor) -> tf.Tensor:
        """[1, 2, channels]: mean and variance of a shard. No gradient passes."""

    def normalised(
        self,
        x: tf.Tensor,
        scale: tf.Tensor,
        offset: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
    ) -> tf.Tensor:
        """A shard by mean and variance of all shards."""

    def sums(
        self, dy: tf.Tensor, x: tf.Tensor, scale: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[2, channels], a shard's gradients by scale and by offset; and what `gradient` takes."""

    def gradient(
        self,
        given: tf.Tensor,
        x: tf.Tensor,
        scale: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
        sums: tf.Tensor,
    ) -> tf.Tensor:
        """By ``x``, from what `sums` has given and from all shards' sums."""


def kernels_for(
    x: tf.Tensor, data_format: str, epsilon: float, count: int, pieces: int, *, says: bool
) -> Kernels:
    """The kernels of a layer.

    Args:
        x: a shard of what is normalised.
        data_format: of it, such as "NHWC".
        epsilon: is added to variances.
        count: of the whole batch's values in a channel.
        pieces: number of shards.
        says: whether this process tells why it has no operators in C++.
    """
    if x.dtype == tf.float32 and data_format.endswith("C"):
        operators = batch_norm_operators(says=says)
        if operators is not None:
            return _Native(operators, epsilon, count)
    return _TensorFlow(data_format, epsilon, count, pieces)


@dataclass(frozen=True, slots=True, eq=False)
class _Native:
    """One pass over the shard for each; see ``batch_norm.cc``."""

    operators: Any
    epsilon: float
    count: int

    def statistics(self, x: tf.Tensor) -> tf.Tensor:
        return self.operators.tensor_opt_batch_norm_statistics(x=x)

    def normalised(
        self,
        x: tf.Tensor,
        scale: tf.Tensor,
        offset: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
    ) -> tf.Tensor:
        return self.operators.tensor_opt_batch_norm(
            x=x, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=self.epsilon
        )

    def sums(
        self, dy: tf.Tensor, x: tf.Tensor, scale: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        del scale
        made = self.operators.tensor_opt_batch_norm_sums(
            dy=dy, x=x, mean=mean, variance=variance, epsilon=self.epsilon
        )
        return made, dy

    def gradient(
        self,
        given: tf.Tensor,
        x: tf.Tensor,
        scale: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
        sums: tf.Tensor,
    ) -> tf.Tensor:
        return self.operators.tensor_opt_batch_norm_gradient(
            dy=given,
            x=x,
            scale=scale,
            mean=mean,
            variance=variance,
            sums=sums,
            epsilon=self.epsilon,
            count=self.count,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _TensorFlow:
    """The fused kernels: they normalise for the statistics' sake, and take statistics for
    constants in the gradient, which a second normalisation corrects."""

    data_format: str
    epsilon: float
    count: int
    pieces: int

    def statistics(self, x: tf.Tensor) -> tf.Tensor:
        count = self.count // self.pieces
        channel = 1 if self.data_format.startswith("NC") else -1
        unused = tf.ones([x.shape[channel]], tf.float32)
        made = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=unused, offset=unused, mean=[], variance=[], **self._attributes
        )
        variance = made.batch_variance * (max(count - 1, 1) / count)
        return tf.stack([made.batch_mean, variance])[tf.newaxis]

    def normalised(
        self,
        x: tf.Tensor,
        scale: tf.Tensor,
        offset: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
    ) -> tf.Tensor:
        return tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=offset,
            mean=mean,
            variance=variance,
            is_training=False,
            **self._attributes,
        ).y

    def sums(
        self, dy: tf.Tensor, x: tf.Tensor, scale: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        made = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=dy,
            x=x,
            scale=scale,
            reserve_space_1=mean,
            reserve_space_2=variance,
            reserve_space_3=[],
            is_training=False,
            **self._attributes,
        )
        return tf.stack([made.scale_backprop, made.offset_backprop]), made.x_backprop

    def gradient(
        self,
        given: tf.Tensor,
        x: tf.Tensor,
        scale: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
        sums: tf.Tensor,
    ) -> tf.Tensor:
        both = tf.math.rsqrt(variance + self.epsilon) * scale / -self.count * sums
        return given + self.normalised(x, both[0], both[1], mean, variance)

    @property
    def _attributes(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "data_format": self.data_format}
