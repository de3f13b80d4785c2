"""The TensorFlow operations against the same computed locally; runs on 4 ranks."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import collectives

Array = npt.NDArray[Any]
Operation = Callable[[tf.Tensor], tf.Tensor]

DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.bool]
PARTITIONS = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[3, 1, 0, 2]]]


def data(rank: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng([seed, rank]).integers(0, 3, shape).astype(np.float64)


def check_values(group: collectives.Group, dtype: tf.DType) -> None:
    n = group.size
    arrays = [data(rank, (n, 2 * n)) for rank in group.ranks]
    folds: dict[str, Callable[..., Array]]
    folds = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
    if dtype == tf.bool:
        arrays = [np.minimum(array, 1) for array in arrays]
        folds["sum"] = np.max
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, collectives.Sequence():
        x = tf.constant(arrays[group.rank], dtype)
        results, expected = [], []
        for reducer, fold in folds.items():
            whole = fold(arrays, axis=0)
            results.append(collectives.allreduce(x, group, reducer))
            expected.append(whole)
            results.append(collectives.reduce_scatter(x, 1, group, reducer))
            expected.append(np.split(whole, n, 1)[group.rank])
        results.append(collectives.allgather(x, -1, group))
        expected.append(np.concatenate(arrays, 1))
        results.append(collectives.alltoall(x, 1, 0, group))
        expected.append(np.concatenate([np.split(a, n, 1)[group.rank] for a in arrays], 0))
        results.append(collectives.broadcast(x, n - 1, group))
        expected.append(arrays[-1])
        starts = [2 * n * i - 3 for i in range(n)]
        results.append(collectives.exchange(x, 1, starts, 2 * n + 4, group))
        padded = np.pad(np.concatenate(arrays, 1), ((0, 0), (3, 1)))
        expected.append(padded[:, 2 * n * group.rank :][:, : 2 * n + 4])
        for result, got, wanted in zip(results, session.run(results), expected, strict=True):
            assert result.dtype == dtype
            assert result.shape.as_list() == list(got.shape)
            np.testing.assert_array_equal(got.astype(np.float64), wanted)


def check_gradient(build: Operation, value: Array, group: collectives.Group) -> None:
    """The gradient of Σ w·y² against central differences of the sum over ranks of those losses.

    The differences are taken along directions in which one rank's input moves at a time.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float64, value.shape)
        with collectives.Sequence() as sequence:
            y = build(x)
            weights = data(group.ranks[group.rank], tuple(y.shape.as_list()), seed=7) + 1
            loss = tf.reduce_sum(weights * y * y)
            (gradient,) = tf.gradients(loss, x)
            assert gradient.shape.as_list() == list(value.shape)
            total = collectives.allreduce(loss, group)
        sequence.check()
        found = session.run(gradient, {x: value})
        for owner, number in itertools.product(range(group.size), range(2)):
            direction = np.random.default_rng([owner, number]).normal(size=value.shape)
            step = 1e-4 * direction * (group.rank == owner)
            ahead, behind = (session.run(total, {x: value + s * step}) for s in (1, -1))
            if group.rank == owner:
                np.testing.assert_allclose(np.sum(found * direction), (ahead - behind) / 2e-4)


def check_gradients(group: collectives.Group) -> None:
    n = group.size
    # No two alike, so that the extrema are smooth where the differences are taken.
    value = np.random.default_rng(3).permutation(4 * 2 * n).reshape(4, 2, n) / (8.0 * n)
    operations: list[Operation] = [
        lambda x: collectives.allreduce(x, group),
        lambda x: collectives.allreduce(x, group, "max"),
        lambda x: collectives.allreduce(x, group, "min"),
        lambda x: collectives.allgather(x, 1, group),
        lambda x: collectives.reduce_scatter(x, 1, group),
        lambda x: collectives.alltoall(x, 1, 0, group),
        lambda x: collectives.broadcast(x, 1, group),
        lambda x: collectives.exchange(x, 1, [3 * i - 1 for i in range(n)], 5, group),
        lambda x: collectives.exchange(x, 0, [4 * i - 9 for i in range(n)], 15, group),
        lambda x: collectives.exchange_sum(x, 1, [3 * i - 1 for i in range(n)], 4, group),
    ]
    for build in operations:
        check_gradient(build, value[group.rank], group)


