"""Times the steps of one model over machines; the first rank writes the times to a file.

    mpirun -np 2 python -m benchmarks.machines.measure MODEL RESULT.json

The ways are no communication, Horovod, and ours by data parallelism and by ``mini_time``. They take
turns, see `benchmarks.speed.measure`. Where steps are long, fewer are timed. The times are
milliseconds; "predicted" is the predicted step of ``mini_time``, "predicted_data_parallel" that of
data parallelism.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

import numpy as np

import tensoropt
from benchmarks.speed.measure import Way, horovod_way, medians, plain_way, planned_way
from benchmarks.speed.models import BATCHES, training_step
from collectives.group import Group
from tensoropt.frontend.job.job import current

__all__: list[str] = []

_FAST, _SLOW = (3, 7, 3), (1, 3, 1)  # warm-up, turns, and steps of a turn
_SLOW_SECONDS = 1.0  # of the slowest way's step, from which fewer steps are timed


def main(model: str, result: Path) -> None:
    """Measure all ways; every rank calls."""
    tensoropt.enable_graph_mode()
    tensoropt.init(allow_copies=True)
    group = current().group
    share = BATCHES[model] // group.size
    ways = {"none": plain_way(training_step(model, share))}
    if importlib.util.find_spec("horovod") is not None:
        ways["horovod"] = horovod_way(model, share)
    ways["data_parallel"], data_parallel = planned_way(model, "data_parallel")
    ways["mini_time"], plan = planned_way(model, "ft")
    warm_up, turns, steps = _SLOW if _slowest(group, ways) > _SLOW_SECONDS else _FAST
    found = medians(group, ways, warm_up, turns, steps)
    found["predicted"] = plan.executed_nanoseconds / 1e6
    found["predicted_data_parallel"] = data_parallel.executed_nanoseconds / 1e6
    if group.rank == 0:
        result.write_text(json.dumps(found))


def _slowest(group: Group, ways: dict[str, Way]) -> float:
    """Seconds of a step of the slowest way on the slowest rank, after one that is not timed."""
    slowest = 0.0
    for way in ways.values():
        with way.turn():
            way.step()
            started = time.perf_counter()
            way.step()
            slowest = max(slowest, time.perf_counter() - started)
    return float(group.allreduce(np.array([slowest]), "max")[0])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
