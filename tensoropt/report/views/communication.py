"""A table of a plan's communication."""

from __future__ import annotations

from tensoropt.report.text_table import Report, table
from tensoropt.report.views.amounts import memory
from tensoropt.view import PlanView
from tensoropt.view.data.layers import Communication

__all__ = ["communication_table"]

_MOST = 2
"""The most layers that an entry names."""
_UNKNOWN = "this plan's file does not record its communication: find the strategy again"


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
    return f"{len(others)} other layers" if len(others) > _MOST else ", ".join(others)
