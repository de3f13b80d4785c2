"""Sliding windows over spatial dimensions, for convolutions and pooling."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeAlias, TypeVar

from tensoropt.tdl.expression import Expression, Operand
from tensoropt.tensor_spec import TensorSpec

__all__ = ["SPACE", "Outputs", "Sizes", "Sliding", "Windows", "sliding", "windows"]

Outputs = tuple[TensorSpec, ...]
Sizes = tuple[int, ...]

SPACE = ("z", "y", "x")
"""Names of the spatial dimensions; an operator has the last ones. Their splits have rules in
`tensoropt/execution/rules/spatial.py`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Windows:
    """The geometry of windows on a tensor of batch, spatial and channel dimensions.

    Attributes:
        channel: the channel dimension.
        spatial: the spatial dimensions.
        strides: per spatial dimension, in elements.
        dilations: per spatial dimension, between a window's elements.
        before: per spatial dimension the padding before the first element.
    """

    channel: int
    spatial: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the spatial dimensions: z, y and x, the last ones."""
        return SPACE[-len(self.spatial) :]

    @property
    def offsets(self) -> tuple[str, ...]:
        """Names of the places within a window."""
        return tuple(f"d{axis}" for axis in self.axes)

    def names(self, channel: str) -> list[str]:
        """Names of all dimensions in their order, b for the batch."""
        return list(self.place("b", channel, self.axes))

    def place(self, batch: T, channel: T, space: Sequence[T]) -> tuple[T, ...]:
        """One entry per dimension, in the order of the data format."""
        entries = [batch] * (len(self.spatial) + 2)
        entries[self.channel] = channel
        for dim, entry in zip(self.spatial, space, strict=True):
            entries[dim] = entry
        return tuple(entries)

    def parts(self, index: Sequence[T]) -> tuple[T, T, tuple[T, ...]]:
        """Batch, channel and spatial entries: the inverse of `place`."""
        return index[0], index[self.channel], tuple(index[d] for d in self.spatial)

    def read(self, at: Sequence[Expression], offset: Sequence[Expression]) -> list[Expression]:
        """Return the input place at an offset within the window of an output place.

        Args:
            at: the output place, per spatial dimension.
            offset: the place within the window, per spatial dimension.
        """
        return [
            i * stride + d * dilation - before
            for i, d, stride, dilation, before in zip(
                at, offset, self.strides, self.dilations, self.before, strict=True
            )
        ]

    def write(self, at: Sequence[Expression], offset: Sequence[Expression]) -> list[Expression]:
        """Return the output place whose window has an input place at an offset: inverts `read`.

        There is no such window if an entry is not a whole number.

        Args:
            at: the input place, per spatial dimension.
            offset: the place within the window, per spatial dimension.
        """
        return [
            (i + before - d * dilation) / stride
            for i, d, stride, dilation, before in zip(
                at, offset, self.strides, self.dilations, self.before, strict=True
            )
        ]


def windows(
    large: Sequence[int],
    small: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: str,
    *,
    data_format: str,
    dilations: Sequence[int] = (),
    explicit_paddings: Sequence[int] = (),
) -> Windows | None:
    """Return the windows of size ``kernel`` from a tensor of shape ``large`` to one of ``small``.

    Args:
        large: shape of the input, or of the gradient by the input.
        small: shape of the output.
        kernel: size of a window, per spatial dimension.
        strides: TensorFlow's attribute, one per dimension.
        padding: SAME, VALID or EXPLICIT.
        data_format: TensorFlow's; channels come second where it begins with NC.
        dilations: TensorFlow's attribute, empty for none.
        explicit_paddings: TensorFlow's attribute: before and after per dimension.

    Returns:
        None if windows stride over the batch or the channels.
    """
    rank = len(large)
    channel = 1 if data_format.startswith("NC") else rank - 1
    spatial = tuple(d for d in range(1, rank) if d != channel)
    dilations = dilations or (1,) * rank
    if {strides[0], strides[channel], dilations[0], dilations[channel]} != {1}:
        return None
    before = []
    for d, size in zip(spatial, kernel, strict=True):
        if padding == "EXPLICIT":
            before.append(explicit_paddings[2 * d])
        elif padding == "SAME":
            span = (small[d] - 1) * strides[d] + (size - 1) * dilations[d] + 1
            before.append(max(0, span - large[d]) // 2)
        else:
            before.append(0)
    return Windows(
        channel,
        spatial,
        tuple(strides[d] for d in spatial),
        tuple(dilations[d] for d in spatial),
        tuple(before),
    )


Sliding: TypeAlias = Callable[[Sequence[int], Sequence[int], Sequence[int]], Windows | None]
"""`windows` with TensorFlow's attributes given, as a function of ``large, small, kernel``."""


def sliding(describe: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a description that takes its outputs and a `Sliding` after its operands.

    The decorated description takes TensorFlow's attributes of windows in place of the `Sliding`.
    """

    def described(
        *operands: Operand,
        outputs: Outputs,
        strides: Sizes,
        padding: str,
        data_format: str = "NHWC",
        dilations: Sizes = (),
        explicit_paddings: Sizes = (),
    ) -> Any:
        window = partial(
            windows,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilations=dilations,
            explicit_paddings=explicit_paddings,
        )
        return describe(*operands, outputs, window)

    signature = inspect.signature(described)
    described = wraps(describe)(described)
    described.__signature__ = signature  # type: ignore[attr-defined]
    return described
