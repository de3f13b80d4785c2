"""Where the windows of convolutions and pooling lie, whose spatial dimensions are split.

A window that lies over the end of a device's shard reads its neighbours'. What a device's windows
read, or those of a transposed convolution write, is larger than its shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.graph.operator import Operator
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange
from tensoropt.tdl import Derivation, operator_type
from tensoropt.tdl.ops.neural.windows import windows

__all__ = [
    "LocalWindows",
    "WindowedDimension",
    "channel_dim",
    "window_sizes",
    "windowed_dimensions",
]


@dataclass(frozen=True, slots=True)
class WindowedDimension:
    """One spatial dimension of windows that go from a large tensor to a small one.

    Attributes:
        dim: its number in both tensors.
        index: of the iteration space, whose split splits it; None if none does.
        large: its extent in the large tensor.
        small: the number of windows.
        stride: between windows.
        span: of a window, dilated.
        before: padding before the large tensor's first element.
    """

    dim: int
    index: int | None
    large: int
    small: int
    stride: int
    span: int
    before: int

    def reach(self, count: int) -> int:
        """Elements from the first of the first to the last of the last of ``count`` windows."""
        return (count - 1) * self.stride + self.span

    @property
    def padded(self) -> int:
        """Extent of the whole large tensor with what windows read beyond its ends."""
        return max(self.reach(self.small), self.large + self.before)

    def read(self, shards: int) -> tuple[tuple[int, ...], int]:
        """Where the windows of each shard of the small tensor read: the first element, negative
        before the large one's first, and how many."""
        count = self.small // shards
        firsts = tuple(k * count * self.stride - self.before for k in range(shards))
        return firsts, self.reach(count)

    def written(self, shards: int) -> tuple[tuple[int, ...], int]:
        """Which windows lie over each shard of the large tensor: the first, and how many."""
        extent = self.large // shards
        firsts = [
            -((self.span - 1 - self.before - k * extent) // self.stride) for k in range(shards)
        ]
        ends = [((k + 1) * extent - 1 + self.before) // self.stride + 1 for k in range(shards)]
        count = max(1, *(end - first for first, end in zip(firsts, ends, strict=True)))
        return tuple(firsts), count

    def exchange(
        self, mesh: Mesh, axes: Sequence[int], transposed: bool, fill: float = 0
    ) -> Exchange | None:
        """What brings a device all that its windows read; None if it has that.

        Args:
            mesh: the devices.
            axes: that split the dimension.
            transposed: whether windows are read, to be written to the large tensor.
            fill: what windows read beyond the ends.
        """
        shards = mesh.pieces(axes)
        starts, length = self.written(shards) if transposed else self.read(shards)
        extent = (self.small if transposed else self.large) // shards
        if length == extent and all(start == k * extent for k, start in enumerate(starts)):
            return None
        return Exchange(tuple(axes), self.dim, extent, starts, length, fill)


@dataclass(frozen=True, slots=True)
class LocalWindows:
    """What one device has of a windowed operator whose space is split, beside shards.

    Attributes:
        input: the number of the input whose windows are read.
        read: its shapes on the way from the shard to what the windows read, which the kernel has;
            empty where that is the shard.
        written: of all that a transposed convolution's windows write, of which the output is cut
            out; None where that is the output.
    """

    input: int
    read: tuple[tuple[int, ...], ...]
    written: tuple[int, ...] | None

    @classmethod
    def of(
        cls, operator: Operator, derivation: Derivation, pieces: Sequence[int]
    ) -> LocalWindows | None:
        """The windows of one device; None of an operator that has none.

        Args:
            operator: which.
            derivation: its iteration space.
            pieces: the number of shards of each of its indices.
        """
        dimensions = windowed_dimensions(operator, derivation)
        if not dimensions:
            return None
        transposed = _is_transposed(operator)
        number = 2 if transposed else 0
        shape = _local(derivation.input_shapes[number], derivation.inputs[number], pieces)
        made = _local(derivation.output_shapes[0], derivation.outputs[0], pieces)
        whole, read = list(made), []
        shards = {d.dim: 1 if d.index is None else pieces[d.index] for d in dimensions}
        # Those that are whole are padded before the others are exchanged.
        for each in sorted(dimensions, key=lambda d: shards[d.dim] > 1):
            extent, is_split = shape[each.dim], shards[each.dim] > 1
            if transposed:
                extent = each.written(shards[each.dim])[1] if is_split else extent
                whole[each.dim] = each.reach(extent)
            else:
                extent = each.read(shards[each.dim])[1] if is_split else each.padded
            if extent != shape[each.dim]:
                shape[each.dim] = extent
                read.append(tuple(shape))
        return cls(number, tuple(read), None if whole == made else tuple(whole))


def _local(shape: Sequence[int], dims: Sequence[int | None], pieces: Sequence[int]) -> list[int]:
    """The shape of a shard."""
    return [
        extent if index is None else extent // pieces[index]
        for extent, index in zip(shape, dims, strict=True)
    ]


def _is_transposed(operator: Operator) -> bool:
    """Whether an operator's windows are written, not read: a convolution's gradient by its data."""
    return operator_type(operator.type).windows == "transposed"


def windowed_dimensions(operator: Operator, derivation: Derivation) -> list[WindowedDimension]:
    """The spatial dimensions of a convolution or pooling; none of other operators, and of those
    whose windows no index of the iteration space stands for."""
    kind = operator_type(operator.type).windows
    if kind is None:
        return []
    large, small = derivation.input_shapes[0], derivation.output_shapes[0]
    attributes = operator.attributes
    if kind == "transposed":
        large, small = derivation.output_shapes[0], derivation.input_shapes[2]
    if kind == "pool":
        others = 0, channel_dim(operator, len(large))
        kernel = tuple(n for d, n in enumerate(window_sizes(operator)[0]) if d not in others)
    else:
        kernel = derivation.input_shapes[1][: len(large) - 2]
    lie = windows(
        large,
        small,
        kernel,
        _sizes(operator, "strides", 2),
        _text(attributes["padding"]),
        data_format=_data_format(operator),
        dilations=_numbers(attributes.get("dilations", attributes.get("rates", ()))),
        explicit_paddings=_numbers(attributes.get("explicit_paddings", ())),
    )
    if lie is None:
        return []
    return [
        WindowedDimension(
            dim,
            derivation.outputs[0][dim],
            large[dim],
            small[dim],
            stride,
            (size - 1) * dilation + 1,
            before,
        )
        for dim, size, stride, dilation, before in zip(
            lie.spatial, kernel, lie.strides, lie.dilations, lie.before, strict=True
        )
    ]


def channel_dim(operator: Operator, rank: int) -> int:
    """The dimension of channels in a tensor of so many dimensions."""
    return 1 if _data_format(operator).startswith("NC") else rank - 1


def window_sizes(operator: Operator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A pooling's windows and their strides, of all dimensions."""
    return _sizes(operator, "ksize", 1), _sizes(operator, "strides", 2)


def _data_format(operator: Operator) -> str:
    return _text(operator.attributes.get("data_format", "NHWC"))


def _sizes(operator: Operator, name: str, operand: int) -> tuple[int, ...]:
    """An attribute, which MaxPoolV2 has as an operand."""
    if name in operator.attributes:
        return _numbers(operator.attributes[name])
    value = operator.input_specs[operand].value
    assert value is not None, "split only where it is known"
    return tuple(int(n) for n in value)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in value)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