def check_ties(group: collectives.Group) -> None:
    """Ranks that attain a maximum together share its gradient as equals."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, collectives.Sequence():
        x = tf.constant([1.0, float(group.rank)])
        (found,) = tf.gradients(collectives.allreduce(x, group, "max"), x)
        last = group.rank == group.size - 1
        np.testing.assert_allclose(session.run(found), [1.0, group.size * last])


def check_second_order(group: collectives.Group) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, collectives.Sequence():
        x = tf.constant(1.0 + group.rank, tf.float64)
        (first,) = tf.gradients(collectives.allreduce(x, group) ** 3, x)
        (second,) = tf.gradients(first, x)
        total = sum(1.0 + position for position in range(group.size))
        # d/dx of Σ_i dL_i/dx, again of the sum over ranks: n² ranks add 6 Σx each.
        np.testing.assert_allclose(session.run(first), group.size * 3 * total**2)
        np.testing.assert_allclose(session.run(second), group.size**2 * 6 * total)


def check_sparse(group: collectives.Group) -> None:
    """A consumer that gathers hands back IndexedSlices."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, collectives.Sequence():
        x = tf.constant(data(group.ranks[group.rank], (2, 3)))
        table = collectives.allgather(x, 0, group)
        (found,) = tf.gradients(tf.gather(table, [0, 0, 1]), x)
        counts = np.array([2.0, 1.0]) if group.rank == 0 else np.zeros(2)
        expected = group.size * np.repeat(counts[:, None], 3, 1)
        np.testing.assert_array_equal(session.run(found), expected)


def check_eager(group: collectives.Group) -> None:
    mine = tf.constant(data(group.ranks[group.rank], (2, 2)))
    with tf.GradientTape() as tape:
        tape.watch(mine)
        gathered = collectives.allgather(mine, 0, group)
        loss = tf.reduce_sum(gathered * gathered)
    everyone = np.concatenate([data(rank, (2, 2)) for rank in group.ranks])
    np.testing.assert_array_equal(gathered.numpy(), everyone)
    np.testing.assert_array_equal(tape.gradient(loss, mine), 2 * group.size * mine)

    def traced(x: tf.Tensor) -> tf.Tensor:
        with collectives.Sequence() as sequence:
            result = collectives.allreduce(x, group) + collectives.allreduce(2 * x, group)
            assert len(sequence.records) == 2
            return result

    total = sum(data(rank, (2, 2)) for rank in group.ranks)
    np.testing.assert_array_equal(tf.function(traced)(mine).numpy(), 3 * total)


def check_variable(group: collectives.Group) -> None:
    """TensorFlow hands over a variable's own memory, which no collective may write to."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, collectives.Sequence():
        mine = data(group.rank, (64, 64))
        variable = tf.compat.v1.Variable(mine, use_resource=True)
        results = [
            collectives.allreduce(variable, group),
            collectives.broadcast(variable, 0, group),
        ]
        session.run(variable.initializer)
        session.run(results)
        np.testing.assert_array_equal(session.run(variable), mine)


def check_interleaving(pairs: list[collectives.Group]) -> None:
    """Independent collectives on crossing groups: only their order keeps them apart."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with collectives.Sequence() as sequence:
            results, expected = [], []
            for number in range(60):
                group = pairs[number % 2]
                value = tf.constant(data(group.ranks[group.rank], (8,), number))
                results.append(collectives.allreduce(value, group))
                expected.append(sum(data(rank, (8,), number) for rank in group.ranks))
        sequence.check()
        records = collectives.world().allgather_object(sequence.records)
        assert all(other == records[0] for other in records)
        assert sequence.records[1].startswith("allreduce sum float64[8] ranks 0,2|1,3 as ")
        for _ in range(5):
            for got, wanted in zip(session.run(results), expected, strict=True):
                np.testing.assert_array_equal(got, wanted)


def check_difference(world: collectives.Group) -> None:
    """Graphs that differ are found out on every rank before they run."""
    with tf.Graph().as_default(), collectives.Sequence() as sequence:
        collectives.allreduce(tf.zeros([2]), world)
        if world.rank != 2:
            collectives.broadcast(tf.zeros([3]), 0, world, name="only_some")
        try:
            sequence.check()
        except collectives.SequenceError as error:
            message = str(error)
        else:
            raise AssertionError("the difference went unnoticed")
        assert "as number 1" in message
        assert "none on rank 2" in message
        assert "broadcast root 0 float32[3] ranks 0,1,2,3 as only_some on rank" in message


def main() -> None:
    world = collectives.world()
    groups = [world.split(partition) for partition in PARTITIONS]
    check_eager(groups[1])
    for dtype in DTYPES:
        check_values(groups[0], dtype)
    for group in groups:
        check_values(group, tf.float32)
        check_gradients(group)
        check_ties(group)
        check_second_order(group)
        check_sparse(group)
    check_variable(world)
    check_interleaving(groups[:2])
    check_difference(world)
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
