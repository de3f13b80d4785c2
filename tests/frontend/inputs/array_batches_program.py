"""``python array_batches_program.py`` compares batches that ranks take from arrays with Keras's."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from tensoropt.execution.world.shares import Share, rows_table
from tensoropt.frontend.inputs.batches.array_batches import ArrayBatches, named_arrays
from tensoropt.frontend.inputs.batches.rounds import OwnBatch, Rounds
from tensoropt.frontend.keras_models.array_input import arrays_in_order

NUMBERS = np.arange(90).reshape(30, 3)
PARTS = {
    "one array": (NUMBERS / 7, None, None),
    "a list, targets and weights": ([NUMBERS[:, ::2], NUMBERS[:, 0] > 3], NUMBERS, NUMBERS[:, 0]),
    "a dictionary of a tensor and integers": (
        {"b": tf.constant(NUMBERS, tf.float32), "a": NUMBERS.astype(np.uint8)},
        NUMBERS[:, 0].astype(np.float16),
        None,
    ),
}


def adapter(name: str, size: int) -> Any:
    x, y, weights = PARTS[name]
    return ArrayDataAdapter(x, y, weights, batch_size=size, shuffle=False)


def tables(ranks: int, size: int) -> list[Any]:
    """Rows in halves of equal parts, the second half in reverse."""
    cuts = [[n * part // (2 * ranks) for part in range(2 * ranks + 1)] for n in range(size + 1)]
    ranges = [list(itertools.pairwise(cut)) for cut in cuts]
    return [rows_table([[r[rank], r[-1 - rank]] for r in ranges]) for rank in range(ranks)]


def compare(name: str, size: int, is_in_rounds: bool) -> None:
    """The parts of all ranks are the batches of the data set."""
    truth, ranks = adapter(name, size).get_tf_dataset(), 3
    with arrays_in_order():
        batches = adapter(name, size).get_tf_dataset()
    assert isinstance(batches, ArrayBatches)
    assert batches.element_spec == truth.element_spec
    assert batches.cardinality() == len(list(truth))
    tf.nest.map_structure(np.testing.assert_array_equal, list(batches), list(truth))
    found = []
    for rank, table in enumerate(tables(ranks, batches.size)):
        rounds = Rounds(ranks, rank, batches.size) if is_in_rounds else None
        found.append(list(batches.shares(table, rounds)))
    whole = iter(truth)
    for parts in zip(*found, strict=True):
        if isinstance(parts[0], OwnBatch):
            for part in parts:
                tf.nest.map_structure(_is_whole, part.element, next(whole))
        else:
            tf.nest.map_structure(_are_parts, next(whole), *parts)
    assert next(whole, None) is None
    rounds_found = [part for part in found[0] if isinstance(part, OwnBatch)]
    count = len(NUMBERS) // (ranks * batches.size) if is_in_rounds else 0
    ends = [(part.is_first, part.is_last) for part in rounds_found]
    assert ends == [(n == 0, n == count - 1) for n in range(count)]


def _is_whole(share: Share, batch: tf.Tensor) -> None:
    assert share.rows.tolist() == [[0, len(batch)]]
    assert share.value.dtype == batch.dtype.as_numpy_dtype
    np.testing.assert_array_equal(share.value, batch)


def _are_parts(batch: tf.Tensor, *shares: Share) -> None:
    found = np.zeros_like(batch)
    for share in shares:
        rows = [row for first, last in share.rows.tolist() for row in range(first, last)]
        found[rows] = share.value
        assert share.size == len(batch)
    np.testing.assert_array_equal(found, batch)


def edit() -> None:
    """Arrays that are edited are read anew."""
    x = np.zeros((4, 2), np.float32)
    with arrays_in_order():
        batches = ArrayDataAdapter(x, batch_size=2, shuffle=False).get_tf_dataset()
    x[3] = 5
    (table,) = tables(1, 2)
    assert [share.value.tolist() for share in batches.shares(table, None)][1] == [[0, 0], [5, 5]]


OTHERS = [
    np.array(["a", "b"], object),
    tf.ragged.constant([[1, 2], [3]]),
    tf.sparse.from_dense([[0, 1], [1, 0]]),
    keras.ops.zeros([0, 2]),
]


def read_other(x: Any) -> None:
    """Other inputs are data sets."""
    with arrays_in_order():
        found = ArrayDataAdapter(x, batch_size=2, shuffle=False).get_tf_dataset()
        shuffled = ArrayDataAdapter(NUMBERS, batch_size=2, shuffle=True).get_tf_dataset()
        assert isinstance(found, tf.data.Dataset)
        assert isinstance(shuffled, tf.data.Dataset)
    after = ArrayDataAdapter(NUMBERS, batch_size=2, shuffle=False).get_tf_dataset()
    assert isinstance(after, tf.data.Dataset)


def name_arrays() -> None:
    """Arrays have the names of arguments."""
    found = named_arrays((([NUMBERS, NUMBERS],), NUMBERS))
    assert list(found) == ["x", "x/1", "y"]
    assert list(named_arrays(NUMBERS)) == ["x"]


if __name__ == "__main__":
    for case in itertools.product(PARTS, (4, 5, 40), (False, True)):
        compare(*case)
    edit()
    for other in OTHERS:
        read_other(other)
    name_arrays()
