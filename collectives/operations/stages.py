"""Operations one after another: on the arrays, or on the TensorFlow tensors, of a process's ranks.

This is what runs a resharding, whatever the transport. All operations between the first and the
last are one call from TensorFlow to Python, or none where every operation is local.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from collectives.buffers import Array
from collectives.group import Group
from collectives.operations import arrays as array_elements
from collectives.operations import tensors as tensor_elements
from collectives.operations.operation import Collective, Local
from collectives.sequence import in_active_sequence

__all__ = ["CollectiveStage", "LocalStage", "Place", "Stage", "on_arrays", "on_tensors"]


class Place(NamedTuple):
    """Where a rank stands in a group that needs no communication."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class LocalStage:
    """A local operation, and the place of each rank of this process."""

    operation: Local
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class CollectiveStage:
    """A collective, and the group of each rank of this process."""

    operation: Collective
    groups: tuple[Group, ...]


Stage = LocalStage | CollectiveStage


def on_tensors(
    tensors: Sequence[tf.Tensor],
    stages: Sequence[Stage],
    shape: Sequence[int | None],
    record: str,
    around: Callable[[Sequence[Array]], AbstractContextManager[Any]],
) -> list[tf.Tensor]:
    """The stages on one tensor per rank of this process, as operations of the default graph.

    Args:
        tensors: of one shape and dtype.
        stages: in order.
        shape: of each result; not needed where all stages are local.
        record: what this is, for the `collectives.sequence.Sequence` that it joins.
        around: a context for the host call, given the arrays before the first stage.

    Returns:
        The results in the order of the tensors. No gradient passes a collective.
    """
    if all(isinstance(stage, LocalStage) for stage in stages):
        for stage in stages:
            assert isinstance(stage, LocalStage)
            tensors = _local(stage, tensors, tensor_elements)
        return list(tensors)

    def host(*values: Array) -> list[Array]:
        with around(values):
            results = on_arrays(values, stages)
        # ascontiguousarray makes a scalar a vector
        return [np.asarray(result, order="C") for result in results]

    def build() -> list[tf.Tensor]:
        dtypes = [tensor.dtype for tensor in tensors]
        results = tf.numpy_function(host, list(tensors), dtypes, name="reshard")
        for result in results:
            result.set_shape(shape)
        return list(results)

    return in_active_sequence(build, record)


def on_arrays(values: Sequence[Array], stages: Sequence[Stage]) -> list[Array]:
    """The stages on one array per rank of this process; keeps none longer than its next stage."""
    values = list(values)
    for stage in stages:
        if isinstance(stage, LocalStage):
            values = _local(stage, values, array_elements)
            continue
        halves = [
            group.start(stage.operation, value)
            for group, value in zip(stage.groups, values, strict=True)
        ]
        for group in stage.groups:
            group.wait()
        values = [finish() for finish in halves]
        del halves  # with the buffers that they received into
    return values


def _local(stage: LocalStage, values: Sequence[Any], elements: Any) -> list[Any]:
    return [
        stage.operation.apply(value, place.rank, place.size, elements)
        for value, place in zip(values, stage.places, strict=True)
    ]
