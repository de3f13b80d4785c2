"""Data sets in shares against the same data sets whole, byte for byte, in one process.

It prints, by pipeline, which functions run for the rows of one process only and which run for all
examples, as a line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.inputs.shares.datasets import SharedDataset, in_shares


def contiguous(processes: int, rank: int) -> Callable[[int], np.ndarray[Any, Any]]:
    """Rows in blocks of equal size. Some processes get no rows of a small batch."""

    def table(largest: int) -> np.ndarray[Any, Any]:
        sizes = np.arange(largest + 1)
        block = -(-sizes // processes)
        starts, stops = (np.minimum(sizes, block * n) for n in (rank, rank + 1))
        rows = np.stack([starts, stops], axis=1)[:, None]
        rows[rows[:, 0, 0] == rows[:, 0, 1]] = 0
        return rows

    return table


def in_halves(processes: int, rank: int) -> Callable[[int], np.ndarray[Any, Any]]:
    """Rows of two microbatches: a block of the batch's first half, and one of its second half.

    A batch whose size is odd is read by the first process alone.
    """

    def table(largest: int) -> np.ndarray[Any, Any]:
        rows = np.zeros((largest + 1, 2, 2), np.int64)
        halves = contiguous(processes, rank)(largest // 2)[:, 0]
        for size in range(largest + 1):
            if size % 2:
                rows[size, 0] = (0, 0 if rank else size)
            elif halves[size // 2, 1]:
                rows[size] = halves[size // 2], halves[size // 2] + size // 2
        return rows

    return table


def arrays(count: int = 37) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        (np.arange(3 * count, dtype=np.float32).reshape(count, 3), np.arange(count))
    )


def doubled(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return 2 * x, y


def named(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"x": x + 1, "y": y}


PIPELINES: dict[str, Callable[[], tf.data.Dataset]] = {
    "map above a shuffle": lambda: arrays().shuffle(16).map(doubled).batch(8),
    "map below a shuffle": lambda: arrays().map(named).shuffle(16).batch(8).prefetch(2),
    "repeat before and after": lambda: arrays().map(doubled).repeat(2).batch(8).repeat(2),
    "no remainder": lambda: (
        arrays().map(doubled, num_parallel_calls=3).shuffle(40, seed=3).batch(8, True)
    ),
    "the same order in each epoch": lambda: (
        arrays().shuffle(9, reshuffle_each_iteration=False).map(doubled).skip(3).take(30).batch(7)
    ),
    "zipped": lambda: (
        tf.data.Dataset.zip(
            (arrays().map(named, num_parallel_calls=-1), tf.data.Dataset.range(30).map(abs))
        )
        .shuffle(8)
        .batch(4)
        .take(6)
    ),
}


def made(pipeline: str) -> tf.data.Dataset:
    tf.random.set_seed(5)
    return PIPELINES[pipeline]()


def bytes_of(parts: Any) -> list[bytes]:
    """The bytes of each component of the rows of several processes, put together."""
    flat = zip(*(tf.nest.flatten(part) for part in parts), strict=True)
    return [np.concatenate([part.numpy() for part in component]).tobytes() for component in flat]


def check(
    make: Callable[[], tf.data.Dataset], processes: int, layout: Any, *, in_order: bool
) -> None:
    """Compare two epochs, byte for byte."""
    shares = [in_shares(make(), layout(processes, rank)) for rank in range(processes)]
    datasets = [share.dataset for share in shares if isinstance(share, SharedDataset)]
    assert len(datasets) == processes, shares
    whole = make()
    for _ in range(2):
        for batch, *parts in zip(whole, *datasets, strict=True):
            size = len(tf.nest.flatten(batch)[0])
            assert [int(part[1]) for part in parts] == processes * [size]
            if in_order or size % 2:
                assert bytes_of([part[0] for part in parts]) == bytes_of([batch])
            else:
                rows = [
                    np.concatenate([np.arange(*ends) for ends in layout(processes, r)(size)[size]])
                    for r in range(processes)
                ]
                picked = [
                    tf.nest.map_structure(lambda x, n=n: tf.gather(x, n), batch) for n in rows
                ]
                assert bytes_of([part[0] for part in parts]) == bytes_of(picked)


def main() -> None:
    report = {}
    for pipeline in PIPELINES:
        for processes in (2, 3, 4):
            check(partial(made, pipeline), processes, contiguous, in_order=True)
        check(partial(made, pipeline), 2, in_halves, in_order=False)
        found = in_shares(made(pipeline), contiguous(2, 0))
        assert isinstance(found, SharedDataset)
        report[pipeline] = [found.share, sorted(found.whole)]
    print(json.dumps(report))


main()
