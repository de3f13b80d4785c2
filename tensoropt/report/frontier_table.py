"""The frontier that a plan was chosen from, as a table."""

from __future__ import annotations

from tensoropt.plan import Plan
from tensoropt.planner.prices.frontier_peaks import evenly
from tensoropt.report.text_table import table

__all__ = ["frontier_table"]

_MOST_ROWS = 24


def frontier_table(plan: Plan) -> str:
    """One line per point, the least memory first: memory per device as the search adds it up, the
    peak where it is known, the search's sum of a step's times.

    The plan has a star, also where it is none of the points; what is over the memory limit does
    not fit: what is added up with the safety factor, peaks without. Of a long frontier the ends,
    the plan and points between them at even distances are shown. Where rewritten graphs were
    searched, each point has the substitutions of its graph. The header says where the plan's peak
    is estimated.
    """
    chosen = plan.memory_bytes, plan.time_nanoseconds
    points = sorted({*plan.frontier, chosen})
    own = points.index(chosen)
    limit = plan.memory_limit_bytes
    used = dict(zip(plan.frontier, plan.frontier_rewrites, strict=False))
    used.setdefault(chosen, tuple(dict.fromkeys(each.substitution for each in plan.rewrites)))
    peaks = dict(plan.frontier_peaks)
    if plan.peak_bytes is not None:
        peaks[plan.memory_bytes] = plan.peak_bytes
    rows = []
    for number in _shown(len(points), own):
        memory, time = points[number]
        peak = peaks.get(memory)
        fits = limit is None or (
            memory <= limit and (peak or 0) <= limit * plan.cluster.safety_factor
        )
        rows.append(
            [
                "*" if number == own else "",
                f"{memory / 2**20:,.2f}",
                "" if peak is None else f"{peak / 2**20:,.2f}",
                f"{time / 1e6:,.3f}",
                "yes" if fits else "no",
                *([", ".join(used.get(points[number], ()))] if plan.frontier_rewrites else []),
            ]
        )
    left_out = len(points) - len(rows)
    unit = "MiB, estimated" if plan.peak_is_estimated else "MiB"
    header = ["plan", "memory (MiB)", f"peak ({unit})", "search's sum (ms)", "fits"]
    right = [False, True, True, True, False]
    if plan.frontier_rewrites:
        header, right = [*header, "substitutions"], [*right, False]
    text = table(header, rows, right)
    return text + (f"\n({left_out} of {len(points)} points left out)" if left_out else "")


def _shown(count: int, own: int) -> list[int]:
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({*evenly(count, _MOST_ROWS - 1), own})
