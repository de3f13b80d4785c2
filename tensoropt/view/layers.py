"""The rows of a plan's layers: like layers, divided alike, are one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tensoropt.graph.operator import VARIABLE_TYPES
from tensoropt.plan.operator_plan import OperatorPlan
from tensoropt.plan.plan import Plan
from tensoropt.planner.names.layer_names import NO_WORK, OPTIMIZER, layer_names
from tensoropt.view.data.layers import Communication, LayerView, Split
from tensoropt.view.division import Devices, devices_by_stage, in_words, replicated_of, splits_of

__all__ = ["SUMS", "Row", "pattern_of", "range_of", "row_names", "rows_of", "with_communication"]

SUMS = ("gradient sum", "statistics")
"""Purposes of moves whose tensors may be those of several layers, and stay in their layers."""

_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class Row:
    """Like layers while they are collected.

    Attributes:
        pattern: their name, with a star for each number.
        stage: their stage; None without stages.
        devices: the devices of the stage, or of the plan.
        splits: their division.
        words: the same in words.
        layers: operators of each layer, by its name.
        name: the row's name.
    """

    pattern: str
    stage: int | None
    devices: Devices
    splits: tuple[Split, ...]
    words: str
    layers: dict[str, list[OperatorPlan]] = field(default_factory=dict)
    name: str = ""

    @property
    def operators(self) -> list[OperatorPlan]:
        """The operators of all its layers."""
        return [operator for layer in self.layers.values() for operator in layer]


def rows_of(plan: Plan) -> list[Row]:
    """The rows of a plan, in the order of the step; the optimizer's own are the last."""
    stage_of, names = plan.stage_of, layer_names(plan.operators)
    devices_of = devices_by_stage(plan)
    layers: dict[tuple[str, int | None], list[OperatorPlan]] = {}
    for operator in sorted(plan.operators, key=lambda each: each.type in VARIABLE_TYPES):
        key = names[operator.name], stage_of.get(operator.name)
        layers.setdefault(key, []).append(operator)
    rows: dict[tuple[str, int | None, str], Row] = {}
    for (name, stage), operators in layers.items():
        working = [operator for operator in operators if operator.type not in NO_WORK]
        if not working and not any(operator.variable for operator in operators):
            continue
        devices, pattern = devices_of[stage], pattern_of(name)
        splits = splits_of(working, devices)
        words = in_words(splits, devices)
        row = rows.setdefault((pattern, stage, words), Row(pattern, stage, devices, splits, words))
        row.layers[name] = operators
    taken = Counter[str]()
    for row in rows.values():
        row.name = range_of(list(row.layers))
        taken[row.name] += 1
        if taken[row.name] > 1:  # like layers that are divided in another way, or in another stage
            own = taken[row.name] if row.stage is None else f"stage {row.stage}"
            row.name += f" ({own})"
    return sorted(rows.values(), key=lambda row: row.pattern == OPTIMIZER)


def row_names(rows: Iterable[Row]) -> dict[str, str]:
    """The name of each operator's row."""
    return {operator.name: row.name for row in rows for operator in row.operators}


def pattern_of(name: str) -> str:
    """The name of a layer with a star for each number: like layers have the same."""
    return _NUMBER.sub("*", name)


def range_of(names: Sequence[str]) -> str:
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
        communication: all its communication. A row has that of which it is the source, and its
            part of the sums of gradients of several layers.
    """
    row_of = row_names(rows)
    positions: dict[str, list[int]] = {}
    network, sent = Counter[str](), Counter[str]()
    elements = {operator.name: prod(operator.shape) for operator in plan.operators}
    for position, each in enumerate(communication):
        shares = _shares(each, row_of, elements)
        for name in shares:
            positions.setdefault(name, []).append(position)
        for total, of_rows in ((each.nanoseconds, network), (each.step_bytes, sent)):
            parts = {name: int(total * share) for name, share in shares.items()}
            parts[each.source] += total - sum(parts.values())
            of_rows.update(parts)
    return tuple(
        replace(
            _view(row, row_of),
            network_nanoseconds=network[row.name],
            communicated_bytes=sent[row.name],
            communication=tuple(positions.get(row.name, ())),
        )
        for row in rows
    )


def _shares(
    communication: Communication, row_of: Mapping[str, str], elements: Mapping[str, int]
) -> dict[str, float]:
    """The share of each row in a communication: all for its source, but for sums of the gradients
    of several layers, which go by the elements of their weights."""
    if communication.purpose not in SUMS:
        return {communication.source: 1.0}
    of_rows = Counter[str]({communication.source: 0})
    for name in communication.tensors:
        of_rows[row_of.get(name, communication.source)] += elements.get(name, 1)
    total = max(of_rows.total(), 1)
    return {name: count / total for name, count in of_rows.items()}


def _view(row: Row, row_of: Mapping[str, str]) -> LayerView:
    """The view of a row without its communication."""
    operators = row.operators
    computing = [operator for operator in operators if operator.type not in NO_WORK]
    time = Counter[str]()
    for operator in computing:
        time[operator.type] += operator.time_nanoseconds
    reads = dict.fromkeys(
        row_of[name] for operator in operators for name in operator.reads if name in row_of
    )
    weights = [operator for operator in operators if operator.variable == "weights"]
    shapes = [o.shape for o in sorted(computing, key=lambda o: -o.time_nanoseconds) if o.shape]
    return LayerView(
        name=row.name,
        names=tuple(row.layers),
        stage=row.stage,
        words=row.words,
        splits=row.splits,
        replicated=replicated_of([*computing, *weights], row.devices),
        types=tuple(name for name, _ in time.most_common()),
        operators=tuple(operator.name for operator in operators),
        shape=shapes[0] if shapes else (),
        reads=tuple(name for name in reads if name != row.name),
        operators_nanoseconds=sum(operator.time_nanoseconds for operator in operators),
        network_nanoseconds=0,
        communicated_bytes=0,
        weight_bytes=sum(operator.memory_bytes for operator in weights),
        memory_bytes=sum(operator.memory_bytes for operator in operators),
        communication=(),
    )
