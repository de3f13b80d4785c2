"""The tensors that stages of consecutive blocks send each other, in bytes and messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.ranges import used_sums

__all__ = ["crossing", "sent", "sent_columns"]


def sent(costs: AtomCosts, block: Int64Array) -> Int64Array:
    """Return the amounts that every stage sends: values to later stages, gradients to earlier ones.

    A tensor is sent once to each stage that reads it. For the price, the stage that makes a value
    sends it to its next reader, and that reader sends it to the one after. So the amount that a
    stage sends follows from its own blocks alone. In execution the maker sends to all readers;
    the sum over all stages is the same.

    Args:
        costs: the components.
        block: int64[atoms], the block of each component; blocks are in topological order.

    Returns:
        int64[2, 2, blocks, blocks, 3], with these axes:

        - 0: values that go to later stages; 1: gradients that come back;
        - 0: amounts that the stage itself sends; 1: amounts that earlier and later stages send
          each other past it: values past its end, gradients past its beginning;
        - the first, and the last block of the stage;
        - bytes of the whole batch; bytes that do not grow with the batch; number of tensors.
    """
    blocks = int(block.max()) + 1
    makers, readers, back = _users(costs, block)
    weights = [_weight(costs, tensor) for tensor in makers]
    values = np.zeros((blocks, blocks, 3), dtype=np.int64)
    for users, weight, maker in zip(readers, weights, makers.values(), strict=True):
        ends = [maker, *(user for user in users if user > maker)]
        for here, after in pairwise(ends):
            values[here, here:after] += weight
    values = np.cumsum(values[::-1], axis=0)[::-1]
    gradients = used_sums(blocks, zip(back, weights, strict=True), makers.values(), shape=(3,))
    crossed = _crossed(blocks, makers.values(), (readers, back), weights)
    passed = crossed[0, None, 1 : blocks + 1] - values, crossed[1, :blocks, None] - gradients
    return np.stack([[values, passed[0]], [gradients, passed[1]]])


def sent_columns(bytes_: Int64Array, tensors: Int64Array) -> list[Int64Array]:
    """Return what a stage sends as columns, each int64[blocks, blocks].

    They are the last eight of `tensoropt.pipeline.stages.points.COLUMNS`.

    Args:
        bytes_: int64[2, 2, blocks, blocks], bytes by the first four axes of `sent`.
        tensors: the numbers of tensors, by the same axes.
    """
    return [
        amounts[way, kind] for kind in range(2) for amounts in (bytes_, tensors) for way in range(2)
    ]


def crossing(costs: AtomCosts, block: Int64Array) -> Int64Array:
    """Return int64[2, blocks + 2, 3]: the amounts that cross the boundary before each block.

    The first row is that of values, the second that of gradients; the amounts are those of `sent`.
    A value crosses all boundaries up to its last reader.
    """
    makers, *ends = _users(costs, block)
    weights = [_weight(costs, tensor) for tensor in makers]
    return _crossed(int(block.max()) + 1, makers.values(), ends, weights)


def _crossed(
    blocks: int,
    makers: Collection[int],
    ends: Sequence[Sequence[tuple[int, ...]]],
    weights: Sequence[Int64Array],
) -> Int64Array:
    """Return `crossing`, for tensors given by their maker, their users and their amounts."""
    changes = np.zeros((2, blocks + 2, 3), dtype=np.int64)
    for kind, users in enumerate(ends):
        for maker, tensor_users, weight in zip(makers, users, weights, strict=True):
            changes[kind, maker + 1] += weight
            changes[kind, max((maker, *tensor_users)) + 1] -= weight
    return np.cumsum(changes, axis=1)


def _users(
    costs: AtomCosts, block: Int64Array
) -> tuple[dict[TensorName, int], list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return, for each tensor between components, its maker, its readers and its differentiators.

    All of them are blocks, in ascending order. Differentiators are readers that send a gradient
    back.
    """
    graph, atoms = costs.atoms.graph, costs.atoms.atoms
    makers: dict[TensorName, int] = {}
    readers: dict[TensorName, set[int]] = {}
    back: dict[TensorName, set[int]] = {}
    for maker, reader, tensor in costs.atoms.edges:
        if tensor is None:
            continue
        makers[tensor] = int(block[maker])
        readers.setdefault(tensor, set()).add(int(block[reader]))
        differentiators = back.setdefault(tensor, set())
        operator = graph[atoms[reader].operator]
        numbers = costs.differentiated.get(operator.name, ())
        if any(operator.inputs[number] == tensor for number in numbers):
            differentiators.add(int(block[reader]))
    read_in, back_from = (
        [tuple(sorted(blocks)) for blocks in users.values()] for users in (readers, back)
    )
    return makers, read_in, back_from


def _weight(costs: AtomCosts, tensor: TensorName) -> Int64Array:
    """Return int64[3]: the amounts of one tensor, as `sent` has them."""
    size = costs.growth.tensor_bytes(tensor, costs.growth.examples)
    return np.array([size, 0 if costs.growth.tensor_grows(tensor) else size, 1], dtype=np.int64)
