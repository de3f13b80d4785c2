"""Every rank: plan strategies along the frontier and those of other systems, and run them in turns.

    mpirun -np N python benchmarks/measured_frontier/trials.py MODEL BATCH POINTS TURNS RESULT.json

`tensoropt profile` measures this script's training step. In each turn a strategy takes a step whose
allocations are recorded (`benchmarks.costs.allocations`), one that does not count, and steps that
are timed.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import tensoropt
from benchmarks.costs.allocations import changes, left_and_most
from benchmarks.measured_frontier.strategies import BASELINES, MODELS, Measured, along
from benchmarks.speed.measure import Way, planned_step, times
from benchmarks.speed.models import Step, training_step
from collectives.group import Group
from tensoropt.frontend.job.job import current
from tensoropt.plan.plan import Plan

__all__ = ["main"]

_WARM_UP, _STEPS = 1, 4


def main(model: str, batch: int, points: int, turns: int, result: Path) -> None:
    """Plan and run; every rank calls."""
    tensoropt.init()
    step = training_step(MODELS[model][0], batch)
    with step.graph.as_default():
        planned = _planned(batch, points)
    group = current().group
    runs = [_Run(step, plan) for _, plan in planned]
    ways = {str(number): Way(run.step, run.turn) for number, run in enumerate(runs)}
    found = times(group, ways, _WARM_UP, turns, _STEPS)
    rows = [
        _measured(group, known, found[str(number)], runs[number].peaks)
        for number, (known, _) in enumerate(planned)
    ]
    if group.rank == 0:
        result.write_text(json.dumps([row.to_json() for row in rows]))


def _planned(batch: int, points: int) -> list[tuple[Measured, Plan]]:
    """Return points of the frontier and the strategies of other systems, each strategy once.

    The frontier is that of all strategies that keep tensors for the backward pass or recompute them
    (``save_memory``): without short memory the default looks at none that recompute.
    """
    planned = partial(tensoropt.find_strategy, batch_size=batch, save_memory=True)
    numbers = along(planned().points, points)
    plans: list[tuple[int | None, Plan]] = [(number, planned(point=number)) for number in numbers]
    names: list[list[str]] = [[] for _ in plans]
    for name in BASELINES:
        plan = tensoropt.find_strategy(batch_size=batch, algorithm=name)
        same = [place for place, (_, known) in enumerate(plans) if known.runs_as(plan)]
        if same:
            names[same[0]].append(name)
        else:
            plans.append((None, plan))
            names.append([name])
    return [
        (Measured.of(plan, number, own), plan)
        for (number, plan), own in zip(plans, names, strict=True)
    ]


class _Run:
    """One strategy, ready to run.

    Attributes:
        step: runs the step once.
        peaks: the peak of this rank's memory in each turn, in bytes.
    """

    def __init__(self, training: Step, plan: Plan) -> None:
        feeds = {given.op.name: value for given, value in training.feeds.items()}
        self.step = planned_step(plan, training.graph, training.train.name, feeds)
        self.peaks: list[int] = []
        self._stay_bytes, _ = left_and_most(changes(self.step))

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Record the peak of a step before others."""
        _, most = left_and_most(changes(self.step))
        self.peaks.append(self._stay_bytes + most)
        yield


def _measured(group: Group, known: Measured, seconds: list[float], peaks: list[int]) -> Measured:
    """Return a strategy with what was measured on all ranks."""
    low, middle, high = (float(each) * 1e3 for each in np.quantile(seconds, [0.25, 0.5, 0.75]))
    highest = group.allreduce(np.array(peaks), "max")
    return replace(
        known,
        measured_ms=middle,
        measured_bytes=int(np.median(highest)),
        spread_ms=(high - low) / 2,
        turns_ms=tuple((np.median(np.reshape(seconds, (-1, _STEPS)), axis=1) * 1e3).tolist()),
    )


if __name__ == "__main__":
    batch, points, turns = map(int, sys.argv[2:5])
    main(sys.argv[1], batch, points, turns, Path(sys.argv[5]))
