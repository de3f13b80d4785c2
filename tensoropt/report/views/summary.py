"""A plan in some lines: its step, memory, what it is compared with, and its costliest layers."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.report.text_table import Report
from tensoropt.report.views.amounts import memory, plural, time
from tensoropt.report.views.layers import layer_table
from tensoropt.view import PlanView

__all__ = ["COSTLIEST", "summary", "summary_lines"]

COSTLIEST = 10
"""The layers that a summary shows."""
_INDENT = 12
_AXES, _SUMS = (
    "the predicted steps and peaks",
    "the predicted steps, and the search's sums of memory",
)


def summary(view: PlanView) -> Report:
    """The plan's sentence, its time and memory by cause, and its costliest layers."""
    lines = [view.summary.sentence]
    for title, text in summary_lines(view):
        lines.append(f"  {title:<{_INDENT - 2}}{text}")
    shown = view.costliest(COSTLIEST)
    which = "all layers"
    if len(shown) < len(view.layers):
        which = f"the {len(shown)} costliest of {len(view.layers)} rows of layers (--layers: all)"
    return Report(*lines, f"\n{which}\n", layer_table(view, shown))


def summary_lines(view: PlanView) -> Iterator[tuple[str, str]]:
    """The lines of the summary below its sentence, each with its title."""
    of = view.summary
    levels = " of ".join(plural(level.count, level.name) for level in of.levels)
    yield "devices", f"{levels} (cluster {of.cluster})"
    parts = [f"{part.name} {time(part.nanoseconds)}" for part in of.time]
    yield (
        "step",
        f"{time(of.step_nanoseconds)}: "
        + (", ".join(parts) or f"network {time(of.network_nanoseconds)}"),
    )
    yield "memory", _memory(view)
    points = {point.kind: point for point in view.frontier}
    plan, parallel = points["plan"], points.get("data parallelism")
    if parallel is not None:
        yield (
            "beside",
            (
                f"data parallelism {time(parallel.nanoseconds)} and {memory(parallel.shown_bytes)}"
                f"{'' if parallel.fits else ', which does not fit'}; this plan "
                f"{time(plan.nanoseconds)} and {memory(plan.shown_bytes)} "
                f"({_AXES if view.has_peaks else _SUMS})"
            ),
        )
    yield "frontier", _frontier(view)
    for each in view.measured:
        if each.measured is not None:
            predicted = "" if each.predicted is None else f", predicted {each.predicted:,.3f}"
            yield "measured", f"{each.name} {each.measured:,.3f} {each.unit}{predicted}"


def _memory(view: PlanView) -> str:
    of = view.summary
    if of.peak_bytes is None:
        text = f"{memory(of.memory_bytes)} a device (the search's sum)"
    else:
        how = "estimated" if of.peak_is_estimated else "predicted by a dry run"
        text = f"{memory(of.peak_bytes)} a device at the peak, {how}"
    if of.memory_limit_bytes is not None:
        text += f"; the sum may take {memory(of.memory_limit_bytes)}"
    held = ", ".join(f"{share.holder} {memory(share.bytes)}" for share in view.memory.peak)
    return f"{text}; {held}"


def _frontier(view: PlanView) -> str:
    points = [point for point in view.frontier if point.number is not None]
    if not points:
        return "the plan alone"
    least, most = points[0], points[-1]
    number = next(point.number for point in view.frontier if point.kind == "plan")
    place = "lies beside them" if number is None else f"is point {number}"
    return (
        f"{plural(len(points), 'strategy', 'strategies')} from "
        f"{memory(least.shown_bytes)} and {time(least.nanoseconds)} to "
        f"{memory(most.shown_bytes)} and {time(most.nanoseconds)}; this plan {place} (--frontier)"
    )
