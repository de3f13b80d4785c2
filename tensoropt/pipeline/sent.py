"""What stages of consecutive blocks send each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.ranges import held_by

__all__ = ["crossing", "sent"]


def sent(costs: AtomCosts, block: Int64Array) -> Int64Array:
    """Of each stage what it sends to later ones, and which gradients to earlier ones: a tensor once
    for each stage that reads it.

    A value is sent by the stage that makes it to the next that reads it, and from there on, as it
    is priced: what a stage sends so follows from its own blocks. As execution sends all from the
    stage that makes it, the sums over stages are the same.

    Args:
        costs: of the components.
        block: int64[atoms], the block of each, blocks in topological order.

    Returns:
        int64[2, 2, blocks, blocks, 3]: of values that go on and of gradients that come back; what
        the stage sends, and what else crosses its end, or for gradients its beginning, between
        stages before and behind it; by first and last block; bytes of the whole batch, of these
        what does not grow with the batch, and how many tensors they are.
    """
    blocks = int(block.max()) + 1
    made, readers, back = _users(costs, block)
    weights = [_weight(costs, tensor) for tensor in made]
    on = np.zeros((blocks, blocks, 3), dtype=np.int64)
    for users, weight, maker in zip(readers, weights, made.values(), strict=True):
        ends = [maker, *(user for user in users if user > maker)]
        for here, after in pairwise(ends):
            on[here, here:after] += weight
    on = np.cumsum(on[::-1], axis=0)[::-1]
    gradients = held_by(blocks, zip(back, weights, strict=True), made.values(), each=(3,))
    crossed = _crossed(blocks, made.values(), (readers, back), weights)
    passed = crossed[0, None, 1 : blocks + 1] - on, crossed[1, :blocks, None] - gradients
    return np.stack([[on, passed[0]], [gradients, passed[1]]])


def crossing(costs: AtomCosts, block: Int64Array) -> Int64Array:
    """int64[2, blocks + 2, 3]: before each block, what crosses the boundary, of values that go on
    and of gradients that come back, in the amounts of `sent`. A value crosses all boundaries up to
    its last reader."""
    made, *ends = _users(costs, block)
    weights = [_weight(costs, tensor) for tensor in made]
    return _crossed(int(block.max()) + 1, made.values(), ends, weights)


def _crossed(
    blocks: int,
    makers: Collection[int],
    ends: Sequence[Sequence[tuple[int, ...]]],
    weights: Sequence[Int64Array],
) -> Int64Array:
    """`crossing`, of tensors by the blocks that make and use them, and their amounts."""
    found = np.zeros((2, blocks + 2, 3), dtype=np.int64)
    for kind, users in enumerate(ends):
        for maker, own, weight in zip(makers, users, weights, strict=True):
            found[kind, maker + 1] += weight
            found[kind, max((maker, *own)) + 1] -= weight
    return np.cumsum(found, axis=1)


def _users(
    costs: AtomCosts, block: Int64Array
) -> tuple[dict[TensorName, int], list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Of each tensor that components hand on the block that makes it; the blocks that read it, and
    of these those whose gradient comes back, ascending."""
    graph, atoms = costs.atoms.graph, costs.atoms.atoms
    made: dict[TensorName, int] = {}
    readers: dict[TensorName, set[int]] = {}
    back: dict[TensorName, set[int]] = {}
    for maker, reader, tensor in costs.atoms.edges:
        if tensor is None:
            continue
        made[tensor] = int(block[maker])
        readers.setdefault(tensor, set()).add(int(block[reader]))
        own = back.setdefault(tensor, set())
        operator = graph[atoms[reader].operator]
        through = costs.differentiated.get(operator.name, ())
        if any(operator.inputs[number] == tensor for number in through):
            own.add(int(block[reader]))
    read_in, back_from = ([tuple(sorted(n)) for n in of.values()] for of in (readers, back))
    return made, read_in, back_from


def _weight(costs: AtomCosts, tensor: TensorName) -> Int64Array:
    size = costs.growth.tensor_bytes(tensor, costs.growth.examples)
    return np.array([size, 0 if costs.growth.tensor_grows(tensor) else size, 1], dtype=np.int64)
