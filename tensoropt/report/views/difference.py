"""The difference of two plans: sentences, and a table of the layers that are divided otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensoropt.report.text_table import Report, table
from tensoropt.report.views.amounts import memory, plural, time
from tensoropt.view.difference import PlanDifference

__all__ = ["difference_report"]

_TIMES = 10
"""The ratio from which a change is a number of times, not per cent."""


def difference_report(found: PlanDifference) -> Report:
    """Time, memory and communication of both plans, and the layers that they divide otherwise.

    Times of layers are those of operators and communication. Like layers with the same change are
    one row.
    """
    changed = found.divided_otherwise
    rows = [
        [
            each.name,
            "" if len(each.names) == 1 else f"x{len(each.names)}",
            each.before or "no such layer",
            each.after or "no such layer",
            f"{each.before_nanoseconds / 1e6:,.3f}",
            f"{each.after_nanoseconds / 1e6:,.3f}",
            f"{(each.after_nanoseconds - each.before_nanoseconds) / 1e6:+,.3f}",
        ]
        for each in changed
    ]
    layers = sum(len(each.names) for each in found.layers)
    others = sum(len(each.names) for each in changed)
    parts: list[Report | str] = [*_sentences(found), ""]
    if not rows:
        return Report(*parts, f"all {plural(layers, 'layer')} are divided alike")
    parts.append(f"{others} of {plural(layers, 'layer')} are divided otherwise\n")
    header = ["layer", "", "before", "after", "before (ms)", "after (ms)", "change (ms)"]
    right = [False, True, False, False, True, True, True]
    return Report(*parts, table(header, rows, right))


def _sentences(found: PlanDifference) -> Iterator[str]:
    """What the plans are for, then one line for each quantity."""
    old, new = found.before, found.after
    if not found.same_step:
        yield "The plans are for different steps (graph or shapes): layers are compared by name."
    if old.devices != new.devices:
        yield f"The plans are for {old.devices} and {plural(new.devices, 'device')}."
    if not found.same_cluster:
        names = f"{old.cluster} and {new.cluster}"
        alike = ", which have one name and other numbers" if old.cluster == new.cluster else ""
        yield f"The plans are for different clusters, {names}{alike}: times say little together."
    yield f"step           {_change(old.step_nanoseconds, new.step_nanoseconds, time)}"
    yield f"memory         {_change(old.memory_bytes, new.memory_bytes, memory)}, the search's sums"
    if old.peak_bytes is not None and new.peak_bytes is not None:
        estimated = ", estimated" if old.peak_is_estimated or new.peak_is_estimated else ""
        yield f"peak           {_change(old.peak_bytes, new.peak_bytes, memory)}{estimated}"
    spent = _change(old.network_nanoseconds, new.network_nanoseconds, time)
    sent = _change(found.before_communicated_bytes, found.after_communicated_bytes, memory)
    yield f"communication  {spent}; {sent}"
    yield f"way            {old.way}{'' if old.way == new.way else f' -> {new.way}'}"


def _change(old: int, new: int, words: Callable[[int], str]) -> str:
    """Both amounts, and their change."""
    if old == new:
        return f"{words(old)}, the same"
    ratio = new / old if old else 0.0
    said = f"{ratio - 1:+.1%}" if ratio < _TIMES else f"{ratio:,.0f} times"
    return f"{words(old)} -> {words(new)}{f' ({said})' if old else ''}"
