"""A plan's communication: moves between the same layers, over the same devices, are one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.parallel.resharding import LOCAL_KINDS
from tensoropt.plan.details.move import Move
from tensoropt.plan.plan import Plan
from tensoropt.view.data.layers import Communication
from tensoropt.view.division import Devices, devices_by_stage
from tensoropt.view.layers import SUMS, Row, row_names

__all__ = ["communication_of"]

_WORDS = {
    "forward": "output",
    "backward": "gradient of the output",
    "gradient sum": "gradient",
    "statistics": "statistics",
    "inside": "partial results",
    "again": "output again",
    "between stages": "output",
    "back between stages": "gradient of the output",
}
"""The words for the tensor of a move, by its purpose."""
_MESSAGE = "message"
"""The kind of a message between two devices of different stages."""

_Key = tuple[str, tuple[str, ...], str, tuple[str, ...], tuple[int, ...], int | None]


def communication_of(plan: Plan, rows: Sequence[Row]) -> tuple[Communication, ...]:
    """The communication of a plan, the slowest first."""
    row_of, devices_of = row_names(rows), devices_by_stage(plan)
    names = {
        operator.name: operator.name.removeprefix(f"{layer}/")
        for row in rows
        for layer, operators in row.layers.items()
        for operator in operators
    }
    groups: dict[_Key, list[Move]] = {}
    for move in plan.details.moves:
        groups.setdefault(_key(move, row_of), []).append(move)
    found = [_line(key, moves, devices_of[key[-1]], names) for key, moves in groups.items()]
    return tuple(sorted(found, key=lambda each: -each.nanoseconds))


def _key(move: Move, row_of: Mapping[str, str]) -> _Key:
    """The lines of two moves are one if this is equal."""
    makers = [row_of[name] for name in move.tensors if name in row_of]
    readers = [row_of[name] for name in move.readers if name in row_of]
    source = next(iter(makers), "")
    collectives = [step for step in move.steps if step.kind not in LOCAL_KINDS]
    axes = sorted({axis for step in collectives for axis in step.axes})
    kinds = dict.fromkeys(step.kind for step in collectives)
    targets = tuple(dict.fromkeys(makers if move.purpose in SUMS else readers)) or (source,)
    return move.purpose, tuple(kinds), source, targets, tuple(axes), move.stage


def _line(
    key: _Key, moves: Sequence[Move], devices: Devices, names: Mapping[str, str]
) -> Communication:
    """One line for moves of the same key."""
    _, kinds, source, targets, axes, _ = key
    tensors = tuple(dict.fromkeys(name for move in moves for name in move.tensors))
    times = sum(move.times for move in moves)
    total = sum(_bytes(move) * move.times for move in moves)
    group = devices.pieces(axes)
    return Communication(
        purpose=moves[0].purpose,
        collectives=kinds,
        what=_what(moves[0].purpose, tensors, names),
        tensors=tensors,
        source=source,
        targets=targets,
        over="each device to the other stage" if kinds == (_MESSAGE,) else devices.over(axes),
        group=2 if kinds == (_MESSAGE,) else group,
        groups=devices.count if kinds == (_MESSAGE,) else devices.count // group,
        bytes=round(total / times),
        times=times,
        nanoseconds=sum(move.network_nanoseconds for move in moves),
    )


def _what(purpose: str, tensors: Sequence[str], names: Mapping[str, str]) -> str:
    """The tensors in words, by their operators' names within their layers."""
    word, of = _WORDS[purpose], dict.fromkeys(names.get(name, name) for name in tensors)
    if len(of) > 2:
        return f"{word} of {len(tensors)} {'weights' if purpose == 'gradient sum' else 'operators'}"
    layers = f" of {len(tensors)} layers" if len(tensors) > len(of) else ""
    return f"{word} of {' and '.join(of)}{layers}"


def _bytes(move: Move) -> int:
    """The bytes that a device holds before the first collective of a move."""
    return next((step.bytes for step in move.steps if step.kind not in LOCAL_KINDS), 0)
