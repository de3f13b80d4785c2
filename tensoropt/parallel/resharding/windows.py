"""Windows of convolutions and pooling whose spatial dimensions are split.

A window that crosses the end of a device's shard reads elements of its neighbours. So the elements
that a device's windows read are more than its shard. The same holds for the elements that the
windows of a transposed convolution write.
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
    """One spatial dimension along which windows on a large tensor give the elements of a small one.

    Attributes:
        dim: its number in both tensors.
        index: the index of the iteration space along the dimension, None if there is none.
        large: its extent in the large tensor.
        small: its extent in the small tensor, the number of windows.
        stride: distance between windows.
        span: extent of a window, with dilation.
        before: padding before the first element of the large tensor.
    """

    dim: int
    index: int | None
    large: int
    small: int
    stride: int
    span: int
    before: int

    def reach(self, count: int) -> int:
        """Return the number of elements that ``count`` neighbouring windows cover together."""
        return (count - 1) * self.stride + self.span

    @property
    def padded(self) -> int:
        """Extent of the whole large tensor with the padding that windows read."""
        return max(self.reach(self.small), self.large + self.before)

    def read(self, shards: int) -> tuple[tuple[int, ...], int]:
        """Return the elements that the windows of each shard of the small tensor read.

        Returns:
            For each shard the first element, which is negative in the padding, and the number of
            elements, which is the same for all shards.
        """
        count = self.small // shards
        firsts = tuple(k * count * self.stride - self.before for k in range(shards))
        return firsts, self.reach(count)

    def written(self, shards: int) -> tuple[tuple[int, ...], int]:
        """Return the windows that overlap each shard of the large tensor.

        Returns:
            For each shard the first window, and the number of windows, the same for all shards.
        """
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
        """Return the exchange that gives a device the elements it needs, None if it has them.

        Args:
            mesh: the devices.
            axes: the axes that split the dimension.
            transposed: whether the windows write to the large tensor, so that the small tensor is
                exchanged.
            fill: value of elements beyond the ends.
        """
        shards = mesh.pieces(axes)
        starts, length = self.written(shards) if transposed else self.read(shards)
        extent = (self.small if transposed else self.large) // shards
        if length == extent and all(start == k * extent for k, start in enumerate(starts)):
            return None
        return Exchange(tuple(axes), self.dim, extent, starts, length, fill)


@dataclass(frozen=True, slots=True)
class LocalWindows:
    """The shapes of windowed tensors on one device, where they differ from the shards.

    Attributes:
        input: the number of the input that is exchanged or padded.
        read: shapes of this input after each step from the shard to the kernel's operand; empty if
            the kernel reads the shard.
        written: shape of all elements that the windows of a transposed convolution write, from
            which the output is cut; None if it is the output.
    """

    input: int
    read: tuple[tuple[int, ...], ...]
    written: tuple[int, ...] | None

    @classmethod
    def of(
        cls, operator: Operator, derivation: Derivation, pieces: Sequence[int]
    ) -> LocalWindows | None:
        """Return the windows of one device, None for an operator without windows.

        Args:
            operator: the operator.
            derivation: its derivation.
            pieces: the number of shards of each of its indices.
        """
        dimensions = windowed_dimensions(operator, derivation)
        if not dimensions:
            return None
        transposed = _is_transposed(operator)
        number = 2 if transposed else 0
        shape = _local(derivation.input_shapes[number], derivation.inputs[number], pieces)
        output = _local(derivation.output_shapes[0], derivation.outputs[0], pieces)
        written, read = list(output), []
        shards = {d.dim: 1 if d.index is None else pieces[d.index] for d in dimensions}
        # Dimensions that are whole are padded first. Then the split ones are exchanged.
        for dimension in sorted(dimensions, key=lambda d: shards[d.dim] > 1):
            dim, count = dimension.dim, shards[dimension.dim]
            extent = shape[dim]
            if transposed:
                extent = dimension.written(count)[1] if count > 1 else extent
                written[dim] = dimension.reach(extent)
            else:
                extent = dimension.read(count)[1] if count > 1 else dimension.padded
            if extent != shape[dim]:
                shape[dim] = extent
                read.append(tuple(shape))
        return cls(number, tuple(read), None if written == output else tuple(written))


def _local(shape: Sequence[int], dims: Sequence[int | None], pieces: Sequence[int]) -> list[int]:
    """Return the shape of a shard."""
    return [
        extent if index is None else extent // pieces[index]
        for extent, index in zip(shape, dims, strict=True)
    ]


def _is_transposed(operator: Operator) -> bool:
    """Whether the windows write: the operator is the gradient of a convolution by its input."""
    return operator_type(operator.type).windows == "transposed"


def windowed_dimensions(operator: Operator, derivation: Derivation) -> list[WindowedDimension]:
    """Return the spatial dimensions of a convolution or pooling.

    The list is empty for other operators, and for windows that the iteration space does not
    describe.
    """
    kind = operator_type(operator.type).windows
    if kind is None:
        return []
    large, small = derivation.input_shapes[0], derivation.output_shapes[0]
    attributes = operator.attributes
    if kind == "transposed":
        large, small = derivation.output_shapes[0], derivation.input_shapes[2]
    if kind == "pool":
        not_spatial = 0, channel_dim(operator, len(large))
        kernel = tuple(n for d, n in enumerate(window_sizes(operator)[0]) if d not in not_spatial)
    else:
        kernel = derivation.input_shapes[1][: len(large) - 2]
    geometry = windows(
        large,
        small,
        kernel,
        _sizes(operator, "strides", 2),
        _text(attributes["padding"]),
        data_format=_data_format(operator),
        dilations=_numbers(attributes.get("dilations", attributes.get("rates", ()))),
        explicit_paddings=_numbers(attributes.get("explicit_paddings", ())),
    )
    if geometry is None:
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
            geometry.spatial,
            kernel,
            geometry.strides,
            geometry.dilations,
            geometry.before,
            strict=True,
        )
    ]


def channel_dim(operator: Operator, rank: int) -> int:
    """Return the dimension of channels in a tensor of ``rank`` dimensions."""
    return 1 if _data_format(operator).startswith("NC") else rank - 1


def window_sizes(operator: Operator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the windows and the strides of a pooling, for all dimensions."""
    return _sizes(operator, "ksize", 1), _sizes(operator, "strides", 2)


def _data_format(operator: Operator) -> str:
    return _text(operator.attributes.get("data_format", "NHWC"))


def _sizes(operator: Operator, name: str, operand: int) -> tuple[int, ...]:
    """Return an attribute. MaxPoolV2 has it as an operand."""
    if name in operator.attributes:
        return _numbers(operator.attributes[name])
    value = operator.input_specs[operand].value
    assert value is not None, "only windows of known sizes are split"
    return tuple(int(n) for n in value)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in value)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
