"""K-way multilevel partitioning of a graph into blocks (section III-B)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import InfeasibleError, OptionError
from tensoropt.pipeline.blocks.coarsening import coarsen
from tensoropt.pipeline.blocks.compaction import compact
from tensoropt.pipeline.blocks.dag import Dag, quotient_order
from tensoropt.pipeline.blocks.recutting import recut
from tensoropt.pipeline.blocks.uncoarsening import uncoarsen

__all__ = ["BLOCKS", "Blocks", "partition"]

BLOCKS = 32
"""RaNNC's k: what it thinks "balances the quality of model partitioning results and the search
space" (section IV-A)."""

_BALANCE = 1.1
_FULL = 0.95  # of what a block may take


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Groups of nodes in topological order.

    Attributes:
        of: int64[nodes], the number of every node's block.
        time, memory: int64[blocks], sums of the nodes'.
    """

    of: Int64Array
    time: Int64Array
    memory: Int64Array

    def __len__(self) -> int:
        return int(self.time.size)

    @property
    def imbalance(self) -> float:
        """The longest time over the mean."""
        return float(self.time.max() / max(self.time.mean(), 1e-9))


def partition(
    dag: Dag, memory_limit: int, blocks: int = BLOCKS, balance: float = _BALANCE
) -> Blocks:
    """Group the nodes of a graph into blocks of about equal time that send each other little.

    Every block is convex, and all have a topological order, in which they are numbered. Compaction
    comes before uncoarsening here, so that the boundaries of what it joins move, too.

    Args:
        dag: the nodes.
        memory_limit: bytes of a block at most.
        blocks: how many; as many as there are nodes, if these are fewer.
        balance: how much of the blocks' mean time a block takes at most, where it can be so. A node
            that alone takes more has a block with next to nothing beside it.

    Raises:
        InfeasibleError: if a node does not fit the memory, or not so few blocks do.
        OptionError: if there is to be no block, or less than the mean is allowed.
    """
    if blocks < 1 or balance < 1 or not len(dag):
        raise OptionError(
            "a graph of at least one node becomes at least one block, of a balance of at least 1. "
            f"Got {len(dag)} nodes, {blocks} blocks and balance {balance}."
        )
    heaviest = int(dag.memory.argmax())
    if dag.memory[heaviest] > memory_limit:
        raise InfeasibleError(
            f"every atomic component fits the memory of {memory_limit} bytes. Got "
            f"{int(dag.memory[heaviest])} bytes for number {heaviest}; use smaller microbatches or "
            "devices with more memory."
        )
    blocks = min(blocks, len(dag))
    rounds = coarsen(dag, blocks, memory_limit)
    cap = int(balance * dag.time.sum() / blocks)
    coarsest = compact(dag, rounds[-1], blocks, memory_limit)
    # A node that alone is too long fills a block, but for little beside it.
    even = replace(dag, time=np.minimum(dag.time, int(_FULL * cap)))
    if coarsest is None:
        rounds = rounds[:1]
        coarsest = recut(even, rounds[0], blocks, memory_limit, cap)
    if coarsest is None:
        raise InfeasibleError(
            f"{blocks} blocks hold the model, each within {memory_limit} bytes. Got "
            f"{int(dag.memory.sum())} bytes, which they found no room for; use more blocks, "
            "smaller microbatches or devices with more memory."
        )
    block = _ordered(dag, uncoarsen(even, rounds, coarsest, memory_limit, cap), blocks)
    if np.bincount(block, weights=even.time, minlength=blocks).max() > cap:
        order = np.argsort(block, kind="stable").astype(np.int64)
        again = recut(even, order, blocks, memory_limit, cap)
        if again is not None:
            block = uncoarsen(even, rounds[:1], again, memory_limit, cap)
            block = _ordered(dag, block, blocks)
    time, memory = np.zeros(blocks, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    np.add.at(time, block, dag.time)
    np.add.at(memory, block, dag.memory)
    return Blocks(block, time, memory)


def _ordered(dag: Dag, block: Int64Array, blocks: int) -> Int64Array:
    """Blocks numbered in topological order."""
    order = quotient_order(dag, block, blocks)
    assert order is not None, "uncoarsening keeps an order of its blocks"
    place = np.empty(blocks, dtype=np.int64)
    place[order] = np.arange(blocks)
    return place[block]
