"""Every rank: plan strategies along the frontier and those of other systems, and run them in turns.

    mpirun -np N python benchmarks/measured_frontier/trials.py MODEL BATCH POINTS TURNS RESULT.json

`tensoropt profile` measures this script's training step. In each turn a strategy takes a step that
counts memory, one that does not count, and steps that count time.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.measured_frontier.strategies import BASELINES, MODELS, Measured, along
from benchmarks.speed.measure import Way, times
from benchmarks.speed.models import Step, training_step
from collectives.group import Group
from tensoropt.execution.lowering.draws import Draws
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.plan_executor import plan_executor, ranks_of, session_config
from tensoropt.frontend.measuring.step_meter import Meter, allocated_bytes
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
    with tf.compat.v1.Session(graph=tf.Graph(), config=session_config(current())):
        pass  # makes the devices; their first user sets the number of threads
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
    numbers = along(planned().frontier, points)
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


@dataclass(slots=True)
class _Run:
    """One strategy, ready to run.

    Attributes:
        step: runs the step once.
        peaks: the peak of this rank's memory in each turn.
    """

    training: Step
    plan: Plan
    step: Callable[[], object] = field(init=False)
    peaks: list[int] = field(default_factory=list)
    _world: Any = field(init=False)
    _held_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        job, before = current(), _allocated()
        self._world, _, agreement = ranks_of(job, self.plan)
        assert self._world is not None, "a plan takes all ranks"
        executor = plan_executor(job, self.training.graph, self.plan, self._world, agreement)
        feeds = {given.op.name: value for given, value in self.training.feeds.items()}
        roots, draws = [self.training.train.name], Draws()
        self.step = lambda: executor.run([], roots, feeds, draws)
        for _ in range(2):
            self.step()
        self._held_bytes = _allocated() - before

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Count the memory of a step of this strategy, beside what the others hold."""
        before = _allocated()
        with Meter(self._world) as meter:
            self.step()
        peak = meter.peak_bytes()
        assert peak is not None, "the allocator counts"
        self.peaks.append(peak - before + self._held_bytes)
        yield


def _allocated() -> int:
    allocated = allocated_bytes()
    if allocated is None:
        raise RuntimeError("TensorFlow's allocator keeps no count; TF_ENABLE_ONEDNN_OPTS=1 has one")
    return allocated


def _measured(group: Group, known: Measured, seconds: list[float], peaks: list[int]) -> Measured:
    """Return a strategy with what was measured on all ranks."""
    low, middle, high = (float(each) * 1e3 for each in np.quantile(seconds, [0.25, 0.5, 0.75]))
    highest = group.allreduce(np.array(peaks), "max")
    return replace(
        known,
        measured_ms=middle,
        measured_bytes=int(np.median(highest)),
        spread_ms=(high - low) / 2,
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5]))
