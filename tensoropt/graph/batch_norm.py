"""The statistics of batch normalisation in training: of the global batch, or of each device's
shard.

With "global" statistics a step gives the result of one device. "local" is what data parallelism
with Horovod does (Sergeev and Del Balso, 2018): each device normalises its shard by the mean and
variance of that shard. The shard depends on the plan, which may also split images in space, or
split nothing.

With Horovod each rank also has its own moving averages, and those of the first rank are saved. Here
a variable has the same value on all devices. So the returned mean and variance are averaged over
the devices when an operator reads them. A moving average depends linearly on them, so it equals the
average of the moving averages of Horovod's ranks. The variance has Bessel's correction by the size
of a shard, since shards are normalised by the variance within a shard.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tensoropt.errors import GraphError
from tensoropt.graph.operator import Graph, Operator

__all__ = ["BATCH_NORMS", "LOCAL_STATISTICS", "BatchNorm", "takes_statistics", "with_batch_norm"]

BatchNorm = Literal["global", "local"]
BATCH_NORMS: tuple[BatchNorm, ...] = ("global", "local")

LOCAL_STATISTICS = "_local_statistics"
"""Attribute of a batch normalisation that takes local statistics. It belongs to the plan: the
digest of the script's graph does not depend on it."""

_TYPES = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_RETURNED = 3  # outputs: the normalised tensor, mean and variance; the gradient reads the others


def takes_statistics(operator: Operator) -> bool:
    """Whether an operator is a batch normalisation that computes the statistics of its input."""
    return operator.type in _TYPES and bool(operator.attributes.get("is_training", True))


def with_batch_norm(graph: Graph, batch_norm: BatchNorm) -> Graph:
    """Return the graph with batch normalisations that take these statistics.

    Raises:
        GraphError: if they take local statistics, and an operator of the script computes the
            gradient of one. It would use other statistics than the device's.
    """
    if batch_norm == "global":
        return graph
    local = {operator.name for operator in graph if takes_statistics(operator)}
    for operator in graph:
        for tensor in operator.inputs:
            if tensor.operator in local and tensor.index >= _RETURNED:
                raise GraphError(
                    "with batch_norm='local', gradients of batch normalisation are computed by "
                    "tf.gradients or an optimizer, so that every device uses its own statistics. "
                    f"Got {operator.name!r}, a {operator.type} that reads {str(tensor)!r}; compute "
                    "that gradient with tf.gradients, or leave batch_norm at 'global'."
                )
    return Graph(
        {
            operator.name: replace(
                operator, attributes={**operator.attributes, LOCAL_STATISTICS: True}
            )
            if operator.name in local
            else operator
            for operator in graph
        }
    )
