"""One step of a resharding: a collective, a local change of layout, or an exchange of halos."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import Layout

__all__ = ["COLLECTIVE_KINDS", "KINDS", "LOCAL_KINDS", "Exchange", "ReshardStep"]

LOCAL_KINDS = ("slice", "mask")
COLLECTIVE_KINDS = ("allgather", "alltoall", "allreduce", "reduce_scatter")
KINDS = LOCAL_KINDS + COLLECTIVE_KINDS

_NEEDS_FROM = ("allgather", "alltoall")
_NEEDS_TO = ("slice", "alltoall", "reduce_scatter")
_NEEDS_REDUCER = ("allreduce", "reduce_scatter", "mask")


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One step, the same on every device. Its group is ``mesh.group(rank, axes)``, in that order.

    ==============  ===========================================================================
    kind            effect on member i of a group
    ==============  ===========================================================================
    slice           keep part i of ``to_dim``; local
    mask            keep the value on member 0, and replace it by zeros (sum) or ones (prod) on
                    the other members; max and min keep it on all members; local
    allgather       concatenate the group's pieces along ``from_dim``
    alltoall        cut along ``to_dim``, send part j to member j, concatenate the received
                    parts along ``from_dim``
    allreduce       reduce the group's values
    reduce_scatter  reduce the group's values and keep part i of ``to_dim``
    ==============  ===========================================================================

    In the layout, ``axes`` are appended to ``to_dim`` (slice, alltoall, reduce_scatter), removed
    from the end of ``from_dim`` (allgather, alltoall), removed from the partial axes (allreduce,
    reduce_scatter) or added to them (mask).

    Attributes:
        kind: one of `KINDS`.
        axes: the mesh axes of the group, the major one first; ascending where order has no effect.
        source: the layout before.
        target: the layout after.
        from_dim: the dimension that is concatenated; None for kinds without one.
        to_dim: the dimension that is cut; None for kinds without one.
        reducer: the reduction of partial values; None for kinds without one.
        shape: the shape of the whole tensor if its pieces differ before or after; else empty.

    Raises:
        LayoutError: if the step does not lead from ``source`` to ``target``.
    """

    kind: str
    axes: tuple[int, ...]
    source: Layout
    target: Layout
    from_dim: int | None = None
    to_dim: int | None = None
    reducer: str | None = None
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LayoutError(f"a step is one of {', '.join(KINDS)}. Got {self.kind!r}.")
        if not self.axes:
            raise LayoutError(f"a step has at least one mesh axis. Got {self.kind} over none.")
        for name, value, kinds in (
            ("from_dim", self.from_dim, _NEEDS_FROM),
            ("to_dim", self.to_dim, _NEEDS_TO),
            ("reducer", self.reducer, _NEEDS_REDUCER),
        ):
            if (value is not None) != (self.kind in kinds):
                raise LayoutError(
                    f"{name} belongs to {', '.join(kinds)} and to no other step. "
                    f"Got {value!r} for {self.kind}."
                )
        arguments = (self.kind, self.axes, self.source, self.from_dim, self.to_dim, self.reducer)
        if _target(*arguments) != self.target:
            raise LayoutError(f"{self} does not lead to {self.target}.")

    @classmethod
    def from_source(
        cls,
        kind: str,
        axes: tuple[int, ...],
        source: Layout,
        from_dim: int | None = None,
        to_dim: int | None = None,
        reducer: str | None = None,
    ) -> ReshardStep:
        """Return the step from a layout, with the target that follows.

        Raises:
            LayoutError: if the layout has no such step.
        """
        target = _target(kind, axes, source, from_dim, to_dim, reducer)
        return cls(kind, axes, source, target, from_dim, to_dim, reducer)

    @property
    def is_local(self) -> bool:
        """Whether the step needs no communication."""
        return self.kind in LOCAL_KINDS

    def __str__(self) -> str:
        kind = self.kind if self.reducer in (None, "sum") else f"{self.kind} {self.reducer}"
        dims = ">".join(str(dim) for dim in (self.from_dim, self.to_dim) if dim is not None)
        where = f" of {dims}" if dims else ""
        return f"{kind} {self.source}{where} over [{','.join(map(str, self.axes))}]"


def _target(
    kind: str,
    axes: tuple[int, ...],
    source: Layout,
    from_dim: int | None,
    to_dim: int | None,
    reducer: str | None,
) -> Layout:
    """Return the layout after a step."""
    dims, partial = list(source.dims), source.partial
    step = f"{kind} over {list(axes)} of {source}"
    for dim in (from_dim, to_dim):
        if dim is not None and not 0 <= dim < len(dims):
            raise LayoutError(
                f"a tensor of rank {len(dims)} has dimensions 0 to {len(dims) - 1}. Got {dim}."
            )
    if kind in ("allreduce", "reduce_scatter"):
        if reducer != source.reducer or not set(axes) <= set(partial):
            raise LayoutError(f"{step}: its axes are not partial by that reducer.")
        partial = tuple(axis for axis in partial if axis not in axes)
    elif kind == "mask":
        if partial and reducer != source.reducer:
            raise LayoutError(f"{step}: a layout has one reducer.")
        partial = (*partial, *axes)
    if from_dim is not None:
        if from_dim == to_dim or dims[from_dim][-len(axes) :] != axes:
            raise LayoutError(
                f"{step}: its axes are not the last axes of a dimension other than the target."
            )
        dims[from_dim] = dims[from_dim][: -len(axes)]
    if to_dim is not None:
        dims[to_dim] = (*dims[to_dim], *axes)
    return Layout(tuple(dims), partial, reducer or source.reducer)


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
