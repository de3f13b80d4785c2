"""K-way multilevel partitioning of a graph into blocks (RaNNC, section III-B)."""

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
"""RaNNC's k, which "balances the quality of model partitioning results and the search space"
(section IV-A)."""

_BALANCE = 1.1  # the most time of a block, as a multiple of the mean
_FULL = 0.95  # the share of a block's most time that one node may fill


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Groups of nodes in topological order.

    Attributes:
        of: int64[nodes], the block of every node.
        time, memory: int64[blocks], sums over the nodes of each block.
    """

    of: Int64Array
    time: Int64Array
    memory: Int64Array

    def __len__(self) -> int:
        return int(self.time.size)

    @property
    def imbalance(self) -> float:
        """The longest time of a block, divided by the mean."""
        return float(self.time.max() / max(self.time.mean(), 1e-9))


def partition(dag: Dag, memory_limit: int, blocks: int = BLOCKS) -> Blocks:
    """Group the nodes of a graph into blocks of about equal time that send each other little.

    Every block is convex, and blocks are numbered in a topological order. In contrast to RaNNC,
    compaction comes before uncoarsening, so that the boundaries of compacted blocks move, too. A
    block takes at most `_BALANCE` times the mean, unless it has to take more. A node that alone
    takes longer gets a block with almost no other work.

    Args:
        dag: the nodes.
        memory_limit: the most bytes of a block.
        blocks: the number of blocks; at most the number of nodes is made.

    Raises:
        InfeasibleError: if a node does not fit the memory, or the blocks do not hold all nodes.
        OptionError: if there are no nodes or no blocks.
    """
    if blocks < 1 or not len(dag):
        raise OptionError(
            "a graph of at least one node becomes at least one block. "
            f"Got {len(dag)} nodes and {blocks} blocks."
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
    cap = int(_BALANCE * dag.time.sum() / blocks)
    coarsest = compact(dag, rounds[-1], blocks, memory_limit)
    # A node that alone is too long counts as almost a full block.
    even = replace(dag, time=np.minimum(dag.time, int(_FULL * cap)))
    if coarsest is None:
        rounds = rounds[:1]
        coarsest = recut(even, rounds[0], blocks, memory_limit, cap)
    if coarsest is None:
        raise InfeasibleError(
            f"{blocks} blocks of at most {memory_limit} bytes hold the model. Got a model of "
            f"{int(dag.memory.sum())} bytes, which does not fit; use more blocks, smaller "
            "microbatches or devices with more memory."
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
    """Return the block of each node, with blocks renumbered in topological order."""
    order = quotient_order(dag, block, blocks)
    assert order is not None, "uncoarsening keeps an order of its blocks"
    place = np.empty(blocks, dtype=np.int64)
    place[order] = np.arange(blocks)
    return place[block]
