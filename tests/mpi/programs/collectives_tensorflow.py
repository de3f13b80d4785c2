"""Stages on tensors against the same computed locally; runs on 4 ranks.

    mpirun -np 4 python collectives_tensorflow.py [native|horovod]

`tests/collectives/test_transports.py` makes the same checks of ranks that live in one process.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import collectives
from collectives.horovod.transport import HorovodTransport, horovod_transport
from collectives.native.transport import native_transport
from collectives.operations.calls import (
    CollectiveCall,
    LocalCall,
    OperationCall,
    Position,
    TensorTransport,
    on_tensors,
)
from collectives.operations.hierarchy import in_hierarchy
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.exchange import Exchange, ExchangeSum
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.local import Mask, Slice
from collectives.operations.operation import Collective, Local
from collectives.windows import MemberWindows

Array = npt.NDArray[Any]
Members = Sequence[collectives.Group]
"""All ranks, as each rank of this process sees them: one rank under MPI, else all of them."""

TRANSPORTS: list[TensorTransport] = []
"""The transport of tensors, where one is to be used."""
DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.bool]
PARTITIONS = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[3, 1, 0, 2]]]


def data(rank: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng([seed, rank]).integers(0, 3, shape).astype(np.float64)


def joint(members: Members, partition: list[list[int]], collective: Collective) -> OperationCall:
    return CollectiveCall(collective, tuple(each.split(partition) for each in members))


def local(members: Members, partition: list[list[int]], operation: Local) -> OperationCall:
    places = []
    for member in members:
        own = next(ranks for ranks in partition if member.rank in ranks)
        places.append(Position(own.index(member.rank), len(own)))
    return LocalCall(operation, tuple(places))


def applied(
    tensors: list[tf.Tensor], calls: list[OperationCall], shape: Sequence[int], record: str = "it"
) -> list[tf.Tensor]:
    if not TRANSPORTS:
        return on_tensors(tensors, calls, shape, record)
    for call in calls:
        known = shape_after(call, tensors[0].shape.as_list())
        tensors = on_tensors(tensors, [call], known, record, transport=TRANSPORTS[0])
    return tensors


def shape_after(call: OperationCall, shape: list[int]) -> list[int]:
    """Return the shape of a result."""
    size = call.positions[0].size if isinstance(call, LocalCall) else call.groups[0].size
    match call.operation:
        case Allgather(dim):
            shape[dim] *= size
        case Slice(dim) | ReduceScatter(dim):
            shape[dim] //= size
        case Alltoall(split_dim, concat_dim):
            shape[split_dim] //= size
            shape[concat_dim] *= size
        case Exchange(dim, windows):
            shape[dim] = windows.length
        case ExchangeSum(dim, windows):
            shape[dim] = windows.extent
    return shape


def session() -> tf.compat.v1.Session:
    config = tf.compat.v1.ConfigProto()
    if not all(transport.is_stateful for transport in TRANSPORTS):
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
    return tf.compat.v1.Session(config=config)


def operators(*kinds: str) -> list[tf.Operation]:
    graph = tf.compat.v1.get_default_graph()
    return [each for each in graph.get_operations() if each.type.startswith(kinds)]


def check_values(members: Members, partition: list[list[int]], dtype: tf.DType) -> None:
    """Each collective alone, in sequences, and with local operations before and after it."""
    arrays = [data(rank, (4, 8)) for rank in range(4)]
    if dtype == tf.bool:
        arrays = [np.minimum(array, 1) for array in arrays]
    results, expected = [], []
    with tf.Graph().as_default(), session() as running, collectives.Sequence():
        tensors = [tf.constant(arrays[member.rank], dtype) for member in members]

        def add(calls: list[OperationCall], wanted: dict[int, Array]) -> None:
            own = [wanted[member.rank] for member in members]
            results.extend(applied(tensors, calls, own[0].shape))
            expected.extend(own)

        by_rank = [_expected(arrays, group, dtype) for group in partition]
        for kind in by_rank[0]:
            wanted = {rank: each for of_group in by_rank for rank, each in of_group[kind].items()}
            add(_calls(members, partition, kind), wanted)
        for result, got, wanted in zip(results, running.run(results), expected, strict=True):
            assert result.dtype == dtype
            assert result.shape.as_list() == list(got.shape)
            np.testing.assert_array_equal(got.astype(np.float64), wanted)


def _calls(members: Members, partition: list[list[int]], kind: str) -> list[OperationCall]:
    n = len(partition[0])
    halo = MemberWindows(tuple(8 * i - 3 for i in range(n)), 12, 8)
    of: dict[str, list[Collective | Local]] = {
        "allreduce": [Allreduce()],
        "allreduce max": [Allreduce("max")],
        "reduce_scatter": [ReduceScatter(1)],
        "allgather": [Allgather(1)],
        "alltoall": [Alltoall(1, 0)],
        "exchange": [Exchange(1, halo, 1)],
        "there and back": [Exchange(1, halo), ExchangeSum(1, halo)],
        "sequence": [Slice(0), Mask("sum"), Allreduce(), Allgather(0), Slice(1)],
        "local": [Mask("prod"), Slice(1)],
    }
    return [
        local(members, partition, operation)
        if isinstance(operation, (Slice, Mask))
        else joint(members, partition, operation)
        for operation in of[kind]
    ]


def _expected(
    arrays: list[Array], group: list[int], dtype: tf.DType
) -> dict[str, dict[int, Array]]:
    n, given = len(group), [arrays[rank] for rank in group]
    total = np.max(given, axis=0) if dtype == tf.bool else np.sum(given, axis=0)
    whole = np.concatenate(given, 1)
    padded = np.pad(whole, ((0, 0), (3, 1)), constant_values=1)
    parts = [np.split(array, n, 1) for array in given]
    # The first member keeps the value of its own rows, so the sum is that of its rows.
    first = np.concatenate([np.split(given[0], n, 0)[0]] * n, 0)
    found: dict[str, list[Array]] = {
        "allreduce": [total] * n,
        "allreduce max": [np.max(given, axis=0)] * n,
        "reduce_scatter": np.split(total, n, 1),
        "allgather": [whole] * n,
        "alltoall": [np.concatenate([part[k] for part in parts], 0) for k in range(n)],
        "exchange": [padded[:, 8 * k : 8 * k + 12] for k in range(n)],
        "there and back": _seen_again(given, n),
        "sequence": np.split(first, n, 1),
        "local": [part[k] if k == 0 else np.ones_like(part[k]) for k, part in enumerate(parts)],
    }
    if dtype == tf.bool:
        found["there and back"] = [np.minimum(each, 1) for each in found["there and back"]]
    return {kind: dict(zip(group, each, strict=True)) for kind, each in found.items()}


def _seen_again(given: list[Array], n: int) -> list[Array]:
    """Each element as often as windows of 3 more to the left and 1 more to the right see it."""
    counts = np.zeros(8 * n)
    for k in range(n):
        counts[max(0, 8 * k - 3) : 8 * k + 9] += 1
    return [array * counts[8 * k : 8 * k + 8] for k, array in enumerate(given)]


def check_calls(members: Members) -> None:
    """A sequence of operations is one host call, or a native operator for each collective; one of
    local operations neither."""
    with tf.Graph().as_default(), collectives.Sequence() as sequence:
        tensors = [tf.zeros([4, 8]) for _ in members]
        applied(tensors, _calls(members, PARTITIONS[0], "local"), (4, 4))
        assert not operators("PyFunc", "CollectivesMove", "Horovod")
        assert sequence.records == ()
        applied(tensors, _calls(members, PARTITIONS[0], "sequence"), (2, 8), "all of it")
        moved = [operation.type for operation in operators("CollectivesMove", "Horovod")]
        if not TRANSPORTS:
            assert (len(operators("PyFunc")), moved) == (1, [])
        elif isinstance(TRANSPORTS[0], HorovodTransport):
            assert moved == ["HorovodAllreduce", "HorovodAllgather"]
        else:
            assert (operators("PyFunc"), moved) == ([], ["CollectivesMove"] * 2)
        assert sequence.records == ("all of it",) * (len(moved) or 1)


def check_variable(members: Members) -> None:
    """TensorFlow hands over a variable's own memory, which no collective may write to."""
    with tf.Graph().as_default(), session() as running, collectives.Sequence():
        mine = [data(member.rank, (64, 64)) for member in members]
        variables = [tf.compat.v1.Variable(array, use_resource=True) for array in mine]
        read = [variable.read_value() for variable in variables]
        results = applied(read, [joint(members, [[0, 1, 2, 3]], Allreduce())], (64, 64))
        running.run([variable.initializer for variable in variables])
        running.run(results)
        for variable, array in zip(variables, mine, strict=True):
            np.testing.assert_array_equal(running.run(variable), array)


