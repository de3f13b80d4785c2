"""How the steps of a script are computed, whatever the devices."""

from __future__ import annotations

from dataclasses import dataclass, field

import tensorflow as tf

from tensoropt.execution.agreement.fed_values import CHECK_FEEDS_EVERY
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.parallel.buckets import BUCKET_SIZES, OVERLAPPED, BucketSizes, Compression
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["StepOptions"]


@dataclass(frozen=True, slots=True, eq=False)
class StepOptions:
    """The options of an executor.

    Attributes:
        batch_placeholders: names of the placeholders whose first dimension is the batch.
        seed: the job's seed, for random operators without one; the same on all ranks.
        config: the configuration of TensorFlow's session.
        batch_norm: whether batch normalisation takes statistics of the batch or of a shard of it.
        rewrites: the plan's substitutions, in their order.
        compression: how gradients travel between machines; None for as they are.
        buckets: the sizes of the buckets in which gradients of weights are summed; None for the
            sizes that fit the ranks.
        check_feeds_every: see `FedValues`.
        room_bytes: see `RankSession`.
    """

    batch_placeholders: frozenset[str]
    seed: int
    config: tf.compat.v1.ConfigProto = field(default_factory=tf.compat.v1.ConfigProto)
    batch_norm: BatchNorm = "global"
    rewrites: tuple[Rewrite, ...] = ()
    compression: Compression | None = None
    buckets: BucketSizes | None = None
    check_feeds_every: int = CHECK_FEEDS_EVERY
    room_bytes: int = 0

    def bucket_sizes(self, overlaps: bool) -> BucketSizes:
        """The sizes of buckets on ranks that compute during their collectives, or do not."""
        return self.buckets or (OVERLAPPED if overlaps else BUCKET_SIZES)
