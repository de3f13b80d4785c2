"""What ``profiling`` found, as a table."""

from __future__ import annotations

from tensoropt.plan import ParallelismProfile
from tensoropt.report.text_table import table

__all__ = ["profile_table"]


def profile_table(profile: ParallelismProfile) -> str:
    """One line per number of devices: least time per step, its memory, the speedup."""
    first = next((point.time_seconds for point in profile if point.time_seconds), None)
    rows = []
    for point in profile:
        seconds = point.time_seconds
        rows.append(
            [
                str(point.devices),
                f"{seconds * 1e3:,.3f}" if seconds is not None else "does not fit",
                f"{first / seconds:.2f}" if first and seconds else "",
                f"{point.memory_bytes / 2**20:,.2f}",
            ]
        )
    header = ["devices", "time (ms)", "speedup", "memory (MiB)"]
    return table(header, rows, [True, True, True, True])
