"""Iterators of a graph whose maps run for one rank's rows make the batches of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensoropt.execution.world.shares import Share, rows_table
from tensoropt.frontend.inputs.data_pipelines import Pipelines

plain = tf.compat.v1
RANKS, ROWS, BATCH, EPOCHS = 3, 20, 8, 2
NUMBERS = np.arange(ROWS, dtype=np.int64)
FEATURES = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)

pytestmark = pytest.mark.usefixtures("graph")


def examples(features: Any, numbers: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices((features, numbers)).shuffle(ROWS, seed=3)


def noted(path: str) -> Callable[..., Any]:
    """A map that notes its calls, and reads a constant of the script."""
    scale = plain.constant([2.0])

    def function(x: Any, number: Any) -> Any:
        tf.print(number, output_stream=f"file://{path}")
        return x * scale, tf.strings.as_string(number)

    return function


def maps(data: Any, path: str) -> Any:
    return data.map(noted(path)).batch(BATCH).repeat(EPOCHS).prefetch(2)


def parallel_maps_and_batch_maps(data: Any, path: str) -> Any:
    data = data.map(noted(path), num_parallel_calls=3).map(lambda x, n: (x[:2], n)).repeat(EPOCHS)
    weights = plain.constant(np.ones((2, 3), np.float32))
    return data.shuffle(9, seed=1).batch(BATCH).map(lambda x, n: (x @ weights, n))


def padded(data: Any, path: str) -> Any:
    return data.map(noted(path)).padded_batch(BATCH, ([6], [])).repeat(EPOCHS)


def random_maps_below(data: Any, path: str) -> Any:
    data = data.map(lambda x, n: (x + plain.random.uniform([4], seed=7), n)).cache()
    return data.map(noted(path)).batch(BATCH, drop_remainder=True).repeat(EPOCHS)


MADE = [maps, parallel_maps_and_batch_maps, padded, random_maps_below]


def normalised(data: Any, path: str) -> Any:
    data = data.map(noted(path)).batch(BATCH)
    return data.map(lambda x, n: (x - tf.reduce_mean(x), n)).repeat(EPOCHS)


def open_width(data: Any, path: str) -> Any:
    data = data.map(noted(path)).map(lambda x, n: (x[: tf.strings.length(n)], n))
    return data.padded_batch(BATCH, ([None], [])).repeat(EPOCHS)


def rows_of(rank: int) -> Callable[[Any], Any]:
    shares = [[(n * rank // RANKS, n * (rank + 1) // RANKS)] for n in range(BATCH + 1)]
    return lambda elements: rows_table(shares)


def drawn(
    make: Callable[..., Any],
    kind: str,
    rank: int | None,
    path: Path,
    count: int = 99,
    position: Sequence[bytes] = (),
) -> tuple[list[list[Any]], list[bytes]]:
    """Batches of a rank, or of one process, from a position or the start; and where they end."""
    rows = None if rank is None else rows_of(rank)
    with plain.Graph().as_default() as graph:
        given = [FEATURES, NUMBERS]
        if kind == "initializable":
            given = [plain.placeholder(each.dtype, [None, *each.shape[1:]]) for each in given]
            iterator = plain.data.make_initializable_iterator(make(examples(*given), str(path)))
        else:
            iterator = plain.data.make_one_shot_iterator(make(examples(*given), str(path)))
        root = iterator.get_next()[0].op.name
        pipelines = Pipelines(graph, 0)
        pipelines.go_on_from(position)
        if kind == "initializable":
            fed = {given[0].name: FEATURES, given[1].name: NUMBERS}
            pipelines.draw([iterator.initializer.name], [], fed, rows)
        batches = []
        while len(batches) < count:
            try:
                batches.append(list(pipelines.draw([root], [], {}, rows).values()))
            except tf.errors.OutOfRangeError:
                break
        return batches, pipelines.position()


def joined(shares: Sequence[Any]) -> Any:
    """The rows of all ranks."""
    assert all(isinstance(share, Share) for share in shares)
    return np.concatenate([share.value for share in shares])


@pytest.mark.parametrize("kind", ["one shot", "initializable"])
@pytest.mark.parametrize("make", MADE)
def test_rows_of_all_ranks_are_the_batches_of_one_process(
    make: Callable[..., Any], kind: str, tmp_path: Path
) -> None:
    truth, _ = drawn(make, kind, None, tmp_path / "whole")
    ranks = [drawn(make, kind, rank, tmp_path / f"{rank}")[0] for rank in range(RANKS)]
    assert len(truth) in (4, 5, 6)
    for n, batch in enumerate(truth):
        for component, whole in enumerate(batch):
            np.testing.assert_array_equal(joined([r[n][component] for r in ranks]), whole)
    calls = [(tmp_path / f"{rank}").read_text().split() for rank in range(RANKS)]
    assert [len(each) for each in calls] == [sum(len(b[0].value) for b in r) for r in ranks]
    assert sum(map(len, calls)) == sum(len(batch[0]) for batch in truth)


@pytest.mark.parametrize("make", [normalised, open_width])
def test_batches_that_need_all_examples_are_made_whole(
    make: Callable[..., Any], tmp_path: Path, capsys: Any
) -> None:
    truth, _ = drawn(make, "one shot", None, tmp_path / "whole")
    found, _ = drawn(make, "one shot", 1, tmp_path / "1")
    for batch, whole in zip(found, truth, strict=True):
        for component, expected in zip(batch, whole, strict=True):
            np.testing.assert_array_equal(component, expected)
    assert "each rank makes all elements of OneShotIterator: " in capsys.readouterr().err


@pytest.mark.parametrize("saves", [None, 0])
def test_a_position_is_that_of_any_number_of_ranks(saves: int | None, tmp_path: Path) -> None:
    """Ranks go on from the position of a rank or of one process, and one process does, too."""
    truth, _ = drawn(maps, "initializable", None, tmp_path / "calls")
    _, position = drawn(maps, "initializable", saves, tmp_path / "calls", 4)
    for rank in (None, 1):
        rest, _ = drawn(maps, "initializable", rank, tmp_path / "calls", 99, position)
        for batch, whole in zip(rest, truth[4:], strict=True):
            table = rows_of(1)(None)[len(whole[0])][0]
            for component, expected in zip(batch, whole, strict=True):
                if isinstance(component, Share):
                    component, expected = component.value, expected[slice(*table)]
                np.testing.assert_array_equal(component, expected)


@pytest.mark.parametrize("kind", ["one shot", "initializable"])
def test_parallel_maps_draw_alike_in_all_processes(kind: str) -> None:
    orders = []
    for _ in range(3):
        with plain.Graph().as_default() as graph:
            data = tf.data.Dataset.range(200)
            data = data.map(lambda n: plain.random.uniform([], seed=3), num_parallel_calls=8)
            make = plain.data.make_one_shot_iterator
            iterator = (make if kind == "one shot" else plain.data.make_initializable_iterator)(
                data.batch(200)
            )
            root = iterator.get_next().op.name
            pipelines = Pipelines(graph, 0, in_order=True)
            if kind == "initializable":
                pipelines.draw([iterator.initializer.name], [], {})
            orders += pipelines.draw([root], [], {}).values()
    assert all((order == orders[0]).all() for order in orders)
    assert len(set(orders[0].tolist())) == 200
