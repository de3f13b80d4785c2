"""How a plan compares with fewer devices, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.plan.amounts import devices_of

__all__ = ["SAME_TIME", "compared_with"]

SAME_TIME = 0.03
"""Share of a step's time by which predictions are too close to tell which step is faster: where
they are compared with steps (docs/costs.md), errors are of about this size."""


def compared_with(devices: int, nanoseconds: int, others: Sequence[tuple[int, int | None]]) -> str:
    """Say how a plan compares with fewer devices; empty where nothing is known.

    Args:
        devices: the plan's.
        nanoseconds: predicted for the plan's step.
        others: number of devices and the time of a step there, None where it does not fit.
    """
    known = dict(others)
    if not known:
        return ""
    alone = known.get(1)
    said = []
    if alone is not None:
        said.append(f"{alone / 1e6:.3f} ms on one device")
    elif 1 in known:
        said.append("does not fit one device")
    fitting = {count: time for count, time in known.items() if time is not None}
    best = min(fitting, key=fitting.__getitem__, default=devices)
    if best == devices or nanoseconds <= (1 + SAME_TIME) * fitting[best]:
        if alone is not None and alone <= (1 + SAME_TIME) * nanoseconds:
            said[-1] += ", about as fast"
    elif best == 1:
        said[-1] += ", the fastest number of devices here: run with mpirun -np 1"
    else:
        said.append(
            f"{fitting[best] / 1e6:.3f} ms on {devices_of(best)}, the fastest number of devices "
            f"here: run with mpirun -np {best}"
        )
    return "; ".join(said)
