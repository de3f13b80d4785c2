"""Each rank reads its rows of a batch, and every row is read by one rank."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import Group
from collectives.transport.in_process import InProcessTransport
from tensoropt.errors import FeedError
from tensoropt.execution.lowering.fed_shards import FedShards, fed_shards
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.execution.world.shares import Share, joined_ranges
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.step_graph import MICROBATCH

MESH = Mesh((2, 2))


def shards(size: int, dtype: str = "float32", parts: int = 1) -> list[list[FedShards]]:
    """For each rank the shards of a batch of three columns, or of its microbatches."""
    spec = TensorSpec((size // parts, 3), dtype)
    fed = [
        Operator(f"x{n}", "Placeholder", (), (), (spec,), {MICROBATCH: (0, n, parts)}, copy_of="x")
        for n in range(parts)
    ]
    graph = Graph({operator.name: operator for operator in fed})
    by_rank = []
    for transport in InProcessTransport.all_of(MESH.size):
        world = MPIWorld(MESH, Group(transport), "host")
        strategy = Strategy(graph, MESH, {}, frozenset(graph.operators))
        by_rank.append(
            list(fed_shards(dict.fromkeys(graph.operators, ()), graph, strategy, world).values())
        )
    return by_rank


@pytest.mark.parametrize("dtype", ["float32", "string"])
@pytest.mark.parametrize(("size", "parts"), [(8, 1), (6, 1), (7, 1), (16, 2), (12, 2)])
def test_every_row_is_read_by_one_rank(size: int, parts: int, dtype: str) -> None:
    """The rows that are computed from the size are those that the rank is fed."""
    at_size, at_other = shards(size, dtype, parts), shards(32, dtype, parts)
    whole = np.arange(3 * size).reshape(size, 3)
    read: list[int] = []
    for fed, other in zip(at_size, at_other, strict=True):
        rows = joined_ranges(each for shard in fed for each in shard.rows_at(size))
        assert rows == joined_ranges(each for shard in other for each in shard.rows_at(size))
        value = np.concatenate([whole[:0], *(whole[start:stop] for start, stop in rows)])
        share = Share(np.reshape(rows, (-1, 2)).astype(np.int64), value, size)
        for shard in fed:
            (cut,), (wanted,) = shard.cut(share), shard.cut(whole)
            assert cut.shape == wanted.shape
            assert not shard.world.sends(shard.shared_axes) or np.array_equal(cut, wanted)
        read += [row for start, stop in rows for row in range(start, stop)]
    assert sorted(read) == list(range(size))


def test_a_rank_needs_its_rows() -> None:
    first, second, *_ = (fed[0] for fed in shards(8))
    share = Share(np.array(first.rows_at(8)), np.zeros((2, 3)), 8)
    with pytest.raises(FeedError, match=r"\[\[0, 2\]\] of 8 for 'x' on a rank that reads \[\(2, 4"):
        second.cut(share)
