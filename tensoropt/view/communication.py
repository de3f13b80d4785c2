"""A plan's communication: moves between the same layers, over the same devices, are one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.parallel.resharding import LOCAL_KINDS
from tensoropt.plan.details.move import Move
from tensoropt.plan.plan import Plan
from tensoropt.view.data import Communication
from tensoropt.view.devices import Devices, devices_of_plan
from tensoropt.view.layers import Row

__all__ = ["communication_of"]

_WORDS = {
    "forward": ("output of {}", "{} outputs"),
    "backward": ("gradient of the output of {}", "gradients of {} outputs"),
    "gradient sum": ("gradient of {}", "gradients of {} weights"),
    "statistics": ("statistics of {}", "statistics of {} batch normalisations"),
    "inside": ("partial results of {}", "partial results of {} operators"),
    "again": ("output of {}, again", "{} outputs, again"),
    "between stages": ("output of {}", "{} outputs"),
}
"""The words for the tensors of one move, and of several, by its purpose."""

_Key = tuple[str, tuple[str, ...], str, tuple[str, ...], tuple[int, ...], int | None]


def communication_of(plan: Plan, rows: Sequence[Row]) -> tuple[Communication, ...]:
    """The communication of a plan, the slowest first."""
    if plan.details is None:
        return ()
    row_of = {operator.name: row.name for row in rows for operator in row.operators}
    groups: dict[_Key, list[Move]] = {}
    for move in plan.details.moves:
        groups.setdefault(_key(move, row_of), []).append(move)
    devices: dict[int | None, Devices] = {}
    found = []
    for key, moves in groups.items():
        stage = key[-1]
        if stage not in devices:
            devices[stage] = devices_of_plan(plan, stage)
        found.append(_line(key, moves, devices[stage]))
    return tuple(sorted(found, key=lambda each: -each.nanoseconds))


def _key(move: Move, row_of: Mapping[str, str]) -> _Key:
    """The lines of two moves are one if this is equal."""
    source = next((row_of[name] for name in move.tensors if name in row_of), "")
    targets = dict.fromkeys(row_of[name] for name in move.readers if name in row_of)
    sums = move.purpose in ("gradient sum", "statistics")
    collectives = [step for step in move.steps if step.kind not in LOCAL_KINDS]
    axes = sorted({axis for step in collectives for axis in step.axes})
    kinds = dict.fromkeys(step.kind for step in collectives)
    target = (source,) if sums or not targets else tuple(targets)
    return move.purpose, tuple(kinds), source, target, tuple(axes), move.stage


def _line(key: _Key, moves: Sequence[Move], devices: Devices) -> Communication:
    _, kinds, source, targets, axes, _ = key
    tensors = tuple(dict.fromkeys(name for move in moves for name in move.tensors))
    times = sum(move.times for move in moves)
    total = sum(_bytes(move) * move.times for move in moves)
    one, several = _WORDS[moves[0].purpose]
    group = devices.pieces(axes)
    return Communication(
        purpose=moves[0].purpose,
        collectives=kinds,
        what=one.format(tensors[0]) if len(tensors) == 1 else several.format(len(tensors)),
        tensors=tensors,
        source=source,
        targets=targets,
        over=devices.over(axes),
        group=group,
        groups=devices.count // group,
        bytes=round(total / times),
        times=times,
        nanoseconds=sum(move.network_nanoseconds for move in moves),
    )


def _bytes(move: Move) -> int:
    """The bytes that a device holds before the first collective of a move."""
    return next((step.bytes for step in move.steps if step.kind not in LOCAL_KINDS), 0)
