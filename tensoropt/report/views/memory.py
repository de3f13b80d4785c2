"""Tables of what holds the memory of a plan's device at the peak."""

from __future__ import annotations

from tensoropt.report.text_table import Report, table
from tensoropt.report.views.amounts import memory
from tensoropt.view import PlanView

__all__ = ["memory_table"]

_MOST = 15  # tensors


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
        [each.name, each.layer, each.holder, memory(each.bytes)] for each in held.alive[:_MOST]
    ]
    header = ["operator", "layer", "held by", "memory"]
    return Report(
        shares,
        f"\nthe peak is reached at {held.at}; the largest tensors there\n",
        table(header, tensors, [False, False, False, True]),
    )
