"""Data sets in shares against the same data sets whole, byte for byte, in one process.

Arguments: a number of random data sets, and numbers of processes. It prints a line of JSON: by
pipeline the functions that run for the rows of one process only and those that run for all
examples, the reasons why some data sets are refused, and a number of calls.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters import array_data_adapter

from tensoropt.frontend.inputs.batches.rounds import OwnBatch, Rounds
from tensoropt.frontend.inputs.batches.shared_rows import batching_of, gathered_in_shares
from tensoropt.frontend.inputs.shares.elements import read_by_first_rank
from tensoropt.frontend.inputs.shares.shared_dataset import NotShared, SharedDataset, in_shares

LARGEST = 8
"""The largest batch of all data sets."""

Layout: TypeAlias = Callable[[int], np.ndarray[Any, Any]]


def contiguous(processes: int, rank: int) -> Layout:
    """Rows in blocks of equal size. Some processes get no rows of a small batch."""

    def table(largest: int) -> np.ndarray[Any, Any]:
        sizes = np.arange(largest + 1)
        block = -(-sizes // processes)
        starts, stops = (np.minimum(sizes, block * n) for n in (rank, rank + 1))
        rows = np.stack([starts, stops], axis=1)[:, None]
        rows[rows[:, 0, 0] == rows[:, 0, 1]] = 0
        return rows

    return table


def in_halves(processes: int, rank: int) -> Layout:
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


def augmented(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return x + tf.random.uniform(tf.shape(x)), y


def scaled_batch(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(x, tf.float32) / 255.0, tf.one_hot(y, 40)


def words(number: tf.Tensor) -> tf.Tensor:
    return tf.repeat(number, number % 5 + 1)


def length(row: tf.Tensor) -> tf.Tensor:
    return tf.shape(row)[0]


def records(folder: Path) -> list[str]:
    """Files of records, which are made once."""
    paths = [str(folder / f"{n}.records") for n in range(3)]
    for n, path in enumerate(paths):
        if not Path(path).exists():
            with tf.io.TFRecordWriter(path) as writer:
                for k in range(11):
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[n, k]))
                    features = tf.train.Features(feature={"x": feature})
                    writer.write(tf.train.Example(features=features).SerializeToString())
    return paths


def parsed(record: tf.Tensor) -> tf.Tensor:
    return tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([2], tf.int64)})["x"]


def images(folder: Path) -> str:
    """A folder of images by class, which is made once."""
    for label in ("cat", "dog"):
        (folder / "images" / label).mkdir(parents=True, exist_ok=True)
        for n in range(7):
            pixels = np.random.default_rng(n).integers(0, 255, (8, 8, 3)).astype(np.uint8)
            keras.utils.save_img(folder / "images" / label / f"{n}.png", pixels, scale=False)
    return str(folder / "images")


def keras_arrays(shuffle: bool = True) -> tf.data.Dataset:
    """The data set that Keras makes of arrays."""
    x, y = np.arange(111, dtype=np.float32).reshape(37, 3), np.arange(37)
    return array_data_adapter.ArrayDataAdapter(x, y, batch_size=8, shuffle=shuffle).get_tf_dataset()


def reader(path: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(path)


FOLDER = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, FOLDER)

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
    "map of batches": lambda: (
        arrays().shuffle(8).map(doubled).batch(8).map(scaled_batch, num_parallel_calls=2)
    ),
    "cache": lambda: arrays().map(doubled).cache().shuffle(16).map(named).batch(8).prefetch(1),
    "cache of batches": lambda: arrays().map(doubled).batch(8).cache().shuffle(4),
    "seeded draws": lambda: arrays().map(augmented).map(named).batch(8),
    "records": lambda: (
        tf.data.Dataset.from_tensor_slices(records(FOLDER))
        .interleave(reader, num_parallel_calls=2)
        .shuffle(8)
        .map(parsed)
        .batch(4)
    ),
    "filter and unbatch": lambda: (
        arrays().batch(3).unbatch().filter(lambda x, y: y % 3 > 0).map(named).batch(5)
    ),
    "padded": lambda: tf.data.Dataset.range(37).shuffle(9).map(words).padded_batch(8, [6]),
    "padded to the longest": lambda: tf.data.Dataset.range(37).map(words).padded_batch(8),
    "buckets": lambda: (
        tf.data.Dataset.range(37)
        .map(words)
        .bucket_by_sequence_length(length, [2, 4], [4, 5, 6])
        .shuffle(3)
    ),
    "ragged rows": lambda: tf.data.Dataset.range(37).map(words).ragged_batch(8),
    "batches zipped": lambda: tf.data.Dataset.zip(
        {"x": arrays().map(doubled).batch(8), "y": tf.data.Dataset.range(37).batch(8)}
    ),
    "numbered": lambda: arrays().enumerate().map(lambda n, pair: (n, pair[0])).batch(8),
    "images of a folder": lambda: keras.utils.image_dataset_from_directory(
        images(FOLDER), batch_size=4, image_size=(6, 6), seed=1, verbose=False
    ),
    "arrays in Keras": keras_arrays,
    "arrays in order": partial(keras_arrays, shuffle=False),
}


IN_ROUNDS = (
    *("map above a shuffle", "map below a shuffle", "no remainder", "map of batches", "cache"),
    *("seeded draws", "records", "padded", "arrays in order"),
)
"""The pipelines whose batches may be read in rounds."""


def made(pipeline: str) -> tf.data.Dataset:
    tf.random.set_seed(5)
    return PIPELINES[pipeline]()


def bytes_of(parts: Any) -> list[bytes]:
    """The bytes of each component of the rows of several processes, put together."""
    flat = zip(*(tf.nest.flatten(part) for part in parts), strict=True)
    joined = [tf.concat(component, axis=0) for component in flat]
    return [part.numpy().tobytes() for part in tf.nest.flatten(joined, expand_composites=True)]


def check(
    make: Callable[[], tf.data.Dataset], layouts: Sequence[Layout], read_before: bool = True
) -> SharedDataset:
    """Compare the rows of some processes with those of whole batches, byte for byte, in two
    epochs, and where told after a batch has been read."""
    shares = [in_shares(make(), layout, largest=LARGEST) for layout in layouts]
    made_in_shares = [share for share in shares if isinstance(share, SharedDataset)]
    assert len(made_in_shares) == len(layouts), shares
    datasets = [share.dataset for share in made_in_shares]
    whole = make()
    for dataset in [whole, *(share.source for share in made_in_shares)]:
        if read_before:
            next(iter(dataset))  # as a layer's adapt does: later iterations have another order
    for _ in range(2):
        for batch, *parts in zip(whole, *datasets, strict=True):
            size = int(tf.nest.flatten(batch)[0].shape[0])
            assert [int(part[1]) for part in parts] == len(layouts) * [size]
            rows = [
                np.concatenate([np.arange(*ends) for ends in layout(LARGEST)[size]])
                for layout in layouts
            ]
            picked = [tf.nest.map_structure(lambda x, n=n: tf.gather(x, n), batch) for n in rows]
            assert bytes_of([part[0] for part in parts]) == bytes_of(picked)
    return made_in_shares[0]


def taken(data: tf.data.Dataset) -> tf.data.Dataset:
    return data.take(11)


def cached(data: tf.data.Dataset) -> tf.data.Dataset:
    return data.cache()


def random_chain(random: Random) -> tuple[Callable[[], tf.data.Dataset], bool]:
    """A data set of random operators, which is the same in each call and has batches, and whether
    it has a cache.

    A chain that takes some elements of a cache is drawn again: TensorFlow truncates a cache that is
    read in part, in some runs.
    """
    steps: list[Callable[[tf.data.Dataset], tf.data.Dataset]] = [
        lambda data: data.map(doubled),
        lambda data: data.map(doubled, num_parallel_calls=2),
        lambda data: data.shuffle(5),
        lambda data: data.repeat(2),
        taken,
        lambda data: data.skip(2),
        cached,
        lambda data: data.prefetch(2),
    ]
    flat_steps = [
        *steps,
        lambda data: data.filter(lambda x, y: y % 3 > 0),
        lambda data: data.map(augmented),
        lambda data: data.concatenate(data),
    ]
    below = random.choices(flat_steps, k=random.randrange(5))
    above = random.choices(steps, k=random.randrange(4))
    size, drops = random.randrange(1, LARGEST), random.random() < 0.3
    chain = below + above
    if cached in chain and taken in chain[chain.index(cached) :]:
        return random_chain(random)

    def make() -> tf.data.Dataset:
        tf.random.set_seed(5)
        data = arrays(13)
        for step in below:
            data = step(data)
        data = data.batch(size, drops)
        for step in above:
            data = step(data)
        return data

    return (make, cached in chain) if any(True for _ in make()) else random_chain(random)


def refused() -> dict[str, str]:
    """The reasons why some data sets are not made in shares."""

    def counted() -> Iterator[int]:
        yield from range(9)

    def in_python(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.py_function(lambda a: a, [x], tf.float32), y

    def mixed(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reverse(x, axis=[0]), y

    def checked(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        tf.debugging.assert_less(tf.reduce_sum(y), tf.constant(1000, y.dtype))
        return x, y

    spec = tf.TensorSpec([], tf.int64)
    generated = tf.data.Dataset.from_generator(counted, output_signature=spec)
    files = tf.data.Dataset.from_tensor_slices(records(FOLDER))
    racing = files.interleave(reader, num_parallel_calls=2, deterministic=False)
    lagging = arrays().shuffle(8).repeat(2).batch(4)
    read_by_first_rank(lagging)
    datasets = {
        "read by the first rank": lagging,
        "generator": generated.batch(4),
        "Python": arrays().map(in_python).batch(4),
        "mixed rows": arrays().batch(4).map(mixed),
        "checks of batches": arrays().batch(4).map(checked),
        "draws for batches": arrays().batch(4).map(augmented),
        "racing draws": arrays().map(augmented, num_parallel_calls=2).batch(4),
        "racing files": racing.batch(4),
        "cache in a file": arrays().cache(str(FOLDER / "cache")).map(doubled).batch(4),
        "no batches": tf.data.Dataset.range(8),
    }
    found = {name: in_shares(dataset, contiguous(2, 0)) for name, dataset in datasets.items()}
    return {name: f.reason for name, f in found.items() if isinstance(f, NotShared)}


def calls() -> int:
    """The number of calls of a function for the rows of one of four processes, in one epoch."""
    path = FOLDER / "calls"

    def counted(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        tf.print(y, output_stream=f"file://{path}")
        return doubled(x, y)

    shared = in_shares(arrays().map(counted).shuffle(16).batch(8), contiguous(4, 0))
    assert isinstance(shared, SharedDataset)
    assert sum(len(x[0]) for x, _ in shared.dataset) == 10
    return len(path.read_text().splitlines())


def gathered() -> int:
    """The number of batches of arrays, of which the rows of two processes are compared."""
    whole = list(made("arrays in Keras"))
    for layouts in ([contiguous(2, 0), contiguous(2, 1)], [in_halves(2, 0), in_halves(2, 1)]):
        sources = [made("arrays in Keras") for _ in layouts]
        parts = [gathered_in_shares(*pair) for pair in zip(sources, layouts, strict=True)]
        assert all(part is not None for part in parts)
        for batch, *shares in zip(whole, *map(list, parts), strict=True):
            size = len(batch[0])
            assert [int(share[1]) for share in shares] == [size, size]
            for part, (share, _) in enumerate(shares):
                rows = layouts[part](LARGEST)[size]
                here = np.concatenate([np.arange(*ends) for ends in rows])
                picked = tf.nest.map_structure(lambda x, n=here: tf.gather(x, n), batch)
                assert bytes_of([share]) == bytes_of([picked])
    return len(whole)


def in_rounds(processes: int) -> list[int]:
    """The number of rounds of some data sets, whose batches are compared with those of the
    data sets themselves."""
    counts = []
    for pipeline in IN_ROUNDS:
        whole, found = list(made(pipeline)), []
        for rank in range(processes):
            source = made(pipeline)
            batching = batching_of(source)
            assert batching is not None, pipeline
            rounds = Rounds(processes, rank, *batching)
            table = contiguous(processes, rank)(rounds.size)
            windows = gathered_in_shares(source, lambda _, table=table: table, rounds)
            if windows is None:
                rows = rounds.table(table)
                shared = in_shares(source, lambda _, rows=rows: rows, joined=processes)
                assert isinstance(shared, SharedDataset), (pipeline, shared)
                windows = shared.dataset
            found.append(list(rounds.batches(windows, table)))
        batches = list[Any]()
        for parts in zip(*found, strict=True):
            own = [part.element for part in parts if isinstance(part, OwnBatch)]
            assert len(own) in (0, processes)
            batches += [[element] for element in own] or [parts]
        assert len(batches) == len(whole), pipeline
        for batch, parts in zip(whole, batches, strict=True):
            rows = [tf.nest.map_structure(lambda share: share.value, part) for part in parts]
            assert bytes_of(rows) == bytes_of([batch]), pipeline
        own = [part for part in found[0] if isinstance(part, OwnBatch)]
        ends = [(part.is_first, part.is_last) for part in own]
        assert ends == [(n == 0, n == len(own) - 1) for n in range(len(own))]
        counts.append(len(own))
    return counts


def main(counts: Sequence[int], chains: int) -> None:
    """Check all pipelines, each for one of the numbers of processes, and random ones."""
    tf.random.set_seed(5)
    report: dict[str, Any] = {}
    for number, pipeline in enumerate(PIPELINES):
        processes = counts[number % len(counts)]
        layouts = [contiguous(processes, rank) for rank in (0, processes - 1)]
        found = check(partial(made, pipeline), layouts)
        report[pipeline] = [list(found.share), sorted(found.whole)]
    for pipeline in ("map below a shuffle", "padded to the longest"):
        check(partial(made, pipeline), [in_halves(2, 0), in_halves(2, 1)])
    random = Random(chains)
    for _ in range(chains):
        make, has_cache = random_chain(random)
        check(make, [contiguous(3, random.randrange(3))], read_before=not has_cache)
    found = {"refused": refused(), "calls": calls(), "gathered": gathered()}
    found |= {"rounds": in_rounds(2)}
    print(json.dumps({"pipelines": report, **found}))


if __name__ == "__main__":
    main([int(number) for number in sys.argv[2:]], chains=int(sys.argv[1]))
