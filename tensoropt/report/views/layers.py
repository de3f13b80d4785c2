"""Tables of a plan's layers, their communication and memory, and of what devices do alike."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.report.text_table import Report, table
from tensoropt.report.views.amounts import memory, plural, time
from tensoropt.view import PlanView
from tensoropt.view.data.layers import Communication, LayerView
from tensoropt.view.division import merged

__all__ = [
    "communication_table",
    "layer_columns",
    "layer_table",
    "memory_table",
    "replicated_table",
]

_MOST_TENSORS = 15
"""The most rows of the table of tensors."""
_MOST_LAYERS = 2
"""The most layers that an entry names."""
_UNKNOWN = "this plan does not list its communication: its notes say why"


def layer_table(view: PlanView, layers: Sequence[LayerView] | None = None) -> Report:
    """One line per row of like layers: how many, their division in words, and their costs.

    Times are those of all layers of the row, forward and backward; network is the communication
    of which the row is the source. The share is of the predicted step; shares may exceed it
    together, because communication runs beside computation. Operators as ranks traced them have a
    column if there are any.

    Args:
        view: a plan's view.
        layers: the rows to show; by default all, in the order of the step.
    """
    return table(*layer_columns(view, view.layers if layers is None else layers))


def layer_columns(
    view: PlanView, layers: Sequence[LayerView]
) -> tuple[list[str], list[list[str]], list[bool]]:
    """The titles, the entries, and whether a column is aligned to the right."""
    has_measured = any(row.measured_nanoseconds is not None for row in view.layers)
    rows = [
        [
            *([str(row.stage)] if view.stages else []),
            row.name,
            "" if row.count == 1 else f"x{row.count}",
            row.words,
            f"{row.operators_nanoseconds / 1e6:,.3f}",
            *([_measured(row)] if has_measured else []),
            f"{row.network_nanoseconds / 1e6:,.3f}",
            f"{row.nanoseconds / max(view.summary.step_nanoseconds, 1):.0%}",
            f"{row.weight_bytes / 2**20:,.2f}",
        ]
        for row in layers
    ]
    header = ["layer", "", "divided", "operators (ms)", "network (ms)", "of step", "weights (MiB)"]
    right = [False, True, False, True, True, True, True]
    if has_measured:
        header.insert(4, "measured (ms)")
        right.insert(4, True)
    if view.stages:
        header, right = ["stage", *header], [True, *right]
    return header, rows, right


def _measured(row: LayerView) -> str:
    return "" if row.measured_nanoseconds is None else f"{row.measured_nanoseconds / 1e6:,.3f}"


def replicated_table(view: PlanView) -> Report:
    """One line for work, or weights, that as many devices repeat for the same reason."""
    found = merged(each for row in view.layers for each in row.replicated)
    if not found:
        return Report("nothing: devices divide all work and all weights")
    layers = {name: row.name for row in view.layers for name in row.operators}
    rows = [
        [
            each.what,
            str(each.copies),
            plural(len(each.operators), "operator" if each.what == "work" else "variable"),
            plural(len({layers[name] for name in each.operators}), "row"),
            time(each.nanoseconds) if each.what == "work" else memory(each.bytes),
            each.why,
        ]
        for each in found
    ]
    header = ["what", "devices", "how many", "of layers", "costs", "why"]
    return table(header, rows, [False, True, True, True, True, False])


def memory_table(view: PlanView) -> Report:
    """One line per holder of memory at the peak, and one per large tensor that is alive there."""
    held = view.memory
    total = max(held.peak_bytes, 1)
    rows = [
        [share.holder, memory(share.bytes), f"{share.bytes / total:.0%}"] for share in held.peak
    ]
    rows.append(["together", memory(held.peak_bytes), ""])
    shares = table(["held by", "memory", "share"], rows, [False, True, True])
    if not held.alive:
        return shares
    tensors = [
        [each.name, each.layer, each.holder, memory(each.bytes)]
        for each in held.alive[:_MOST_TENSORS]
    ]
    header = ["operator", "layer", "held by", "memory"]
    return Report(
        shares,
        f"\nthe peak is reached at {held.at}; the largest tensors there\n",
        table(header, tensors, [False, False, False, True]),
    )


def communication_table(view: PlanView) -> Report:
    """One line for communications of one kind between the same layers, the slowest first.

    A line has its purpose, the tensors, the layers between which they go, the collectives, the
    devices that take part, the bytes that each holds before, how often a step does it, and the
    time of all. The last line is the sum, which is the step's time in the network.
    """
    if not view.communication and view.summary.network_nanoseconds:
        return Report(_UNKNOWN)
    rows = [
        [
            each.purpose,
            each.what,
            each.source,
            _others(each),
            ", ".join(each.collectives),
            each.over,
            memory(each.bytes),
            str(each.times),
            f"{each.nanoseconds / 1e6:,.3f}",
        ]
        for each in view.communication
    ]
    total = sum(each.nanoseconds for each in view.communication)
    rows.append(["together", "", "", "", "", "", "", "", f"{total / 1e6:,.3f}"])
    header = ["why", "what", "from", "to", "collective", "over", "bytes a device", "times"]
    right = [*[False] * 6, True, True, True]
    return table([*header, "time (ms)"], rows, right)


def _others(communication: Communication) -> str:
    """The layers of a communication besides its source."""
    others = [target for target in communication.targets if target != communication.source]
    return f"{len(others)} other layers" if len(others) > _MOST_LAYERS else ", ".join(others)
