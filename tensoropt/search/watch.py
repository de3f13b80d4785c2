"""Watching a search: how far it is, and what it has when somebody or its time ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from math import inf
from typing import NamedTuple, ParamSpec

from tensoropt.search.compilation import search_clock
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import EndedBy, Frontier

__all__ = [
    "Progress",
    "Watch",
    "interruptible",
    "keep",
    "look_at_clock",
    "seconds_left",
    "tell",
    "was_interrupted",
]

Arguments = ParamSpec("Arguments")
Progress = Callable[[str, int, int], None]
"""Told what is done, how much of it is, and of how much."""

_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


class _TimeIsOver(BaseException):
    """As `KeyboardInterrupt`, no error that code in between may handle."""


class _Kept(NamedTuple):
    """What makes a frontier, and whether it is one for interruptions alone."""

    make: Callable[[], Frontier]
    is_last_resort: bool


class Watch:
    """Somebody who waits for a search, for as long as it is entered as a context.

    Within another one it watches one search of several: it tells the other's progress, ends when
    the other's time is over, and the other hears how it ended.

    Args:
        progress: told how far the search is, up to some thousand times a second.
        seconds: after which the search ends with what it has, as soon as it has a frontier; no
            limit if None.
        worth: of a proven gap, the seconds after which closing it takes longer than it is worth:
            the search then ends likewise. No limit if None.
        clock: tells seconds; by default those in which no kernel is compiled.

    Attributes:
        interrupted: whether a first ``KeyboardInterrupt`` has come: the search ends with what it
            has, where it has a frontier. A second one is raised.
        timed_out: whether time has ended the search.
        was_not_worth: whether that was since the rest was not worth it.
        progress: see above.
        known: of each problem that is being solved, the innermost last, what was kept.
    """

    def __init__(
        self,
        progress: Progress | None = None,
        seconds: float | None = None,
        worth: Callable[[float], float] | None = None,
        clock: Callable[[], float] = search_clock,
    ) -> None:
        self.interrupted = self.timed_out = self.was_not_worth = False
        self.progress = progress
        self.known: list[_Kept | None] = []
        self._seconds, self._clock = inf if seconds is None else seconds, clock
        self._worth = worth
        self._outer: Watch | None = None

    def __enter__(self) -> Watch:
        self._outer = _current.get()
        if self.progress is None and self._outer is not None:
            self.progress = self._outer.progress
        self._token = _current.set(self)
        self._begun = self._clock()
        self._end = self._begun + self._seconds
        if self._outer is not None:
            self._end = min(self._end, self._outer._end)
        self._worth_end = inf
        self.has_proven(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        if self._outer is not None:
            self._outer.interrupted |= self.interrupted
            self._outer.timed_out |= self.timed_out
            self._outer.was_not_worth |= self.was_not_worth

    @property
    def ended_by(self) -> EndedBy:
        """What has ended the search, if it did not end by itself."""
        return "interruption" if self.interrupted else "time" if self.timed_out else ""

    @property
    def was_interrupted_before(self) -> bool:
        """Whether a ``KeyboardInterrupt`` has come, in this search or an earlier one."""
        outer = self._outer
        return self.interrupted or (outer is not None and outer.was_interrupted_before)

    @property
    def seconds_left(self) -> float:
        """Until the time is over; infinite without a limit."""
        end = min(self._end, self._worth_end)
        return inf if end == inf else max(0.0, end - self._clock())

    def has_proven(self, gap: float) -> None:
        """Search on for as long as closing a gap is worth."""
        if self._worth is not None:
            self._worth_end = min(self._worth_end, self._begun + self._worth(gap))

    def end(self) -> None:
        """Take in that time has ended the search."""
        self.timed_out = True
        self.was_not_worth |= self._worth_end < self._end

    def look_at_clock(self) -> None:
        """End the search if its time is over, once there is a frontier to end with."""
        if self.timed_out or self.seconds_left:
            return
        if any(kept is not None and not kept.is_last_resort for kept in self.known):
            raise _TimeIsOver


def tell(what: str, done: int, all_: int) -> None:
    """Say how far a search is. It may end here, as its time is over."""
    watch = _current.get()
    if watch is not None:
        if watch.progress is not None:
            watch.progress(what, done, all_)
        watch.look_at_clock()


def look_at_clock() -> None:
    """What long loops call between two `tell`, in any thread: the search may end here, too."""
    watch = _current.get()
    if watch is not None:
        watch.look_at_clock()


def keep(
    known: Frontier | Callable[[], Frontier],
    *,
    last_resort: bool = False,
    gap: float | None = None,
) -> None:
    """Give what the problem's search ends with if it is ended now; made when it is needed.

    What is kept next is to be at least as good: a point as good as each, no wider gap.

    Args:
        known: the frontier.
        last_resort: whether it does for an interruption alone; time then does not end the search.
        gap: its proven gap, if there is one; of a frontier that is given its own.
    """
    watch = _current.get()
    if watch is not None and watch.known:
        gap = known.within if isinstance(known, Frontier) else gap
        if gap is not None:
            watch.has_proven(gap)
        make = (lambda: known) if isinstance(known, Frontier) else known
        watch.known[-1] = _Kept(make, last_resort)


def interruptible(solver: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """A solver that ends with what it has kept, at the first ``KeyboardInterrupt`` in a watch or
    when its time is over."""

    @wraps(solver)
    def search(*args: Arguments.args, **options: Arguments.kwargs) -> Outcome:
        watch = _current.get()
        if watch is None:
            return solver(*args, **options)
        watch.known.append(None)
        try:
            return solver(*args, **options)
        except KeyboardInterrupt:
            kept = watch.known[-1]
            if kept is None or watch.was_interrupted_before:
                raise
            watch.interrupted = True
            return Outcome(kept.make())
        except _TimeIsOver:
            kept = watch.known[-1]
            if kept is None or kept.is_last_resort:
                raise
            watch.end()
            return Outcome(kept.make())
        finally:
            watch.known.pop()

    return search


def was_interrupted() -> bool:
    """Whether the search is to end with what it has, as somebody or its time has ended a part."""
    watch = _current.get()
    return watch is not None and watch.ended_by != ""


def seconds_left() -> float:
    """For how long to search: none where the time is over, or somebody has ended a search."""
    watch = _current.get()
    if watch is None:
        return inf
    return 0.0 if watch.was_interrupted_before else watch.seconds_left
