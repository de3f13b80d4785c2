"""The paper's only absolute figures: data parallelism in section 5.1, and Table 4."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reproduction.paper.claims.evidence import (
    Claim,
    Evidence,
    Judgement,
    at_least,
    at_most,
    decided,
    gb,
    judged,
    seconds,
)
from reproduction.paper.claims.parallelism import shortest
from reproduction.paper.results import Result
from reproduction.paper.tasks import Task

__all__ = ["absolute_claims"]

_SAME_MEMORY, _SAME_TIME, _SAME_RATIO = 1.05, 1.25, 1.1  # factors in both directions
_RNN_GB, _RNN_SECONDS = 109.0, 39.0
_TABLE_4 = {
    "vgg16": ("VGG16", 0.16, 0.10),
    "wide_resnet": ("WideResNet", 2.89, 1.99),
    "transformer_half": ("Transformer-S", 1.18, 1.16),
}
"""Titles, and seconds of data parallelism and of mini-time."""


def absolute_claims(evidence: Evidence) -> Iterator[Claim]:
    """Our figures beside the paper's: memory within 5 %, times within a quarter, and ratios of
    times within a tenth."""
    rnn = Task("rnn", "data_parallel", layers=True)
    yield judged(
        "6",
        "RNN, layers as operators: data parallelism takes 109 GB",
        lambda: _memory(evidence, rnn),
    )
    yield judged(
        "6",
        "RNN: data parallelism takes 39 s",
        lambda: _time(evidence, Task("rnn", "data_parallel"), _RNN_SECONDS),
    )
    for model, (title, parallel, least) in _TABLE_4.items():
        yield judged(
            "Table 4",
            f"{title}: data parallelism takes {parallel:g} s",
            partial(_time, evidence, Task(model, "data_parallel"), parallel),
        )
        yield judged(
            "Table 4",
            f"{title}: mini-time takes {least:g} s",
            partial(_time, evidence, Task(model), least),
        )
        yield judged(
            "Table 4",
            f"{title}: data parallelism takes {parallel / least:.2f} times as long as mini-time",
            partial(_ratio, evidence, model, parallel / least),
        )


def _memory(evidence: Evidence, task: Task) -> Judgement:
    result = evidence[task]
    ratio = int(result.memory_bytes[0]) / 2**30 / _RNN_GB
    why = f"{gb(int(result.memory_bytes[0]))}, {ratio:.3f} times the paper's"
    return decided(why, [at_most(ratio, _SAME_MEMORY), at_least(ratio, 1 / _SAME_MEMORY)], result)


def _time(evidence: Evidence, task: Task, paper: float) -> Judgement:
    """The time of a single point, or of the fastest strategy that fits the devices."""
    result = evidence[task]
    place, time = _of(result)
    computing = int(result.computation_nanoseconds[place])
    ratio = time / 1e9 / paper
    why = (
        f"{seconds(time)}, {ratio:.2f} times the paper's; computation is {seconds(computing)}, "
        f"network time {seconds(time - computing)}"
    )
    return decided(why, [at_most(ratio, _SAME_TIME), at_least(ratio, 1 / _SAME_TIME)], result)


def _ratio(evidence: Evidence, model: str, paper: float) -> Judgement:
    """Data parallelism's time over that of mini-time, which no efficiency common to both moves."""
    results = evidence[Task(model, "data_parallel")], evidence[Task(model)]
    ratio = _of(results[0])[1] / _of(results[1])[1]
    off = ratio / paper
    why = f"{ratio:.2f} times, {off:.2f} of the paper's"
    return decided(why, [at_most(off, _SAME_RATIO), at_least(off, 1 / _SAME_RATIO)], *results)


def _of(result: Result) -> tuple[int, int]:
    """The place and the time of a single point, or of the fastest strategy that fits; of the
    fastest if none fits."""
    place = result.fastest_within(result.device_memory_bytes)
    time = shortest(result) if result.task.algorithm == "ft" else int(result.nanoseconds[-1])
    if time is None or place is None:
        return -1, int(result.nanoseconds[-1])
    return place, time
