"""Every NumPy collective against the same computed locally; runs on any number of ranks."""

from __future__ import annotations

import itertools
import sys
import traceback
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import collectives

Array = npt.NDArray[Any]

REDUCED = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"]
MOVED = [*REDUCED, "complex64", "complex128", "uint16", "datetime64[s]", "S3"]
FUNCTIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
LOGICAL: dict[str, np.ufunc] = {
    "sum": np.logical_or,
    "max": np.logical_or,
    "min": np.logical_and,
    "prod": np.logical_and,
}


def data(rank: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """What a rank contributes: every rank can compute every other's."""
    values = np.random.default_rng(rank).integers(0, 3, shape)
    result: Array = values.astype(dtype)
    if np.dtype(dtype).kind == "c":
        result += 1j * values.max(initial=1)
    return result


def reduced(arrays: list[Array], reducer: str) -> Array:
    function = LOGICAL[reducer] if arrays[0].dtype == np.bool_ else FUNCTIONS[reducer]
    result: Array = function.reduce(np.stack(arrays)).astype(arrays[0].dtype)
    return result


def expect(result: Array, expected: Array) -> None:
    assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    np.testing.assert_array_equal(result, expected)
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.size == 0 or result.ctypes.data % 64 == 0


def check_reductions(group: collectives.Group, dtype: Any, reducer: str) -> None:
    shape = (2, 3 * group.size)
    arrays = [data(rank, shape, dtype) for rank in group.ranks]
    mine = arrays[group.rank].copy()
    mine.flags.writeable = False
    expected = reduced(arrays, reducer)
    expect(group.allreduce(mine, reducer), expected)
    expect(group.allreduce(np.asfortranarray(mine), reducer), expected)
    expect(group.allreduce(mine[0, 0], reducer), expected[0, 0])
    pieces = np.split(expected, group.size, 1)
    expect(group.reduce_scatter(mine, -1, reducer), pieces[group.rank])
    expect(group.reduce_scatter(mine.T, 0, reducer), pieces[group.rank].T)


def check_movements(group: collectives.Group, dtype: Any) -> None:
    shape = (group.size, 2, 2 * group.size)
    arrays = [data(rank, shape, dtype) for rank in group.ranks]
    mine = arrays[group.rank].copy()
    mine.flags.writeable = False
    for dim in (0, 1, 2, -1):
        expect(group.allgather(mine, dim), np.concatenate(arrays, dim))
    turned = [array.transpose(2, 0, 1)[::-1] for array in arrays]
    expect(group.allgather(turned[group.rank], 1), np.concatenate(turned, 1))
    for source, target in itertools.product((0, 2), (0, 1, 2)):
        pieces = [np.split(array, group.size, source)[group.rank] for array in arrays]
        expect(group.alltoall(mine, source, target), np.concatenate(pieces, target))
    for root in range(group.size):
        expect(group.broadcast(mine, root), arrays[root])
        expect(group.broadcast(mine[:, 0], root), arrays[root][:, 0])
    expect(group.broadcast(mine[0, 0, 0], 0), arrays[0][0, 0, 0])


def check_windows(group: collectives.Group, dtype: Any) -> None:
    """Halos within and beyond a neighbour, windows that leave elements out, and uneven ones."""
    n, extent = group.size, 3
    arrays = [data(rank, (2, extent, 2), dtype) for rank in group.ranks]
    mine = arrays[group.rank].copy()
    mine.flags.writeable = False
    whole = np.concatenate(arrays, 1)
    around = [(1, 1), (0, 2), (4, 7), (-1, 0), (-1, -1), (0, 0)]
    kinds = [([i * extent - b for i in range(n)], b + extent + a) for b, a in around]
    kinds += [([2 * i for i in range(n)], 5), ([-9] * n, 4), ([1] * n, 0)]
    for starts, length in kinds:
        edge = 20
        padded = np.full((2, n * extent + 2 * edge, 2), 1, dtype)
        padded[:, edge : edge + n * extent] = whole
        region = slice(starts[group.rank] + edge, starts[group.rank] + edge + length)
        expect(group.exchange(mine, 1, starts, length, 1), padded[:, region])
        expect(group.exchange(mine.T, -2, starts, length, 1), padded[:, region].T)
        if np.dtype(dtype).name not in REDUCED:
            continue
        total = np.zeros((2, n * extent + 2 * edge, 2), dtype)
        for rank, start in zip(group.ranks, starts, strict=True):
            part = total[:, start + edge : start + edge + length]
            part[...] = part + data(rank, (2, length, 2), dtype)
        own = edge + group.rank * extent
        given = data(group.ranks[group.rank], (2, length, 2), dtype)
        given.flags.writeable = False
        expect(group.exchange_sum(given, 1, starts, extent), total[:, own : own + extent])


def check_empty(group: collectives.Group) -> None:
    empty = np.zeros((2 * group.size, 0, 3), np.float32)
    expect(group.allreduce(empty), empty)
    expect(group.allgather(empty, 2), np.zeros((2 * group.size, 0, 3 * group.size), np.float32))
    expect(group.reduce_scatter(empty), np.zeros((2, 0, 3), np.float32))
    expect(group.alltoall(empty, 0, 1), np.zeros((2, 0, 3), np.float32))
    expect(group.broadcast(empty), empty)
    starts = [0] * group.size
    expect(group.exchange(empty, 2, starts, 5), np.zeros((2 * group.size, 0, 5), np.float32))
    expect(group.exchange_sum(empty, 2, starts, 1), np.zeros((2 * group.size, 0, 1), np.float32))


def check_half(group: collectives.Group, dtype: Any) -> None:
    """Half precision is summed in single: small parts do not vanish beside a large one."""
    step = 2.0**-10 if dtype == np.float16 else 2.0**-7
    mine = np.array([1.0 if group.rank == 0 else 0.4 * step], dtype)
    exact = np.float32(1.0) + (group.size - 1) * np.float32(np.dtype(dtype).type(0.4 * step))
    expect(group.allreduce(mine), np.array([exact], np.float32).astype(dtype))


def check_job(world: collectives.Group) -> None:
    assert world.ranks == tuple(range(world.size))
    assert world.ranks[world.rank] == world.rank
    assert collectives.world() is world
    values = [{"rank": rank, "text": "é" * rank, "none": None} for rank in range(world.size)]
    assert world.allgather_object(values[world.rank]) == values
    assert world.hosts == tuple(world.allgather_object(world.host))
    assert world.local_size() == world.size
    assert world.local_rank() == world.rank
    world.barrier()


def main() -> None:
    world = collectives.world()
    check_job(world)
    last = world.size - 1
    groups = [world, world.subgroup(tuple(reversed(world.ranks)))]
    if world.size > 1 and world.rank in (0, last):
        groups.append(world.subgroup((last, 0)))
        assert world.subgroup((last, 0)).label == f"{last},0"
    for group in groups:
        check_empty(group)
        for dtype, reducer in itertools.product(REDUCED, collectives.REDUCERS):
            check_reductions(group, dtype, reducer)
        for dtype, reducer in itertools.product(("complex64", "complex128"), ("sum", "prod")):
            check_reductions(group, dtype, reducer)
        for reducer in collectives.REDUCERS:
            check_reductions(group, ml_dtypes.bfloat16, reducer)
        for half in (np.float16, ml_dtypes.bfloat16):
            check_half(group, half)
        for moved in [*MOVED, ml_dtypes.bfloat16]:
            check_movements(group, moved)
            check_windows(group, moved)
    assert "tensorflow" not in sys.modules
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
