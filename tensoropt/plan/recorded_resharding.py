"""The resharding steps that a plan records, so that a later planner cannot change its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from annotated_types import Len
from pydantic import PlainSerializer

from tensoropt.converters import Form, Natural, Positive, one_of
from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import REDUCERS, Layout
from tensoropt.parallel.resharding import KINDS, ReshardStep

__all__ = ["RecordedResharding", "ReshardingInFile"]


@dataclass(frozen=True, slots=True)
class RecordedResharding:
    """The steps of all reshardings with the same tensor shape and the same two layouts.

    An edge leads from a tensor to a reader. The tensor is resharded from the layout in which it is
    computed to the layout in which it is read; its gradient is resharded the other way.

    Attributes:
        shape: shape of the whole tensor.
        itemsize: bytes of one element.
        source: the layout before.
        target: the layout after.
        steps: the steps from source to target; at least one.

    Raises:
        LayoutError: if the steps do not lead from source to target.
    """

    shape: tuple[int, ...]
    itemsize: int
    source: Layout
    target: Layout
    steps: tuple[ReshardStep, ...]

    def __post_init__(self) -> None:
        layout = self.source
        for step in self.steps:
            if step.source != layout:
                raise LayoutError(f"a step starts where the one before ended. Got {step}.")
            layout = step.target
        if not self.steps or layout != self.target:
            raise LayoutError(
                f"the steps of a resharding lead to its target. Got {layout} for {self.target}."
            )


_Axes = Annotated[tuple[Natural, ...], Len(0, 62)]
_Reducer = Annotated[str, one_of(REDUCERS)]


class _Layout(NamedTuple):
    """A layout in a file; the last two are left out if no axis is partial."""

    dims: Annotated[tuple[_Axes, ...], Len(0, 254)]
    partial: _Axes = ()
    reducer: _Reducer = "sum"

    def written(self) -> tuple[Any, ...]:
        """The items in a file."""
        return tuple(self) if self.partial else (self.dims,)


_LayoutInFile = Annotated[
    Layout,
    Form(
        Annotated[_Layout, PlainSerializer(_Layout.written)],
        lambda values: Layout(*values),
        lambda layout: _Layout(layout.dims, layout.partial, layout.reducer),
    ),
]
_Step = tuple[Annotated[str, one_of(KINDS)], _Axes, Natural | None, Natural | None, _Reducer | None]


@dataclass(frozen=True, slots=True)
class _Resharding:
    """A resharding in a file; a step is its kind, axes, dimensions and reducer."""

    shape: tuple[Natural, ...]
    itemsize: Positive
    source: _LayoutInFile
    target: _LayoutInFile
    steps: Annotated[tuple[_Step, ...], Len(1, 64)]

    @classmethod
    def of(cls, resharding: RecordedResharding) -> _Resharding:
        """The values of a resharding."""
        steps = tuple(
            (step.kind, step.axes, step.from_dim, step.to_dim, step.reducer)
            for step in resharding.steps
        )
        shape, itemsize = resharding.shape, resharding.itemsize
        return cls(shape, itemsize, resharding.source, resharding.target, steps)

    def recorded(self) -> RecordedResharding:
        """The inverse of `of`.

        Raises:
            LayoutError: if the steps do not lead from the source to the target.
        """
        layout, steps = self.source, []
        for kind, axes, from_dim, to_dim, reducer in self.steps:
            steps.append(ReshardStep.from_source(kind, axes, layout, from_dim, to_dim, reducer))
            layout = steps[-1].target
        return RecordedResharding(self.shape, self.itemsize, self.source, self.target, tuple(steps))


ReshardingInFile = Annotated[
    RecordedResharding, Form(_Resharding, _Resharding.recorded, _Resharding.of)
]
"""The type of a field with a resharding."""
