"""The memory of this process, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_mib", "reset_peak", "resident_mib"]


def resident_mib() -> float:
    """The resident memory of this process in MiB."""
    return _status("VmRSS")


def peak_mib() -> float:
    """The largest resident memory since `reset_peak`, or since the start, in MiB."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Let `peak_mib` count from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))
