"""The time in which steps waited for input, on each rank, and lines about the input of loops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, time_ns

from tensoropt.frontend.job.job import Running, current
from tensoropt.plan.comparison import InputShare

__all__ = ["InputWait", "Lines"]


class InputWait:
    """Measures how long steps wait for their input on this rank.

    The first element of an iterator is left out: what begins a pipeline is not the time of a step.

    Attributes:
        seconds: the time of the measured steps, with waiting.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._waited = 0.0
        self._source: object = None
        self._ended = 0.0

    @contextmanager
    def measured(self, source: object) -> Iterator[None]:
        """A context in which the next element of an iterator is awaited."""
        started, started_ns = perf_counter(), time_ns()
        yield
        ended = perf_counter()
        trace = current().trace
        if trace is not None:
            trace.waited(started_ns, time_ns())
        if self._source is source:
            self._waited += ended - started
            self.seconds += ended - self._ended
        self._source, self._ended = source, ended

    def most(self, call: str) -> InputShare:
        """Return the largest share of the ranks. All ranks call this."""
        shares = current().agreement.gather(
            f"the input of {call}", self._waited / max(self.seconds, 1e-9)
        )
        rank = max(range(len(shares)), key=shares.__getitem__)
        return InputShare(shares[rank], rank)


class Lines:
    """Lines about the input of a loop, which the first rank shows once each."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, kind: str, text: str) -> None:
        """Show a line on the first rank, one of each kind."""
        if kind not in self._said and current().group.rank == 0:
            sys.stderr.write(f"tensoropt: {text}\n")
        self._said.add(kind)

    def tell_wait(self, label: str, wait: InputWait, running: Running | None) -> None:
        """Tell how long steps waited for input, once they have run. All ranks call this."""
        if running is not None and wait.seconds:
            running.input_wait = wait.most(label)
            self.say("wait", f"{label}: {running.input_wait}")
