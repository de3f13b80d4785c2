"""Blocks are convex, have an order, fit the memory and take about as long as each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tensoropt.arrays import Int64Array
from tensoropt.errors import GraphError, InfeasibleError, OptionError
from tensoropt.pipeline.blocks.coarsening import coarsen
from tensoropt.pipeline.blocks.dag import Dag, quotient_order
from tensoropt.pipeline.blocks.partition import partition
from tensoropt.pipeline.blocks.recutting import recut
from tests.proofs import proof


def is_convex(dag: Dag, members: npt.NDArray[np.bool_]) -> bool:
    """Whether no path leaves a set of nodes, bool[nodes], and returns to it (section III-B)."""
    outside: set[int] = set()  # nodes on a path that has left the set
    for here, there in zip(dag.source.tolist(), dag.target.tolist(), strict=True):  # by source
        if here in outside or (members[here] and not members[there]):
            if members[there]:
                return False
            outside.add(there)
    return True


def random_dag(seed: int) -> Dag:
    """Chains with skips, or any edges: of some dozens of nodes."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 60))
    pairs = rng.integers(0, size, (int(rng.integers(0, 3 * size)), 2))
    near = size if seed % 2 else 8
    edges = [(int(a), int(b), int(rng.integers(1000))) for a, b in pairs if a < b <= a + near]
    if seed % 3 == 0:
        edges += [(node, node + 1, 10) for node in range(size - 1)]
    return Dag.of_edges(rng.integers(1, 100, size), rng.integers(1, 100, size), edges)


def sent(dag: Dag, block: Int64Array) -> int:
    most: dict[tuple[int, int], int] = {}
    for source, target, bytes_ in zip(dag.source, dag.target, dag.bytes, strict=True):
        if block[source] != block[target]:
            key = int(source), int(block[target])
            most[key] = max(int(bytes_), most.get(key, 0))
    return sum(most.values())


@pytest.mark.parametrize("first", [0, *map(proof, range(1_000, 10_000, 1_000))])
def test_blocks_are_convex_ordered_and_fit(first: int) -> None:
    for seed in range(first, first + 1_000):
        check_blocks(seed)


def check_blocks(seed: int) -> None:
    dag = random_dag(seed)
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 10))
    limit = int(max(dag.memory.max(), rng.uniform(1.3, 3) * dag.memory.sum() / count))
    try:
        blocks = partition(dag, limit, count)
    except InfeasibleError:
        order = np.arange(len(dag))  # the nodes' order has no cuts that fit, either
        assert recut(dag, order, min(count, len(dag)), limit, 0) is None
        return
    assert set(blocks.of.tolist()) == set(range(min(count, len(dag))))
    assert (blocks.memory <= limit).all()
    assert (blocks.of[dag.source] <= blocks.of[dag.target]).all()
    assert all(is_convex(dag, blocks.of == number) for number in range(len(blocks)))
    assert np.array_equal(blocks.time, np.bincount(blocks.of, weights=dag.time))
    if limit >= dag.memory.sum():  # else memory may stand against balance
        assert blocks.time.max() <= dag.time.max() + 1.1 * blocks.time.mean()


def test_every_round_of_coarsening_has_an_order_where_convex_pairs_have_none() -> None:
    # {0, 2} and {1, 3} are convex each, and need each other.
    crossed = Dag.of_edges([1] * 4, [0] * 4, [(0, 2, 1), (1, 3, 1), (0, 3, 1), (1, 2, 1)])
    pairs = np.array([0, 1, 0, 1])
    assert is_convex(crossed, pairs == 0)
    assert is_convex(crossed, pairs == 1)
    assert quotient_order(crossed, pairs, 2) is None
    for group in coarsen(crossed, 1, 10):
        assert quotient_order(crossed, group, int(group.max()) + 1) is not None


def test_a_boundary_moves_to_where_less_is_sent() -> None:
    bytes_ = [100, 100, 1, 100, 100, 1, 100, 100]
    chain = Dag.of_edges([10] * 9, [0] * 9, [(n, n + 1, b) for n, b in enumerate(bytes_)])
    blocks = partition(chain, 0, 3)
    assert blocks.of.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sent(chain, blocks.of) == 2


def test_a_long_chain_of_unlike_layers_is_balanced() -> None:
    rng = np.random.default_rng(0)
    time = rng.choice([1, 2, 50], 3000, p=[0.5, 0.4, 0.1])
    edges = [(node, node + 1, int(rng.integers(1, 100))) for node in range(2999)]
    edges += [(0, node, 1) for node in range(7, 3000, 60)]
    dag = Dag.of_edges(time, time, edges)
    blocks = partition(dag, int(time.sum()))
    assert len(blocks) == 32
    assert blocks.imbalance <= 1.1 + 50 / blocks.time.mean()
    longest = recut(dag, np.arange(3000), 32, int(time.sum()), int(1.1 * blocks.time.mean()))
    assert longest is not None
    assert sent(dag, blocks.of) <= sent(dag, longest)


def test_errors_say_what_does_not_fit() -> None:
    dag = Dag.of_edges([1, 1, 1], [5, 9, 5], [(0, 1, 1), (1, 2, 1)])
    with pytest.raises(InfeasibleError, match="Got 9 bytes for number 1"):
        partition(dag, 8)
    with pytest.raises(InfeasibleError, match="1 blocks of at most 12 bytes"):
        partition(dag, 12, 1)
    with pytest.raises(OptionError, match="at least one block"):
        partition(dag, 12, 0)
    with pytest.raises(GraphError, match="edges lead to later ones"):
        Dag.of_edges([1, 1], [1, 1], [(1, 0, 1)])
