"""A sentence that compares a plan's step time with those of fewer devices."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.plan.amounts import devices_of

__all__ = ["SAME_TIME", "compared_with"]

SAME_TIME = 0.03
"""Two predicted times that differ by less than this share are the same: errors of predictions are
of about this size (docs/costs.md)."""


def compared_with(devices: int, nanoseconds: int, times: Sequence[tuple[int, int | None]]) -> str:
    """A sentence that compares a plan's step time with those of fewer devices; empty if unknown.

    Args:
        devices: the plan's number of devices.
        nanoseconds: the predicted time of the plan's step.
        times: (devices, time of a step there); a time is None if the step does not fit.
    """
    time_on = dict(times)
    if not time_on:
        return ""
    alone = time_on.get(1)
    phrases = []
    if alone is not None:
        phrases.append(f"{alone / 1e6:.3f} ms on one device")
    elif 1 in time_on:
        phrases.append("does not fit one device")
    fitting = {count: time for count, time in time_on.items() if time is not None}
    best = min(fitting, key=fitting.__getitem__, default=devices)
    if best == devices or nanoseconds <= (1 + SAME_TIME) * fitting[best]:
        if alone is not None and alone <= (1 + SAME_TIME) * nanoseconds:
            phrases[-1] += ", about as fast"
    elif best == 1:
        phrases[-1] += ", the fastest number of devices here: run with mpirun -np 1"
    else:
        phrases.append(
            f"{fitting[best] / 1e6:.3f} ms on {devices_of(best)}, the fastest number of devices "
            f"here: run with mpirun -np {best}"
        )
    return "; ".join(phrases)
