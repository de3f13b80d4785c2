"""Whose statistics a batch normalisation in training takes: the global batch's, or a device's own.

With "global" statistics a step equals one device's. "local" is what data parallelism with Horovod
does (Sergeev and Del Balso, 2018): each device normalises its shard by the mean and variance of
that shard. A plan may split over space as well, or not at all: a shard is what the plan makes it.

With Horovod each rank has moving averages of its own, too, and the first rank's are saved. Here a
variable has one value on all devices. So the mean and variance that an operator returns are
averages over the devices, made where something reads them; a moving average, being linear in them,
is the average of what Horovod's ranks have. The variance has Bessel's correction by a shard's
count: it estimates the spread within a shard, by which shards are normalised.
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
"""An attribute of a batch normalisation that takes local statistics. It is the plan's, and no part
of the script's graph: its digest is the same without."""

_TYPES = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_RETURNED = 3  # outputs: what is normalised, mean and variance; the others are for its gradient


def takes_statistics(operator: Operator) -> bool:
    """Whether an operator is a batch normalisation by the statistics of what it is given."""
    return operator.type in _TYPES and bool(operator.attributes.get("is_training", True))


def with_batch_norm(graph: Graph, batch_norm: BatchNorm) -> Graph:
    """The graph, in which batch normalisations take such statistics.

    Raises:
        GraphError: if they are to be local, and an operator of the script has a gradient of one
            made: it would have other statistics than the device's.
    """
    if batch_norm == "global":
        return graph
    local = {operator.name for operator in graph if takes_statistics(operator)}
    for operator in graph:
        for tensor in operator.inputs:
            if tensor.operator in local and tensor.index >= _RETURNED:
                raise GraphError(
                    "with batch_norm='local', tf.gradients or an optimizer differentiates batch "
                    "normalisation, so that every device does it with its own statistics. Got "
                    f"{operator.name!r}, a {operator.type} that reads {str(tensor)!r}; make that "
                    "gradient with tf.gradients, or leave batch_norm at 'global'."
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
