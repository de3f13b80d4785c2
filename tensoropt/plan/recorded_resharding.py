"""The resharding steps that a plan records, so that a later planner cannot change its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep

__all__ = ["RecordedResharding"]


@dataclass(frozen=True, slots=True)
class RecordedResharding:
    """The steps of every edge with this tensor shape and these two layouts.

    An edge, from a tensor to a reader, is resharded from the layout in which the tensor is computed
    to the layout in which it is read, and its gradient the other way. Edges that agree in this have
    the same steps, which are recorded once.

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

    def to_json(self) -> dict[str, Any]:
        """The resharding as JSON values; a step is its kind, axes, dimensions and reducer."""
        return {
            "shape": list(self.shape),
            "itemsize": self.itemsize,
            "source": _layout_to_json(self.source),
            "target": _layout_to_json(self.target),
            "steps": [
                [step.kind, list(step.axes), step.from_dim, step.to_dim, step.reducer]
                for step in self.steps
            ],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RecordedResharding:
        """The inverse of `to_json`.

        Raises:
            LayoutError: if the steps do not lead from the source to the target.
        """
        source, target = _layout(values["source"]), _layout(values["target"])
        layout, steps = source, []
        for kind, axes, from_dim, to_dim, reducer in values["steps"]:
            steps.append(
                ReshardStep.from_source(kind, tuple(axes), layout, from_dim, to_dim, reducer)
            )
            layout = steps[-1].target
        return cls(tuple(values["shape"]), values["itemsize"], source, target, tuple(steps))


def _layout_to_json(layout: Layout) -> list[Any]:
    dims = [list(axes) for axes in layout.dims]
    return [dims, list(layout.partial), layout.reducer] if layout.partial else [dims]


def _layout(values: list[Any]) -> Layout:
    dims, *partial = values
    return Layout(tuple(tuple(axes) for axes in dims), *map(_hashable, partial))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
