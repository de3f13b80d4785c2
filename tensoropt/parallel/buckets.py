"""Which sums of weights' gradients over devices wait for each other, and travel together.

An all-reduce takes some time whatever it moves; a bucket of several gradients takes it once (tensor
fusion: Sergeev and Del Balso, "Horovod", 2018; buckets: Li et al., "PyTorch Distributed", 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tensoropt.graph.coarsen import READS
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep, Step
from tensoropt.parallel.strategy import Strategy

__all__ = [
    "BUCKET_SIZES",
    "OVERLAPPED",
    "BucketSizes",
    "Buckets",
    "Sums",
    "elementwise_sums",
    "path_to_variable",
    "vector_steps",
]

Gradient = TypeVar("Gradient")

Sums = tuple[str, tuple[tuple[int, ...], ...]]
"""A reducer, and the mesh axes of one all-reduce after the other."""


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """When a bucket is full, and what is packed in it.

    All gradients of a bucket are there before the first of them is reduced. Within a machine one
    collective takes them all where they are; elsewhere the small ones are copied into one vector
    and out of it, which pays for small ones only.

    Attributes:
        packed_bytes: the largest part of a gradient on one device that is copied.
        full_bytes: of gradients on one device that wait for no more.
    """

    packed_bytes: int = 128 << 10
    full_bytes: int = 64 << 20


BUCKET_SIZES = BucketSizes()
"""Where a rank waits in its collectives. Each is a point at which the slowest rank of the moment is
waited for, so there are few: on two ranks of one core, buckets of 64 MiB in place of gradients sent
as they come take 7 % off the steps of a WideResNet and of a VGG16 with large dense layers, and
nothing off a perceptron's."""

OVERLAPPED = BucketSizes(full_bytes=1 << 20)
"""Where a rank computes while its collectives run: a bucket is sent early."""


class Buckets(Generic[Gradient]):
    """Gradients that wait for others.

    Args:
        sizes: of a bucket.
        joins: whether some sums of elements of a dtype are one collective without copies.
    """

    def __init__(self, sizes: BucketSizes, joins: Callable[[Sums, str], bool]) -> None:
        self._sizes = sizes
        self._joins = joins
        self._waiting: list[tuple[Sums | None, str, Gradient]] = []
        self._bytes = 0

    def add(
        self, gradient: Gradient, sums: Sums | None, dtype: str, size: int | None
    ) -> list[tuple[Sums | None, list[Gradient]]]:
        """Put a gradient into the bucket.

        Args:
            gradient: that is reduced.
            sums: by these all-reduces, or None where it takes more than that.
            dtype: of its elements.
            size: in bytes on one device, if it is known.

        Returns:
            Once the bucket is full what is in it; see `rest`.
        """
        packs = (
            sums is not None
            and size is not None
            and (size <= self._sizes.packed_bytes or self._joins(sums, dtype))
        )
        self._waiting.append((sums if packs else None, dtype, gradient))
        self._bytes += size or 0
        return self.rest() if self._bytes >= self._sizes.full_bytes else []

    def rest(self) -> list[tuple[Sums | None, list[Gradient]]]:
        """Empty the bucket: gradients that travel as one with what is done to them, and each of the
        others by itself with None; in the order in which they, or the first of them, came."""
        vectors: dict[object, tuple[Sums | None, list[Gradient]]] = {}
        for number, (sums, dtype, gradient) in enumerate(self._waiting):
            key = number if sums is None else (sums, dtype)
            vectors.setdefault(key, (sums, []))[1].append(gradient)
        self._waiting, self._bytes = [], 0
        return list(vectors.values())


def path_to_variable(strategy: Strategy, tensor: TensorName) -> tuple[TensorName, ...]:
    """A tensor, what it is read from, and so on to a variable that lies alike; or nothing."""
    path = [tensor]
    while not (reader := strategy.graph[path[-1].operator]).is_variable:
        if reader.type not in READS or reader.is_constant:
            return ()
        source = reader.inputs[0]
        slots = strategy.output_slot(path[-1]), strategy.input_slot(reader, 0)
        if any(slot != strategy.output_slot(source) for slot in slots):
            return ()
        path.append(source)
    return tuple(path)


def elementwise_sums(steps: Sequence[Step]) -> Sums | None:
    """What gradients with equal steps have in common where these are all-reduces alone."""
    reductions = [s for s in steps if isinstance(s, ReshardStep) and s.kind == "allreduce"]
    reducers = {step.reducer for step in reductions}
    if len(reductions) < len(steps) or len(reducers) != 1:
        return None
    reducer = reducers.pop()
    assert reducer is not None, "an all-reduce has a reducer"
    return reducer, tuple(step.axes for step in reductions)


def vector_steps(sums: Sums) -> tuple[ReshardStep, ...]:
    """The all-reduces of a vector."""
    reducer, each = sums
    layout = Layout(((),), tuple(axis for axes in each for axis in axes), reducer)
    steps: list[ReshardStep] = []
    for axes in each:
        steps.append(ReshardStep.from_source("allreduce", axes, layout, reducer=reducer))
        layout = steps[-1].target
    return tuple(steps)