def check_interleaving(members: Members) -> None:
    """Independent collectives on crossing groups: only their order keeps them apart."""
    with tf.Graph().as_default(), session() as running:
        results, expected = [], []
        with collectives.Sequence() as sequence:
            for number in range(60):
                partition = PARTITIONS[number % 2]
                tensors = [tf.constant(data(each.rank, (8,), number)) for each in members]
                calls = [joint(members, partition, Allreduce())]
                results += applied(tensors, calls, (8,), f"number {number}")
                for member in members:
                    own = next(ranks for ranks in partition if member.rank in ranks)
                    expected.append(sum(data(rank, (8,), number) for rank in own))
        assert sequence.records == tuple(f"number {number}" for number in range(60))
        for _ in range(5):
            for got, wanted in zip(running.run(results), expected, strict=True):
                np.testing.assert_array_equal(got, wanted)


def check_machines(world: collectives.Group) -> None:
    """Every part of a collective of ranks on two machines is an operator in C++."""
    from mpi4py import MPI

    from collectives.transport.mpi import MpiTransport

    communicator = MPI.COMM_WORLD.Dup()
    group = collectives.Group(MpiTransport(communicator, world.ranks, ("a", "a", "b", "b")))
    transport = native_transport(group)
    assert transport is not None
    for number, collective in enumerate(
        (Allreduce(), Allreduce("max"), Allgather(1), ReduceScatter(0), Alltoall(1, 0))
    ):
        for ranks in ((0, 1, 2, 3), (2, 0, 3, 1)):
            members = group.subgroup(ranks)
            arrays = [data(rank, (4, 20), number) for rank in ranks]
            with tf.Graph().as_default(), session() as running, collectives.Sequence():
                tensor = tf.constant(arrays[members.rank], tf.float32)
                moved = [tensor]
                parts = in_hierarchy(collective, [members], [4, 20])
                assert parts is not None
                for part in parts:
                    moved = on_tensors(moved, [part.call], part.shape, "", transport=transport)
                kinds = [part.kind for part in parts if part.kind]
                assert len(operators("CollectivesMove")) == len(kinds)
                assert not operators("PyFunc")
                whole = CollectiveCall(collective, (members,))
                expected = on_tensors([tensor], [whole], parts[-1].shape, "")
                found, truth = running.run([moved[0], expected[0]])
                np.testing.assert_array_equal(found, truth)


def check_all(members: Members) -> None:
    """Every check, of 4 ranks."""
    for dtype in DTYPES:
        check_values(members, PARTITIONS[0], dtype)
    for partition in PARTITIONS:
        check_values(members, partition, tf.float32)
    check_calls(members)
    check_variable(members)
    check_interleaving(members)


def main() -> None:
    world = collectives.world()
    if "horovod" in sys.argv:
        through_horovod = horovod_transport(world)
        assert through_horovod is not None
        TRANSPORTS.append(through_horovod)
    if "native" in sys.argv:
        transport = native_transport(world)
        assert transport is not None
        transport.overlaps = True  # whatever cores there are
        TRANSPORTS.append(transport)
    check_all([world])
    if "native" in sys.argv:
        check_machines(world)
    world.barrier()  # Horovod ends with the first rank
    print(f"passed on rank {world.rank}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        collectives.world().abort(1)
