"""``python -m benchmarks.composition.profiles``: rows of ``profiling`` beside what is planned.

Each row has to be what ``mini_time`` plans on as many devices: the predicted step, and the memory.
Graphs of the zoo have the fewest layers with all kinds of their operators. No clock ends a search,
as rows could differ by that. Nothing runs. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.composition.cells import data_parallel_bytes
from benchmarks.composition.models import step_request
from benchmarks.composition.options import default
from benchmarks.search.zoo.catalogue import ZOO
from tensoropt.errors import InfeasibleError
from tensoropt.garbage import collected_later
from tensoropt.plan.parallelism_profile import ProfilePoint
from tensoropt.planner.choose import choose, profiling
from tensoropt.planner.kernels import load_kernels
from tensoropt.planner.request import Request

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; status 1 if a row differs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.composition.profiles", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--models", nargs="+", choices=list(ZOO), default=list(ZOO))
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--limit", type=float, default=10.0, help="of data parallelism's memory")
    options = parser.parse_args(arguments)
    load_kernels()
    rows, different = 0, []
    for model in options.models:
        for row, told in _compared(model, options.devices, options.limit):
            rows += 1
            if told:
                different.append(f"{model} on {row.devices}: {told}")
        print(model, rows, "rows", *different, flush=True)
    print(json.dumps({"rows": rows, "different": different}))
    return int(bool(different))


@collected_later()  # as `find_strategy`
def _compared(model: str, devices: Sequence[int], limit: float) -> list[tuple[ProfilePoint, str]]:
    """The rows of a model's profile, each with how the plan differs; empty where it is equal."""
    request = default(step_request(model, max(devices), small=True))
    share = int(limit * data_parallel_bytes(request))
    request = replace(request, memory_limit_bytes=share, saves_dry_runs=True)
    found = profiling(request, devices)
    return [(row, _difference(request, row)) for row in found.points]


def _difference(request: Request, row: ProfilePoint) -> str:
    try:
        plan = choose(replace(request, devices=row.devices), "mini_time")
    except InfeasibleError:
        return "" if row.time_seconds is None else "nothing fits"
    if (row.time_seconds, row.memory_bytes) == (plan.predicted_step_seconds, plan.memory_bytes):
        return ""
    return f"{row.time_seconds} for {plan.predicted_step_seconds} s"


if __name__ == "__main__":
    raise SystemExit(main())
