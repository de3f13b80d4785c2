"""The elements of a data set as shares: this process makes its rows of each global batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.world.shares import RowsTable, Share, rows_in
from tensoropt.frontend.inputs.batches.array_batches import named_arrays
from tensoropt.frontend.inputs.batches.rounds import Rounds
from tensoropt.frontend.inputs.shares.functions import effects
from tensoropt.frontend.inputs.shares.operators import as_it_is, constant, kind, parts_of

__all__ = ["arrays_of", "batching_of", "gathered_in_shares", "sample_element", "shares_of"]
Array = np.ndarray[Any, Any]

_ABOVE = ("CacheDataset", "MapDataset", "OptionsDataset", "ParallelMapDataset", "PrefetchDataset")
"""Operators that make one batch of one batch."""

_GATHERS = "slice_inputs.<locals>.grab_batch"
"""The end of the name of Keras's function that gathers a batch."""


def shares_of(dataset: tf.data.Dataset, table: RowsTable) -> Iterator[Any]:
    """Make an iterator over elements with shares, in place of global batches.

    Args:
        dataset: its elements are (element with this process's rows, size of the global batch).
        table: these rows, by the size.
    """
    return (_shared(element, int(size), table) for element, size in iter(dataset))


def _shared(element: Any, size: int, table: RowsTable) -> Any:
    rows = rows_in(table, size)
    return tf.nest.map_structure(lambda leaf: Share(rows, np.asarray(leaf), size), element)


def gathered_in_shares(
    dataset: Any, table: Callable[[int], RowsTable], rounds: Rounds | None = None
) -> tf.data.Dataset | None:
    """Rewrite Keras's data set of arrays so that it gathers this process's rows alone.

    Keras shuffles row numbers, and gathers the rows of a batch from the arrays.

    Args:
        dataset: a data set.
        table: from the largest size of a batch to the rows of this process.
        rounds: the rounds in which it is read, if it is. Then full windows come first, and after
            them a window for each batch.

    Returns:
        A data set of (element with these rows, size of the global batch), which calls the functions
        of ``dataset`` as long as that lives; None for another data set. A shuffled one is not read
        in rounds.
    """
    dataset = _below_options(dataset)
    size = _gathered_size(dataset)
    if size is None:
        return None
    (pairs,) = dataset._inputs()
    numbers, arrays = pairs._inputs()
    if rounds is not None and _draws(numbers):
        return None
    rows = tf.constant(table(size))

    @as_it_is
    def here(numbers: tf.Tensor) -> tf.Tensor:
        starts, stops = tf.unstack(rows[tf.size(numbers)], axis=1)
        each = tf.raw_ops.RaggedRange(starts=starts, limits=stops, deltas=np.int64(1))
        return tf.gather(numbers, each.rt_dense_values)

    count = int(tf.nest.flatten(arrays.element_spec)[0].shape[0])
    sizes = [min(size, count - first) for first in range(0, count, size)]
    full = 0 if rounds is None else count // rounds.examples
    if rounds is None or not full:
        rows_here = numbers.map(here)
    else:
        split = full * rounds.ranks  # the first batch that is split
        rows_here = numbers.take(split).shard(rounds.ranks, rounds.rank)
        if split < len(sizes):
            rows_here = rows_here.concatenate(numbers.skip(split).map(here))
        sizes = [rounds.examples] * full + sizes[split:]
    pairs = tf.data.Dataset.zip((rows_here, arrays))
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    gathered = _over(dataset, pairs)
    shared = tf.data.Dataset.zip((gathered, tf.data.Dataset.from_tensor_slices(sizes).repeat()))
    return shared.with_options(options)


def _draws(dataset: Any) -> bool:
    """Whether a function of a data set draws random numbers."""
    functions = [each for part in parts_of(dataset) for each in part._functions()]
    return any(effects(each).draws for each in functions)


def _over(dataset: Any, pairs: tf.data.Dataset) -> tf.data.Dataset:
    """Put Keras's map that gathers batches over other row numbers.

    The map's function is not traced again: with many arrays that takes as long as many batches.
    """
    (function,) = dataset._functions()
    spec = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), dataset.element_spec
    )
    flat = tf.nest.flatten(spec)
    gathered = tf.raw_ops.ParallelMapDatasetV2(
        input_dataset=tf.data.experimental.to_variant(pairs),
        other_arguments=function.function.captured_inputs,
        num_parallel_calls=tf.data.AUTOTUNE,
        f=function.function,
        output_types=[leaf.dtype for leaf in flat],
        output_shapes=[leaf.shape for leaf in flat],
    )
    return tf.data.experimental.from_variant(gathered, spec)


def arrays_of(dataset: Any) -> dict[str, Array]:
    """The arrays from which Keras gathers batches, by Keras's names; empty for another data set."""
    dataset = _below_options(dataset)
    if _gathered_size(dataset) is None:
        return {}
    (pairs,) = dataset._inputs()
    _, repeated = pairs._inputs()
    return named_arrays(next(iter(repeated)))


def sample_element(spec: Any, size: int) -> Any | None:
    """An element with a batch of a size, whose values are zeros; None if it has unknown shapes.

    Args:
        spec: the ``element_spec`` of a data set of batches.
        size: the number of rows of the batch.
    """
    leaves = []
    for leaf in tf.nest.flatten(spec):
        shape = leaf.shape.as_list() if isinstance(leaf, tf.TensorSpec) and leaf.shape.rank else []
        if not shape or None in shape[1:] or shape[0] not in (None, size):
            return None
        zero = b"" if leaf.dtype == tf.string else 0
        dtype = object if leaf.dtype == tf.string else leaf.dtype.as_numpy_dtype
        leaves.append(np.broadcast_to(np.array(zero, dtype), (size, *shape[1:])))
    return tf.nest.pack_sequence_as(spec, leaves)


def batching_of(dataset: Any) -> tuple[int, bool] | None:
    """The size of the batches that Keras gathers from arrays, or that ``batch`` makes, and whether
    a last batch with fewer examples is left out; None for another data set."""
    size = _gathered_size(_below_options(dataset))
    if size is not None:
        return size, False
    while kind(dataset) in _ABOVE:
        (dataset,) = dataset._inputs()
    if kind(dataset) not in ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset"):
        return None
    return constant(dataset._batch_size), bool(tf.get_static_value(dataset._drop_remainder))


def _below_options(dataset: Any) -> Any:
    """The data set below options and prefetching."""
    while kind(dataset) in ("OptionsDataset", "PrefetchDataset"):
        (dataset,) = dataset._inputs()
    return dataset


def _function(dataset: Any) -> Any:
    """The script's function of a data set; None if the data set has none."""
    return getattr(getattr(dataset, "_map_func", None), "_func", None)


def _gathered_size(dataset: Any) -> int | None:
    """The largest size of a batch that Keras gathers from arrays; None for another data set, or if
    the arrays have no rows."""
    if not getattr(_function(dataset), "__qualname__", "").endswith(_GATHERS):
        return None
    (pairs,) = dataset._inputs()
    numbers, arrays = pairs._inputs()
    specs = tf.nest.flatten(arrays.element_spec)
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in specs):
        return None
    while kind(numbers) == "MapDataset":  # It shuffles the numbers within a batch.
        (numbers,) = numbers._inputs()
    known = inspect.getclosurevars(_function(numbers)).nonlocals
    size = known.get("batch_size")
    return None if size is None else min(int(size), int(specs[0].shape[0])) or None
