"""Random operators: each device draws its shard, with the values of a draw of the whole tensor.

A kernel fills the tensor group by group, in row-major order, and a group's counter follows from its
number. A stateless kernel takes a counter, so it can start at any group. A stateful operator draws
the values of a stateless one with ``key = [seed]`` and ``counter = [blocks drawn before, seed2]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tensorflow as tf

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.ops.random import SEEDED, STATEFUL

__all__ = ["Stream", "draw_piece", "draw_region", "stream_of"]

_PHILOX = 1
_REJECTING_BLOCKS = 64  # per element of a truncated normal, which rejects values outside its range
_SMALL = 1 << 16  # elements that are drawn at once and cut; more are drawn by several operators


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The source of one draw of an operator's whole tensor.

    Attributes:
        kernel: draws a tensor, from a shape and a counter.
        counter: the start of the draw: two unsigned numbers of 64 bits, the low one first.
        group: number of elements that one step of the kernel draws.
        blocks: the number of blocks by which a step moves the counter.
    """

    kernel: Callable[[Sequence[int] | tf.Tensor, tf.Tensor], tf.Tensor]
    counter: tf.Tensor
    group: int
    blocks: int


def stream_of(
    op_type: str,
    dtype: str,
    inputs: Sequence[tf.Tensor],
    seeds: tuple[int, int] = (0, 0),
    drawn: tf.Tensor | None = None,
) -> Stream:
    """Return the stream of a random operator on one device.

    Args:
        op_type: one of `tensoropt.tdl.ops.random.DRAWN`.
        dtype: the dtype of the operator's output.
        inputs: the operator's inputs; the shape is the first.
        seeds: the seeds of a stateful operator.
        drawn: the number of blocks that a stateful operator has drawn before.
    """
    bounds: Sequence[tf.Tensor] = ()
    algorithm: tf.Tensor | int = _PHILOX
    if drawn is not None:
        kernel, bounds = STATEFUL[op_type], inputs[1:]
        key, high = (tf.constant([seed % 2**64], tf.uint64) for seed in seeds)
        counter = tf.concat([tf.reshape(drawn, [1]), high], 0)
    elif op_type in SEEDED:
        kernel, bounds = SEEDED[op_type], inputs[2:]
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=inputs[1])
    else:
        kernel, bounds = op_type, inputs[4:]
        key, counter, algorithm = inputs[1:4]
    named = {"key": key, "alg": algorithm}
    if bounds:
        named |= {"minval": bounds[0], "maxval": bounds[1]}
    else:
        named["dtype"] = tf.as_dtype(dtype)
    group = 2 if tf.as_dtype(dtype).size == 8 else 4
    rejects = kernel == "StatelessTruncatedNormalV2"
    return Stream(
        lambda shape, start: getattr(tf.raw_ops, kernel)(shape=shape, counter=start, **named),
        counter,
        group,
        group * _REJECTING_BLOCKS if rejects else 1,
    )


def draw_whole(stream: Stream, shape: Sequence[int] | tf.Tensor) -> tf.Tensor:
    """Draw the whole tensor."""
    return stream.kernel(shape, stream.counter)


def draw_region(stream: Stream, shape: Sequence[int], region: Sequence[slice]) -> tf.Tensor:
    """Draw a region of a tensor of some shape.

    A contiguous region is drawn as it is. For other regions, blocks of whole rows are drawn one
    after the other, and cut. A block has at most as many elements as the region, or `_SMALL`.
    """
    starts = [part.start for part in region]
    sizes = [part.stop - part.start for part in region]
    if sizes == list(shape):
        return draw_whole(stream, shape)
    if not prod(sizes):
        return tf.zeros(sizes, stream.kernel([0], stream.counter).dtype)
    return _Cutter(stream, max(prod(sizes), _SMALL)).region(shape, starts, sizes, 0)


def draw_piece(
    stream: Stream, shape: tf.Tensor, layout: Layout, mesh: Mesh, rank: int
) -> tf.Tensor:
    """Draw a device's piece of a tensor whose shape is known only in a run.

    A contiguous piece is drawn as it is; other pieces are cut from the whole tensor.
    """
    pieces = [mesh.pieces(axes) for axes in layout.dims]
    if all(count == 1 for count in pieces):
        return draw_whole(stream, shape)
    shape = tf.cast(shape, tf.int64)
    sizes = shape // tf.constant(pieces, tf.int64)
    starts = sizes * tf.constant([mesh.piece(rank, axes) for axes in layout.dims], tf.int64)
    if any(count > 1 for count in pieces[1:]):
        return tf.slice(draw_whole(stream, shape), starts, sizes)
    row = tf.reduce_prod(shape[1:])
    group, offset = (f(starts[0] * row, stream.group) for f in (tf.math.floordiv, tf.math.floormod))
    count = sizes[0] * row
    flat = stream.kernel([count + offset], _advanced(stream.counter, group * stream.blocks))
    return tf.reshape(tf.slice(flat, [offset], [count]), sizes)


class _Cutter:
    """Draws regions block by block. Each block waits for the previous one, to save memory."""

    def __init__(self, stream: Stream, most: int) -> None:
        self._stream = stream
        self._most = most
        self._last: list[tf.Operation] = []

    def region(
        self, shape: Sequence[int], starts: Sequence[int], sizes: Sequence[int], first: int
    ) -> tf.Tensor:
        """Draw a region of a tensor whose elements have numbers from ``first`` on."""
        row = prod(shape[1:])
        if list(sizes[1:]) == list(shape[1:]):
            flat = self._run(first + starts[0] * row, sizes[0] * row)
            return tf.reshape(flat, sizes)
        if row > self._most:  # There are fewer rows than devices.
            rows = [
                self.region(shape[1:], starts[1:], sizes[1:], first + (starts[0] + n) * row)
                for n in range(sizes[0])
            ]
            return tf.stack(rows)
        blocks = []
        step = self._most // row
        for begin in range(0, sizes[0], step):
            count = min(step, sizes[0] - begin)
            with tf.control_dependencies(self._last):
                flat = self._run(first + (starts[0] + begin) * row, count * row)
            drawn = tf.reshape(flat, [count, *shape[1:]])
            blocks.append(tf.slice(drawn, [0, *starts[1:]], [count, *sizes[1:]]))
            self._last = [blocks[-1].op]
        return tf.concat(blocks, 0) if len(blocks) > 1 else blocks[0]

    def _run(self, first: int, count: int) -> tf.Tensor:
        """Draw ``count`` elements from number ``first`` on."""
        stream = self._stream
        group, offset = divmod(first, stream.group)
        flat = stream.kernel([count + offset], _advanced(stream.counter, group * stream.blocks))
        return tf.slice(flat, [offset], [count]) if offset else flat


def _advanced(counter: tf.Tensor, blocks: int | tf.Tensor) -> tf.Tensor:
    """Advance a counter by some blocks, with a carry from its low number to its high one."""
    if isinstance(blocks, int) and not blocks:
        return counter
    more = tf.constant(np.uint64(blocks)) if isinstance(blocks, int) else tf.cast(blocks, tf.uint64)
    low, high = tf.unstack(counter, 2)
    advanced = low + more
    return tf.stack([advanced, high + tf.cast(advanced < low, tf.uint64)])
