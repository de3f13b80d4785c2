"""Every collective on arrays against the same computed locally; runs on any number of ranks.

`tests/collectives/test_transports.py` makes the same checks of ranks that live in one process.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import collectives
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.broadcast import Broadcast
from collectives.operations.kinds.exchange import Exchange, ExchangeSum
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.windows import MemberWindows

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


Groups = Sequence[collectives.Group]
"""One group, as each rank of this process sees it: one rank under MPI, else all of them."""


def expect_all(
    groups: Groups, collective: Collective, arrays: list[Array], expected: Sequence[Array]
) -> None:
    """The collective on one array per member gives each member what is expected of it."""
    mine = [np.asarray(arrays[group.rank]).view() for group in groups]
    for array in mine:
        array.flags.writeable = False
    halves = [group.start(collective, array) for group, array in zip(groups, mine, strict=True)]
    for group in groups:
        group.wait()
    for group, finish in zip(groups, halves, strict=True):
        expect(finish(), expected[group.rank])


def check_reductions(groups: Groups, dtype: Any, reducer: str) -> None:
    size = groups[0].size
    arrays = [data(rank, (2, 3 * size), dtype) for rank in groups[0].ranks]
    expected = reduced(arrays, reducer)
    expect_all(groups, Allreduce(reducer), arrays, [expected] * size)
    fortran = [np.asfortranarray(array) for array in arrays]
    expect_all(groups, Allreduce(reducer), fortran, [expected] * size)
    scalars = [array[0, 0] for array in arrays]
    expect_all(groups, Allreduce(reducer), scalars, [expected[0, 0]] * size)
    shards = np.split(expected, size, 1)
    expect_all(groups, ReduceScatter(-1, reducer), arrays, shards)
    turned = [array.T for array in arrays]
    expect_all(groups, ReduceScatter(0, reducer), turned, [shard.T for shard in shards])


def check_movements(groups: Groups, dtype: Any) -> None:
    size = groups[0].size
    arrays = [data(rank, (size, 2, 2 * size), dtype) for rank in groups[0].ranks]
    for dim in (0, 1, 2, -1):
        expect_all(groups, Allgather(dim), arrays, [np.concatenate(arrays, dim)] * size)
    turned = [array.transpose(2, 0, 1)[::-1] for array in arrays]
    expect_all(groups, Allgather(1), turned, [np.concatenate(turned, 1)] * size)
    for source, target in itertools.product((0, 2), (0, 1, 2)):
        parts = [np.split(array, size, source) for array in arrays]
        joined = [np.concatenate([part[k] for part in parts], target) for k in range(size)]
        expect_all(groups, Alltoall(source, target), arrays, joined)
    for root in range(size):
        expect_all(groups, Broadcast(root), arrays, [arrays[root]] * size)
        columns = [array[:, 0] for array in arrays]
        expect_all(groups, Broadcast(root), columns, [columns[root]] * size)
    scalars = [array[0, 0, 0] for array in arrays]
    expect_all(groups, Broadcast(0), scalars, [scalars[0]] * size)


def check_windows(groups: Groups, dtype: Any) -> None:
    """Halos within and beyond a neighbour, windows that leave elements out, and uneven ones."""
    n, extent, edge = groups[0].size, 3, 20
    arrays = [data(rank, (2, extent, 2), dtype) for rank in groups[0].ranks]
    around = [(1, 1), (0, 2), (4, 7), (-1, 0), (-1, -1), (0, 0)]
    kinds = [([i * extent - b for i in range(n)], b + extent + a) for b, a in around]
    kinds += [([2 * i for i in range(n)], 5), ([-9] * n, 4), ([1] * n, 0)]
    for starts, length in kinds:
        windows = MemberWindows(tuple(starts), length, extent)
        padded = np.full((2, n * extent + 2 * edge, 2), 1, dtype)
        padded[:, edge : edge + n * extent] = np.concatenate(arrays, 1)
        seen = [padded[:, start + edge : start + edge + length] for start in starts]
        expect_all(groups, Exchange(1, windows, 1), arrays, seen)
        turned = [array.T for array in arrays]
        expect_all(groups, Exchange(1, windows, 1), turned, [window.T for window in seen])
        if np.dtype(dtype).name not in REDUCED:
            continue
        given = [data(rank, (2, length, 2), dtype) for rank in groups[0].ranks]
        total = np.zeros((2, n * extent + 2 * edge, 2), dtype)
        for window, start in zip(given, starts, strict=True):
            part = total[:, start + edge : start + edge + length]
            part[...] = part + window
        shards = np.split(total[:, edge : edge + n * extent], n, 1)
        expect_all(groups, ExchangeSum(1, windows), given, shards)


def check_empty(groups: Groups) -> None:
    size = groups[0].size
    empty = np.zeros((2 * size, 0, 3), np.float32)
    for collective, shape in (
        (Allreduce(), (2 * size, 0, 3)),
        (Allgather(2), (2 * size, 0, 3 * size)),
        (ReduceScatter(), (2, 0, 3)),
        (Alltoall(0, 1), (2, 0, 3)),
        (Broadcast(), (2 * size, 0, 3)),
        (Exchange(2, MemberWindows((0,) * size, 5, 3)), (2 * size, 0, 5)),
        (ExchangeSum(2, MemberWindows((0,) * size, 3, 1)), (2 * size, 0, 1)),
    ):
        expect_all(groups, collective, [empty] * size, [np.zeros(shape, np.float32)] * size)


def check_half(groups: Groups, dtype: Any) -> None:
    """Half precision is summed in single: small parts do not vanish beside a large one."""
    size = groups[0].size
    step = 2.0**-10 if dtype == np.float16 else 2.0**-7
    arrays = [np.array([1.0 if k == 0 else 0.4 * step], dtype) for k in range(size)]
    exact = np.float32(1.0) + (size - 1) * np.float32(np.dtype(dtype).type(0.4 * step))
    expected = np.array([exact], np.float32).astype(dtype)
    expect_all(groups, Allreduce(), arrays, [expected] * size)


def check_methods(group: collectives.Group) -> None:
    """The methods of a group are its collectives, both halves at once."""
    n = group.size
    arrays = [data(rank, (n, 2 * n), "float32") for rank in group.ranks]
    mine, whole = arrays[group.rank], np.concatenate(arrays, 1)
    own = slice(2 * group.rank, 2 * group.rank + 2)
    expect(group.allreduce(mine, "max"), reduced(arrays, "max"))
    expect(group.reduce_scatter(mine, 1), reduced(arrays, "sum")[:, own])
    expect(group.allgather(mine, -1), whole)
    expect(group.alltoall(mine, 1, 0), np.concatenate([array[:, own] for array in arrays], 0))
    expect(group.broadcast(mine, n - 1), arrays[-1])
    starts = [2 * n * place for place in range(n)]
    expect(group.exchange(mine, -1, starts, 2 * n), mine)
    expect(group.exchange_sum(mine, -1, starts, 2 * n), mine)


def check_messages(groups: Groups) -> None:
    """Each member sends the next one two arrays, a large one first, which come in another order."""
    for dtype in ("float64", "float16", ml_dtypes.bfloat16) if groups[0].size > 1 else ():
        check_messages_of(groups, dtype)


def check_messages_of(groups: Groups, dtype: Any) -> None:
    size = groups[0].size
    large, small = (1 << 18, 3), (2, 0, 1)
    for group in groups:
        for tag, shape in enumerate((large, small)):
            sent = data(group.rank, shape, dtype)
            group.send(sent, (group.rank + 1) % size, tag)
            sent[...] = 0  # what is sent is a copy
    for group in groups:
        source = (group.rank - 1) % size
        for tag, shape in ((1, small), (0, large)):
            received = group.receive(shape, np.dtype(dtype), source, tag)
            expect(received, data(source, shape, dtype))


def check_all(groups: Groups) -> None:
    """Every collective on every kind of element."""
    check_empty(groups)
    for dtype, reducer in itertools.product(REDUCED, collectives.REDUCERS):
        check_reductions(groups, dtype, reducer)
    for dtype, reducer in itertools.product(("complex64", "complex128"), ("sum", "prod")):
        check_reductions(groups, dtype, reducer)
    for reducer in collectives.REDUCERS:
        check_reductions(groups, ml_dtypes.bfloat16, reducer)
    for half in (np.float16, ml_dtypes.bfloat16):
        check_half(groups, half)
    for moved in [*MOVED, ml_dtypes.bfloat16]:
        check_movements(groups, moved)
        check_windows(groups, moved)


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
        assert world.subgroup((last, 0)).ranks == (last, 0)
    for group in groups:
        check_all([group])
        check_messages([group])
        check_methods(group)
    assert "tensorflow" not in sys.modules
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
