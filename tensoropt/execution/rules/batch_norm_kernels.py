"""A rank's part of a split batch normalisation: by operators in C++, or by TensorFlow's.

Both compute the same results, up to rounding. Each rank may use either.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tensorflow as tf

from tensoropt.execution.native.library import batch_norm_operators

__all__ = ["Kernels", "kernels_for"]


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """The kernels of one layer on one rank: TensorFlow's fused kernels.

    The kernel that computes statistics also normalises. The gradient kernel treats statistics as
    constants; a second normalisation corrects its result. Statistics are float32, and variances are
    uncorrected.
    """

    data_format: str
    epsilon: float
    count: int

    def statistics(self, x: tf.Tensor) -> tf.Tensor:
        """Return mean and variance of a shard, [1, 2, channels]. They have no gradient."""
        channel = 1 if self.data_format.startswith("NC") else -1
        shape = x.shape.as_list()
        count = prod(shape) // shape[channel]
        unused = tf.ones([shape[channel]], tf.float32)
        outputs = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=unused, offset=unused, mean=[], variance=[], **self._attributes
        )
        variance = outputs.batch_variance * (max(count - 1, 1) / count)
        return tf.stack([outputs.batch_mean, variance])[tf.newaxis]

    def normalised(
        self,
        x: tf.Tensor,
        scale: tf.Tensor,
        offset: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
    ) -> tf.Tensor:
        """Normalise a shard by mean and variance of all shards."""
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
        """Return a shard's gradients by scale and by offset, [2, channels], and ``passed``.

        ``passed`` is an operand of `gradient`.
        """
        gradients = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=dy,
            x=x,
            scale=scale,
            reserve_space_1=mean,
            reserve_space_2=variance,
            reserve_space_3=[],
            is_training=False,
            **self._attributes,
        )
        by_parameters = tf.stack([gradients.scale_backprop, gradients.offset_backprop])
        return by_parameters, gradients.x_backprop

    def gradient(
        self,
        passed: tf.Tensor,
        x: tf.Tensor,
        scale: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
        sums: tf.Tensor,
    ) -> tf.Tensor:
        """Return the gradient by ``x``, from ``passed`` and the totals of all shards' `sums`."""
        both = tf.math.rsqrt(variance + self.epsilon) * scale / -self.count * sums
        return passed + self.normalised(x, both[0], both[1], mean, variance)

    @property
    def _attributes(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "data_format": self.data_format}


@dataclass(frozen=True, slots=True, eq=False)
class _Native(Kernels):
    """The operators in C++, each of which passes over the shard once; see ``batch_norm.cc``."""

    operators: Any

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
        sums = self.operators.tensor_opt_batch_norm_sums(
            dy=dy, x=x, mean=mean, variance=variance, epsilon=self.epsilon
        )
        return sums, dy

    def gradient(
        self,
        passed: tf.Tensor,
        x: tf.Tensor,
        scale: tf.Tensor,
        mean: tf.Tensor,
        variance: tf.Tensor,
        sums: tf.Tensor,
    ) -> tf.Tensor:
        return self.operators.tensor_opt_batch_norm_gradient(
            dy=passed,
            x=x,
            scale=scale,
            mean=mean,
            variance=variance,
            sums=sums,
            epsilon=self.epsilon,
            count=self.count,
        )


def kernels_for(
    x: tf.Tensor, data_format: str, epsilon: float, count: int, *, says: bool
) -> Kernels:
    """Return the kernels of a layer.

    Args:
        x: a shard of the images.
        data_format: the format of the images, such as "NHWC".
        epsilon: the number that is added to variances.
        count: the number of values in a channel of the whole batch.
        says: whether to write to the standard error why there are no operators in C++.
    """
    if x.dtype == tf.float32 and data_format.endswith("C"):
        operators = batch_norm_operators(says=says)
        if operators is not None:
            return _Native(data_format, epsilon, count, operators)
    return Kernels(data_format, epsilon, count)
