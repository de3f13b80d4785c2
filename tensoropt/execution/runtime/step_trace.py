"""Timelines of a rank's steps in Chrome's trace format: computation and communication side by side.

Open the files of all ranks together in chrome://tracing or https://ui.perfetto.dev. Times are those
of the machine's clock, so ranks of one machine line up. The format is Google's "Trace Event
Format".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError

__all__ = ["Overlap", "StepTrace", "overlap"]

v1 = tf.compat.v1

FIRST, LAST = 3, 5
"""The first and the last traced run of a program, counted from one. Runs before it warm up."""
MOST_PROGRAMS = 8
"""The most programs that are traced. Each set of fetches and each batch size has a program."""
# "name = Type(inputs)"; after "[memory] " if the operator allocates memory.
_LABEL = re.compile(r"(^|\] )(?P<name>\S+) = (?P<type>\w+)\(")
_PASS = re.compile(r"^(?P<back>gradients[^/]*/|again/)?microbatch_(?P<number>\d+)/(?!sum_)")
"""The names of operators in the forward pass, or the backward pass, of a microbatch."""
_HOST_CALL = re.compile(r"(^|/)(reshard|send|receive)(_\d+)?$")

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator that ran, with start and end in nanoseconds of the machine's clock."""

    name: str
    type: str
    start: int
    end: int

    @property
    def communicates(self) -> bool:
        if self.type == "PyFunc":
            return _HOST_CALL.search(self.name) is not None
        return self.type.startswith(("Collectives", "Horovod"))


@dataclass(frozen=True, slots=True)
class Overlap:
    """The division of a step's time, in milliseconds.

    Attributes:
        step_ms: the time from the first operator's start to the last one's end.
        computation_ms: the time in which some operator computes.
        communication_ms: the time in which some collective runs or waits for other ranks.
        hidden_ms: the time in which both happen.
    """

    step_ms: float
    computation_ms: float
    communication_ms: float
    hidden_ms: float


class StepTrace:
    """Traces some runs of every program of this rank into one file.

    Args:
        folder: the folder for ``rankN.json``. It is created if needed.
        rank: the rank of this process.

    Raises:
        OptionError: the folder cannot be made.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                f"traces are written into a folder, a file for each rank. Got {str(folder)!r}: "
                f"{error.strerror}; name another one in TENSOROPT_TRACE."
            ) from error
        self._path = folder / f"rank{rank}.json"
        self._rank = rank
        self._programs = 0
        self._events: list[dict[str, Any]] = []
        self._steps: list[dict[str, Any]] = []
        self._wait: Interval | None = None
        self._wait_of_run: Interval | None = None

    def waited(self, start: int, end: int) -> None:
        """Note when this rank waited for the input of its next run, in nanoseconds since 1970."""
        self._wait = start, end

    def wants(self, run: int) -> bool:
        """Whether this run of a program, counted from one, is to be traced."""
        self._wait_of_run, self._wait = self._wait, None
        self._programs += run == FIRST
        return FIRST <= run <= LAST and self._programs <= MOST_PROGRAMS

    def add(self, metadata: Any, label: str) -> None:
        """Add TensorFlow's trace of one run, and write the file.

        Args:
            metadata: a RunMetadata of a run with full traces.
            label: the names of the fetches.
        """
        operators = list(_operators(metadata.step_stats))
        if not operators:
            return
        times = overlap(
            [(op.start, op.end) for op in operators if not op.communicates],
            [(op.start, op.end) for op in operators if op.communicates],
        )
        step = {"run": label, **{name: getattr(times, name) for name in times.__slots__}}
        if self._wait_of_run is not None:
            start, end = self._wait_of_run
            step["input_ms"] = (end - start) / 1e6
            self._events.append(_event("input", "wait for input", self._rank, start, end))
        self._events += _events(operators, self._rank, len(self._steps))
        self._events += _passes(operators, self._rank)
        self._steps.append(step)
        process = {"ph": "M", "name": "process_name", "pid": self._rank}
        named = {**process, "args": {"name": f"rank {self._rank}"}}
        text = {
            "displayTimeUnit": "ms",
            "otherData": {"rank": self._rank, "steps": self._steps},
            "traceEvents": [named, *self._events],
        }
        self._path.write_text(json.dumps(text), encoding="utf-8")


def overlap(computation: Iterable[Interval], communication: Iterable[Interval]) -> Overlap:
    """Return the times of computation and communication, and of their overlap.

    Args:
        computation, communication: start and end of operators in nanoseconds.
    """
    computing, communicating = _union(computation), _union(communication)
    both = [*computing, *communicating]
    hidden = sum(
        max(0, min(one[1], other[1]) - max(one[0], other[0]))
        for one in communicating
        for other in computing
    )
    step = max(end for _, end in both) - min(start for start, _ in both) if both else 0
    return Overlap(step / 1e6, _length(computing) / 1e6, _length(communicating) / 1e6, hidden / 1e6)


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals that overlap or touch."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def _operators(step_stats: Any) -> Iterable[_Operator]:
    """Yield the operators that ran, except constants and those that only begin or end a run."""
    for device in step_stats.dev_stats:
        for node in device.node_stats:
            label = _LABEL.search(node.timeline_label)
            if label is None or label["type"] in ("NoOp", "Const", "_Arg", "_Retval"):
                continue
            start = node.all_start_nanos + node.op_start_rel_nanos
            end = node.all_start_nanos + node.op_end_rel_nanos
            yield _Operator(label["name"], label["type"], start, end)


def _events(operators: Sequence[_Operator], rank: int, run: int) -> list[dict[str, Any]]:
    """Return complete events of Chrome's format. Operators that overlap are in different lines.

    Each has the number of its run, the position in ``steps`` of ``otherData``.
    """
    events: list[dict[str, Any]] = []
    for is_communication, line in ((False, "computation"), (True, "communication")):
        lanes: list[int] = []  # the time at which each is free again
        in_line = [op for op in operators if op.communicates == is_communication]
        for op in sorted(in_line, key=lambda op: op.start):
            lane = next((n for n, free in enumerate(lanes) if free <= op.start), len(lanes))
            lanes[lane : lane + 1] = [op.end]
            events.append(
                {
                    **_event(line, op.type, rank, op.start, op.end),
                    "tid": f"{line} {lane}" if lane else line,
                    "args": {"name": op.name, "run": run},
                }
            )
    return events


def _passes(operators: Sequence[_Operator], rank: int) -> list[dict[str, Any]]:
    """Return events for the passes of microbatches, from a pass's first operator to its last.

    A backward pass begins when the forward pass of its microbatch has ended. Its operators that run
    earlier, for example gradients of constants, do not count.
    """
    passes: dict[tuple[str, str], Interval] = {}
    for op in operators:
        named = _PASS.search(op.name)
        if named is not None and not op.communicates:
            key = "backward" if named["back"] else "forward", named["number"]
            start, end = passes.get(key, (op.start, op.end))
            passes[key] = min(start, op.start), max(end, op.end)
    for (direction, number), (start, end) in passes.items():
        if direction == "backward":
            _, forward_end = passes.get(("forward", number), (start, start))
            passes[direction, number] = max(start, forward_end), max(end, forward_end)
    return [
        {**_event("pass", " ".join(key), rank, start, end), "tid": "microbatches"}
        for key, (start, end) in sorted(passes.items(), key=lambda item: item[1])
    ]


def _event(category: str, name: str, rank: int, start: int, end: int) -> dict[str, Any]:
    """Return a complete event of Chrome's format, in a line of its category."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": rank,
        "tid": category,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
    }
