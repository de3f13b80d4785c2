"""The difference of two plans by layer: other divisions, times and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensoropt.converters import Natural, Positive, to_values
from tensoropt.plan.plan import Plan
from tensoropt.view.build import view_of
from tensoropt.view.data.layers import LayerView
from tensoropt.view.data.plan_view import PlanView
from tensoropt.view.data.summary import Summary
from tensoropt.view.layers import pattern_of, range_of

__all__ = ["LayerDifference", "PlanDifference", "difference"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """Like layers that both plans divide in the same two ways.

    Attributes:
        name: the scope, with the ranges of its numbers.
        names: the scopes of all its layers.
        before, after: the division in words; empty if the plan has no such layer.
        before_nanoseconds, after_nanoseconds: operators and communication. Each layer has
            the same part of its row's time.
        before_weight_bytes, after_weight_bytes: trained variables on one device.
    """

    name: str
    names: tuple[str, ...]
    before: str
    after: str
    before_nanoseconds: Natural
    after_nanoseconds: Natural
    before_weight_bytes: Natural
    after_weight_bytes: Natural

    @property
    def is_divided_alike(self) -> bool:
        """Whether both plans divide these layers in the same way."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """The difference of two plans.

    Attributes:
        same_step: whether both are plans of one graph, with the same shapes.
        same_cluster: whether the devices and links are the same.
        before, after: the plans in some numbers.
        before_communicated_bytes, after_communicated_bytes: bytes that a device holds before its
            collectives, summed over a step.
        layers: the layers of both plans, the largest difference of time first.
        schema: version of this form.
    """

    same_step: bool
    same_cluster: bool
    before: Summary
    after: Summary
    before_communicated_bytes: Natural
    after_communicated_bytes: Natural
    layers: tuple[LayerDifference, ...]
    schema: Positive = SCHEMA

    @property
    def divided_otherwise(self) -> tuple[LayerDifference, ...]:
        """The layers that the plans divide in different ways, or that one of them lacks."""
        return tuple(each for each in self.layers if not each.is_divided_alike)

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        values: dict[str, Any] = to_values(self)
        return values


def difference(before: Plan, after: Plan) -> PlanDifference:
    """Compare two plans by the names of their layers. They may be of different steps."""
    views = [view_of(before), view_of(after)]
    rows = [_by_layer(view) for view in views]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        old, new = ("; ".join(row.words for row in of.get(name, ())) for of in rows)
        groups.setdefault((pattern_of(name), old, new), []).append(name)
    layers = [
        LayerDifference(
            range_of(names),
            tuple(names),
            old,
            new,
            *(_sum(of, names, lambda row: row.nanoseconds) for of in rows),
            *(_sum(of, names, lambda row: row.weight_bytes) for of in rows),
        )
        for (_, old, new), names in groups.items()
    ]
    layers.sort(key=lambda each: -abs(each.after_nanoseconds - each.before_nanoseconds))
    old_view, new_view = views
    old_bytes, new_bytes = (sum(each.step_bytes for each in v.communication) for v in views)
    return PlanDifference(
        before.graph_digest == after.graph_digest,
        before.cluster == after.cluster,
        old_view.summary,
        new_view.summary,
        old_bytes,
        new_bytes,
        tuple(layers),
    )


def _by_layer(view: PlanView) -> dict[str, list[LayerView]]:
    """The rows of each layer: several if stages of a pipeline share it."""
    rows: dict[str, list[LayerView]] = {}
    for row in view.layers:
        for name in row.names:
            rows.setdefault(name, []).append(row)
    return rows


def _sum(
    rows: dict[str, list[LayerView]], names: list[str], amount: Callable[[LayerView], int]
) -> int:
    """An amount of some layers, each with its part of its rows'."""
    return round(sum(amount(row) / row.count for name in names for row in rows.get(name, ())))
