"""A table of the frontier from which a plan was chosen."""

from __future__ import annotations

from tensoropt.plan import Plan
from tensoropt.planner.prices.peak import evenly
from tensoropt.report.text_table import Report, table

__all__ = ["frontier_table"]

_MOST_ROWS = 24  # of the table


def frontier_table(plan: Plan) -> Report:
    """One line per point, the least memory first.

    A line has the memory per device as the search adds it up, the peak if it is known, and the
    search's sum of a step's times. The plan has a star, even if it is not one of the points. A
    point fits if its sum times the safety factor is within the memory limit, and its peak, too. A
    long frontier is shortened to its ends, the plan, and points at even distances. A point's number
    is its position in ``plan.frontier``, for `find_strategy(point=...)`. If points run the step in
    different ways, each line has its own. The header says which peaks are estimated.
    """
    chosen = plan.memory_bytes, plan.time_nanoseconds
    points = sorted({*plan.frontier, chosen})
    plan_place = points.index(chosen)
    number_of = {point: number for number, point in enumerate(plan.frontier)}
    ways = dict(zip(plan.frontier, plan.frontier_ways, strict=False))
    ways.setdefault(chosen, plan.way)
    differ = bool(plan.frontier_ways) and len(set(ways.values())) > 1
    peaks = plan.known_peaks
    estimated = {is_estimated for _, is_estimated in peaks.values()}
    mark = "~" if len(estimated) == 2 else ""
    unit, size = ("MiB", 2**20) if points[-1][0] >= 2**20 else ("KiB", 2**10)
    rows = []
    for place in _shown(len(points), plan_place):
        memory, time = points[place]
        its_peak, is_estimated = peaks.get(memory, (None, False))
        rows.append(
            [
                "*" if place == plan_place else "",
                str(number_of.get(points[place], "")),
                f"{memory / size:,.2f}",
                "" if its_peak is None else f"{mark * is_estimated}{its_peak / size:,.2f}",
                f"{time / 1e6:,.3f}",
                "yes" if plan.fits(memory, its_peak) else "no",
                *([ways[points[place]]] if differ else []),
            ]
        )
    left_out = len(points) - len(rows)
    which = f"{mark} estimated".lstrip()
    peak = f"peak ({unit}, {which})" if True in estimated else f"peak ({unit})"
    header = ["plan", "point", f"memory ({unit})", peak, "search's sum (ms)", "fits"]
    right = [False, True, True, True, True, False]
    if differ:
        header, right = [*header, "way"], [*right, False]
    more = [f"({left_out} of {len(points)} points left out)"] if left_out else []
    return Report(table(header, rows, right), *more)


def _shown(count: int, plan_place: int) -> list[int]:
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({*evenly(count, _MOST_ROWS - 1), plan_place})
