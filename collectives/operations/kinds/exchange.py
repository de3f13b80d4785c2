"""exchange: every member gets a window of the whole array: its shard with the halo around it.

`ExchangeSum` is the reverse: every halo goes back to the member that owns its elements, which adds
the halos up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from collectives.buffers import Array, check_movable, fresh
from collectives.operations import arrays
from collectives.operations.arrays import part
from collectives.operations.operation import Elements, Finish
from collectives.reduction import restored, wire
from collectives.transport import Transport
from collectives.windows import MemberWindows

__all__ = ["Exchange", "ExchangeSum"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """This member's window of all arrays joined along a dimension.

    If no window has elements of another member's shard, this is a `Local` operation, too.

    Attributes:
        dim: the dimension, counted from the front.
        windows: the windows of all members; every member gives the same.
        fill: value of the elements of a window beyond the ends of the whole.
    """

    dim: int
    windows: MemberWindows
    fill: float = 0

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del size
        own = elements.part(x, self.dim, self.windows.in_shard(place, place))
        before = self.windows.in_window(place, place).start
        return elements.padded(own, self.dim, before, self.windows.length, self.fill)

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            DTypeError: if the elements are Python objects.
        """
        check_movable(array.dtype)
        me, members = transport.rank, range(len(transport.ranks))
        if not self.windows.crosses:
            return partial(self.apply, array, me, len(members), arrays)
        dim, length = self.dim, self.windows.length
        sent = [part(array, dim, self.windows.in_shard(member, me)) for member in members]
        places = [self.windows.in_window(me, member) for member in members]
        window = fresh((*array.shape[:dim], length, *array.shape[dim + 1 :]), array.dtype)
        before, after = self.windows.outside(me)
        part(window, dim, slice(0, before))[...] = self.fill
        part(window, dim, slice(length - after, length))[...] = self.fill
        wanted = [part(window, dim, place) for place in places]
        received = _start_blocks(transport, sent, wanted)

        def finish() -> Array:
            for place, block in zip(wanted, received(), strict=True):
                place[...] = block
            return window

        return finish


@dataclass(frozen=True, slots=True)
class ExchangeSum:
    """This member's shard of the sum of all windows, each added at its position in the whole.

    Elements beyond the ends of the whole are dropped. Elements in no window are 0. The windows are
    added in the group's order; half precision is summed in float32.

    Attributes:
        dim, windows: see `Exchange`.
    """

    dim: int
    windows: MemberWindows

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del size
        own = elements.part(x, self.dim, self.windows.in_window(place, place))
        before = self.windows.in_shard(place, place).start
        return elements.padded(own, self.dim, before, self.windows.extent)

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            DTypeError: if the elements do not add up.
        """
        way = wire(array.dtype, "sum")
        dim, extent = self.dim, self.windows.extent
        me, members = transport.rank, range(len(transport.ranks))
        if not self.windows.crosses:
            return partial(self.apply, array, me, len(members), arrays)
        total = fresh((*array.shape[:dim], extent, *array.shape[dim + 1 :]), way.dtype)
        total[...] = 0
        sent = [part(array, dim, self.windows.in_window(me, member)) for member in members]
        wanted = [part(total, dim, self.windows.in_shard(member, me)) for member in members]
        received = _start_blocks(transport, sent, wanted)
        add = np.maximum if way.reducer == "max" else np.add

        def finish() -> Array:
            with np.errstate(all="ignore"):  # as silent as MPI
                for place, block in zip(wanted, received(), strict=True):
                    add(place, block, out=place)
            return restored(total, array.dtype)

        return finish


def _start_blocks(
    transport: Transport, sent: list[Array], wanted: list[Array]
) -> Callable[[], list[Array]]:
    """Send a block to every member; return a function that gives the received blocks in order.

    Args:
        transport: connects the members.
        sent: the block for each member; the block for this member itself is not copied.
        wanted: arrays with the shapes of the blocks to receive.
    """
    me, own = transport.rank, sent[transport.rank]
    blocks = [block if i != me else block[:0] for i, block in enumerate(sent)]
    lengths = [block.nbytes for block in blocks]
    send = fresh((sum(lengths),), np.dtype(np.uint8))
    for block, place in zip(blocks, np.split(send, np.cumsum(lengths)[:-1]), strict=True):
        place.view(block.dtype).reshape(block.shape)[...] = block
    shapes = [block.shape if i != me else (0,) for i, block in enumerate(wanted)]
    sizes = [prod(shape) * own.dtype.itemsize for shape in shapes]
    receive = fresh((sum(sizes),), np.dtype(np.uint8))
    transport.exchange(send, lengths, receive, sizes)

    def received() -> list[Array]:
        found = np.split(receive, np.cumsum(sizes)[:-1])
        shaped = [x.view(own.dtype).reshape(s) for x, s in zip(found, shapes, strict=True)]
        shaped[me] = own
        return shaped

    return received
