"""The part of the steps' time in which they waited for input, on each rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from tensoropt.frontend.job.job import InputShare, current

__all__ = ["InputWait"]


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
        started = perf_counter()
        yield
        ended = perf_counter()
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
