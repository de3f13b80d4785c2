"""A table of the result of ``profiling``."""

from __future__ import annotations

from tensoropt.plan.amounts import quantity_of
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.report.text_table import Report, table

__all__ = ["profile_table"]

_MIXED = (
    "estimated: from the cluster's figures, because this machine was not measured with this number "
    "of ranks; the difference to measured times is larger than the errors of either"
)


def profile_table(profile: ParallelismProfile) -> Report:
    """One line for each number of devices and memory limit.

    A limit that all lines share is left out, and so are samples, costs and plans that no line has.
    The lines below the table say where scaling ends, for each memory limit under which it does.
    """
    columns = ["devices", "limit (MiB)", "time (ms)", "speedup", "memory (MiB)"]
    columns += ["samples/s", "cost of 1M samples", "network", "plan", "predicted"]
    left_out = set()
    if len({point.memory_limit_bytes for point in profile}) < 2:
        left_out.add("limit (MiB)")
    if all(point.samples_per_second is None for point in profile):
        left_out.add("samples/s")
    if all(point.million_samples_cost is None for point in profile):
        left_out.add("cost of 1M samples")
    if not any(point.way for point in profile):
        left_out |= {"network", "plan"}
    shown = [number for number, name in enumerate(columns) if name not in left_out]
    rows = []
    for point in profile:
        row = _row(point, profile.speedup(point))
        rows.append([row[number] for number in shown])
    to_the_right = [name != "plan" for name in columns if name not in left_out]
    rates = table([columns[number] for number in shown], rows, to_the_right)
    is_mixed = len({point.is_measured for point in profile}) > 1
    return Report(rates, *_ends(profile), *([_MIXED] if is_mixed else []))


def _ends(profile: ParallelismProfile) -> list[str]:
    """A sentence for each memory limit under which scaling ends."""
    limits = dict.fromkeys(point.memory_limit_bytes for point in profile)
    ends = {limit: profile.scaling_end(limit) for limit in limits}
    with_limit = {
        limit: f"with {limit / 2**20:,.2f} MiB, " if limit is not None and len(limits) > 1 else ""
        for limit in limits
    }
    return [f"{with_limit[limit]}{end}" for limit, end in ends.items() if end is not None]


def _row(point: ProfilePoint, speedup: float | None) -> list[str]:
    """All columns of a line."""
    seconds, rate, cost = point.time_seconds, point.samples_per_second, point.million_samples_cost
    limit = point.memory_limit_bytes
    return [
        str(point.devices),
        "" if limit is None else f"{limit / 2**20:,.2f}",
        "does not fit" if seconds is None else f"{seconds * 1e3:,.3f}",
        "" if speedup is None else f"{speedup:.2f}",
        f"{point.memory_bytes / 2**20:,.2f}",
        "" if rate is None else quantity_of(rate),
        "" if cost is None else quantity_of(cost),
        "" if not seconds else f"{point.network_seconds / seconds:.0%}",
        point.way,
        "measured" if point.is_measured else "estimated",
    ]
