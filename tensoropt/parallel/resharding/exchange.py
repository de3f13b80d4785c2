"""An exchange of halos: each device extends its piece of a dimension to a window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.errors import LayoutError

__all__ = ["Exchange"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange of halos along one dimension, in the group ``mesh.group(rank, axes)`` of a
    device.

    Member i of the group holds elements [i * extent, (i + 1) * extent). It receives the window of
    ``length`` elements that starts at ``starts[i]``. Windows overlap, so the result has no layout.
    Only the operator inside which the exchange happens reads it.

    Attributes:
        axes: the mesh axes that split the dimension, the major one first.
        dim: the dimension.
        extent: extent of a piece.
        starts: for each member the first element of its window, negative if it is before the
            tensor.
        length: length of every window.
        fill: value of elements of a window beyond the ends of the tensor.
        back: whether this is the reverse: windows become pieces, and the values that several
            windows have for an element are summed.

    Raises:
        LayoutError: if there are no axes, or an extent or length is negative.
    """

    axes: tuple[int, ...]
    dim: int
    extent: int
    starts: tuple[int, ...]
    length: int
    fill: float = 0
    back: bool = False

    def __post_init__(self) -> None:
        if not self.axes or self.dim < 0 or min(self.extent, self.length) < 0:
            raise LayoutError(
                "an exchange has mesh axes, a dimension counted from the front, and extents of at "
                f"least 0. Got {self}."
            )

    @property
    def is_local(self) -> bool:
        """Whether no window contains an element of another member's piece."""
        whole = len(self.starts) * self.extent
        for member, start in enumerate(self.starts):
            first, end = max(0, start), min(whole, start + self.length)
            piece = member * self.extent
            if first < end and not (piece <= first and end <= piece + self.extent):
                return False
        return True

    @property
    def result(self) -> int:
        """Extent of the dimension on each device after the exchange."""
        return self.extent if self.back else self.length

    @property
    def adjoint(self) -> Exchange:
        """The exchange that sends gradients of windows back, where they are added."""
        return replace(self, back=not self.back, fill=0)

    def __str__(self) -> str:
        kind = "exchange_sum" if self.back else "exchange"
        return (
            f"{kind} of {self.dim} in windows of {self.length} at "
            f"{','.join(map(str, self.starts))} over [{','.join(map(str, self.axes))}]"
        )
