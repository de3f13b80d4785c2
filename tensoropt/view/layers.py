"""The rows of a plan's layers: like layers, divided alike, are one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tensoropt.graph.operator import GRADIENT, VARIABLE_TYPES
from tensoropt.plan.operator_plan import NAMES_ONLY, OperatorPlan
from tensoropt.plan.plan import Plan
from tensoropt.view.data import Communication, LayerView, Split
from tensoropt.view.devices import Devices, devices_of_plan
from tensoropt.view.division import in_words, replicated_of, splits_of
from tensoropt.view.layer_names import layer_names

__all__ = ["Row", "rows_of", "with_communication"]

_NUMBER = re.compile(r"\d+")
_NO_WORK = VARIABLE_TYPES | NAMES_ONLY | {GRADIENT, "Const"}


@dataclass(slots=True)
class Row:
    """Like layers while they are collected.

    Attributes:
        pattern: their name, with a star for each number.
        stage: their stage; None without stages.
        splits: their division.
        words: the same in words.
        layers: operators of each layer, by its name.
        name: the row's name.
    """

    pattern: str
    stage: int | None
    splits: tuple[Split, ...]
    words: str
    layers: dict[str, list[OperatorPlan]] = field(default_factory=dict)
    name: str = ""

    @property
    def operators(self) -> list[OperatorPlan]:
        """The operators of all its layers."""
        return [operator for layer in self.layers.values() for operator in layer]


def rows_of(plan: Plan) -> list[Row]:
    """The rows of a plan, in the order of the step."""
    stage_of, names = plan.stage_of, layer_names(plan)
    devices: dict[int | None, Devices] = {
        stage: devices_of_plan(plan, stage)
        for stage in (range(len(plan.stages)) if plan.stages else [None])
    }
    layers: dict[tuple[str, int | None], list[OperatorPlan]] = {}
    for operator in sorted(plan.operators, key=lambda each: each.type in VARIABLE_TYPES):
        key = names[operator.name], stage_of.get(operator.name)
        layers.setdefault(key, []).append(operator)
    rows: dict[tuple[str, int | None, str], Row] = {}
    for (name, stage), operators in layers.items():
        working = [operator for operator in operators if operator.type not in _NO_WORK]
        if not working and not any(operator.variable for operator in operators):
            continue
        splits = splits_of(working, devices[stage])
        pattern, words = _NUMBER.sub("*", name), in_words(splits, devices[stage])
        row = rows.setdefault((pattern, stage, words), Row(pattern, stage, splits, words))
        row.layers[name] = operators
    taken = Counter[str]()
    for row in rows.values():
        row.name = _range(list(row.layers))
        taken[row.name] += 1
        if taken[row.name] > 1:  # like layers that are divided in another way, or in another stage
            own = taken[row.name] if row.stage is None else f"stage {row.stage}"
            row.name += f" ({own})"
    return list(rows.values())


def _range(names: Sequence[str]) -> str:
    """The name of like layers, with the range of each number: "encoder/layer1-6"."""
    numbers = [[int(number) for number in _NUMBER.findall(name)] for name in names]
    columns = iter(zip(*numbers, strict=True))

    def ranged(_: re.Match[str]) -> str:
        column = next(columns)
        least, most = min(column), max(column)
        return str(least) if least == most else f"{least}-{most}"

    return _NUMBER.sub(ranged, names[0])


def with_communication(
    plan: Plan, rows: Sequence[Row], communication: Sequence[Communication]
) -> tuple[LayerView, ...]:
    """The rows as views.

    Args:
        plan: the plan.
        rows: its rows.
        communication: all its communication. A row has that of which it is the source, and what
            comes to its own devices from no other.
    """
    row_of = {operator.name: row.name for row in rows for operator in row.operators}
    positions: dict[str, list[int]] = {}
    for position, each in enumerate(communication):
        positions.setdefault(each.source, []).append(position)
    devices = {row.stage: devices_of_plan(plan, row.stage) for row in rows}
    return tuple(
        _view(row, row_of, communication, positions.get(row.name, []), devices[row.stage])
        for row in rows
    )


def _view(
    row: Row,
    row_of: Mapping[str, str],
    communication: Sequence[Communication],
    positions: Sequence[int],
    devices: Devices,
) -> LayerView:
    operators = row.operators
    time = Counter[str]()
    for operator in operators:
        if operator.type not in _NO_WORK:
            time[operator.type] += operator.time_nanoseconds
    reads = dict.fromkeys(
        row_of[name] for operator in operators for name in operator.reads if name in row_of
    )
    weights = [operator for operator in operators if operator.variable == "weights"]
    computing = [o for o in operators if o.type not in _NO_WORK]
    shapes = [o.shape for o in sorted(computing, key=lambda o: -o.time_nanoseconds) if o.shape]
    own = [communication[position] for position in positions]
    return LayerView(
        name=row.name,
        names=tuple(row.layers),
        stage=row.stage,
        words=row.words,
        splits=row.splits,
        replicated=replicated_of([*computing, *weights], devices),
        types=tuple(name for name, _ in time.most_common()),
        operators=tuple(operator.name for operator in operators),
        shape=shapes[0] if shapes else (),
        reads=tuple(name for name in reads if name != row.name),
        operators_nanoseconds=sum(operator.time_nanoseconds for operator in operators),
        network_nanoseconds=sum(each.nanoseconds for each in own),
        communicated_bytes=sum(each.step_bytes for each in own),
        weight_bytes=sum(operator.memory_bytes for operator in weights),
        memory_bytes=sum(operator.memory_bytes for operator in operators),
        communication=tuple(positions),
    )
