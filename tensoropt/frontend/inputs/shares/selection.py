"""The rows of each batch that one process needs, out of the elements before they are batched."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tensoropt.frontend.inputs.shares.operators import as_it_is, takes_apart

__all__ = ["Batching", "ElementMap", "batched_rows", "cut_rows", "mapped"]

Array = np.ndarray[Any, Any]


class Batching(NamedTuple):
    """How elements are put into batches.

    Attributes:
        size: elements of a full batch.
        drop_remainder: whether a last batch with fewer elements is left out.
        padding: None for elements of equal shapes; else the shapes to which elements are padded,
            without unknown extents, and the values to pad with.
    """

    size: int
    drop_remainder: bool
    padding: tuple[Any, Any] | None = None

    def of(self, elements: tf.data.Dataset, size: int) -> tf.data.Dataset:
        """Batches of at most ``size`` of pairs of an element and a number."""
        if self.padding is None:
            return elements.batch(size, self.drop_remainder)
        shapes, values = self.padding
        zero = tf.constant(0, tf.int64)
        return elements.padded_batch(size, (shapes, []), (values, zero), self.drop_remainder)


@dataclass(frozen=True, slots=True, eq=False)
class ElementMap:
    """A function of one element, which runs for elements of this process alone.

    Attributes:
        function: from an element to an element.
        name: the name of the script's function.
        parallel_calls: the number of parallel calls; None for one call after the other.
    """

    function: Callable[[Any], Any]
    name: str
    parallel_calls: int | None


def batched_rows(
    elements: tf.data.Dataset, maps: Sequence[ElementMap], batching: Batching, rows: Array
) -> tf.data.Dataset:
    """Return a data set of (rows of a batch, number of rows of the whole batch).

    A window of elements stands for each batch. The rows of the table are taken out of it, each with
    the number n of the window's elements. The functions are applied to the rows, one by one. Then
    rows with the same n are collected, until they are as many as the table has for n.

    Args:
        elements: the elements of which the batches are made.
        maps: functions to apply to the elements.
        batching: the batches of one process.
        rows: the table of rows, ``[size + 1, k, 2]``, see `in_shares`.
    """
    counts = (rows[:, :, 1] - rows[:, :, 0]).sum(axis=1)
    windows = elements.window(batching.size, drop_remainder=batching.drop_remainder)
    chosen = windows.flat_map(_chooser(rows, takes_apart(elements.element_spec)))
    for element_map in maps:
        chosen = mapped(chosen, element_map)
    if batching.drop_remainder:
        counts = counts[-1:].repeat(len(counts))  # the size of all batches is known
        batches = batching.of(chosen, max(int(counts[0]), 1))
    else:
        batches = _grouped(chosen, batching, np.maximum(counts, 1))
    return batches.map(_cutter(counts))


def _chooser(rows: Array, is_tuple: bool) -> Callable[..., tf.data.Dataset]:
    """A function from a window to its elements in some rows, each with the window's size.

    A window without rows for this process stands for one element, which is cut off later: the
    process has a batch of no rows then.
    """
    starts, counts = rows[:, :, 0], rows[:, :, 1] - rows[:, :, 0]
    counts[:, 0] = np.where(counts.sum(axis=1) == 0, 1, counts[:, 0])

    @as_it_is
    def choose(*window: Any) -> tf.data.Dataset:
        elements = tf.data.Dataset.zip(window if is_tuple else window[0])
        size = tf.data.experimental.cardinality(elements)
        ranges = [
            elements.skip(tf.gather(starts[:, k], size)).take(tf.gather(counts[:, k], size))
            for k in range(rows.shape[1])
        ]
        taken = functools.reduce(tf.data.Dataset.concatenate, ranges)
        return tf.data.Dataset.zip((taken, tf.data.Dataset.from_tensors(size).repeat()))

    return choose


def mapped(chosen: tf.data.Dataset, element_map: ElementMap) -> tf.data.Dataset:
    """Apply a function to the first components of pairs."""

    @as_it_is
    def call(element: Any, size: tf.Tensor) -> Any:
        return element_map.function(element), size

    parallel_calls = element_map.parallel_calls
    if parallel_calls is None:
        return chosen.map(call)
    return chosen.map(call, num_parallel_calls=parallel_calls, deterministic=True)


def _grouped(chosen: tf.data.Dataset, batching: Batching, counts: Array) -> tf.data.Dataset:
    """Batches of elements with the same size of the whole batch, as many as ``counts`` says.

    The elements of one batch follow one another, so all groups but one are empty at any time.
    """
    most = int(counts.max())

    @as_it_is
    def size_of(_: Any, size: tf.Tensor) -> tf.Tensor:
        return size

    @as_it_is
    def batch(_: tf.Tensor, group: tf.data.Dataset) -> tf.data.Dataset:
        return batching.of(group, most)

    @as_it_is
    def count(size: tf.Tensor) -> tf.Tensor:
        return tf.gather(counts, size)

    return chosen.group_by_window(size_of, batch, window_size_func=count)


def _cutter(counts: Array) -> Callable[[Any, tf.Tensor], Any]:
    """A function that cuts off the elements which stand for no rows, and keeps one size."""

    @as_it_is
    def cut(batch: Any, sizes: tf.Tensor) -> Any:
        size = sizes[0]
        if (counts > 0).all():
            return batch, size
        count = tf.gather(counts, size)
        first = tf.zeros([], tf.int64)
        return tf.nest.map_structure(lambda part: _between(part, first, count), batch), size

    return cut


def cut_rows(batches: tf.data.Dataset, rows: Array) -> tf.data.Dataset:
    """Return a data set of (rows of a batch, number of rows of the whole batch) of whole batches.

    Args:
        batches: all components of its elements have the same number of rows.
        rows: the table of rows, as for `batched_rows`.
    """
    is_tuple = takes_apart(batches.element_spec)

    @as_it_is
    def cut(*batch: Any) -> Any:
        element = batch if is_tuple else batch[0]
        first = tf.nest.flatten(element)[0]
        size = first.dense_shape[0] if isinstance(first, tf.SparseTensor) else _length(first)
        ranges = tf.gather(rows, size)
        ends = [(ranges[k, 0], ranges[k, 1]) for k in range(rows.shape[1])]
        return tf.nest.map_structure(
            lambda part: _joined([_between(part, *each) for each in ends]), element
        ), size

    return batches.map(cut)


def _length(part: Any) -> tf.Tensor:
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    return tf.shape(part, out_type=tf.int64)[0]


def _between(part: Any, start: tf.Tensor, stop: tf.Tensor) -> Any:
    """Some rows of one component of a batch."""
    if isinstance(part, tf.SparseTensor):
        others = part.dense_shape[1:]
        starts = tf.concat([[start], tf.zeros_like(others)], axis=0)
        return tf.sparse.slice(part, starts, tf.concat([[stop - start], others], axis=0))
    return part[start:stop]


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tf.SparseTensor):
        return tf.sparse.concat(0, parts)
    return tf.concat(parts, axis=0)
