"""A step inside an operator: every piece of a dimension becomes a window, with its neighbours'."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.errors import LayoutError

__all__ = ["Exchange"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Halos along one dimension, on the group ``mesh.group(rank, axes)`` of every device.

    Place i of the group holds elements [i * extent, (i + 1) * extent) and gets ``length`` elements
    from ``starts[i]`` on. Windows overlap, so what they make has no layout: no `ReshardStep`
    leads there, and only the operator that asked for them reads them.

    Attributes:
        axes: the mesh axes that split the dimension, the major one first.
        dim: the dimension.
        extent: of a piece.
        starts: per place the first element of its window, negative before the whole's first.
        length: of every window.
        fill: what a window has beyond the ends of the whole.
        back: whether this is the way back: windows become pieces, and what several windows have
            of an element is added up.

    Raises:
        LayoutError: for no axes, or a negative extent or length.
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
                "an exchange has mesh axes, a dimension counted from the front, and extents of 0 "
                f"or more. Got {self}."
            )

    @property
    def is_local(self) -> bool:
        """Whether no window has an element of another piece."""
        whole = len(self.starts) * self.extent
        for place, start in enumerate(self.starts):
            first, end = max(0, start), min(whole, start + self.length)
            own = place * self.extent
            if first < end and not (own <= first and end <= own + self.extent):
                return False
        return True

    @property
    def result(self) -> int:
        """Extent of the dimension afterwards."""
        return self.extent if self.back else self.length

    @property
    def adjoint(self) -> Exchange:
        """What takes the gradient back: each device's is its own share."""
        return replace(self, back=not self.back, fill=0)

    def __str__(self) -> str:
        kind = "exchange_sum" if self.back else "exchange"
        return (
            f"{kind} of {self.dim} in windows of {self.length} at "
            f"{','.join(map(str, self.starts))} over [{','.join(map(str, self.axes))}]"
        )
