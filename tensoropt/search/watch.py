"""Watching a search: its progress, and its best frontier when it is ended."""

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
    "is_stopped_by_user",
    "keep",
    "look_at_clock",
    "seconds_left",
    "tell",
    "was_interrupted",
]

Arguments = ParamSpec("Arguments")
Progress = Callable[[str, int, int], None]
"""Called with the name of a step, the work done, and all work."""

_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


class _TimeIsOver(BaseException):
    """Ends a search. It is a BaseException like `KeyboardInterrupt`, so that no handler of
    errors between the search's loops and `interruptible` catches it."""


class _Kept(NamedTuple):
    """A function that makes a frontier, and whether the frontier serves interruptions alone."""

    make: Callable[[], Frontier]
    is_last_resort: bool


class Watch:
    """Watches a search while it is entered as a context.

    Inside another watch it covers one of several searches: it reports to the other's progress, ends
    when the other's time is over, and passes on how its search ended.

    Args:
        progress: called up to some thousand times a second.
        seconds: the time after which the search ends with its best frontier, as soon as it has one;
            no limit if None.
        worth: maps a proven gap to the seconds after which closing it takes longer than it is
            worth: the search ends then, too. No limit if None.
        clock: returns seconds; by default the clock of the outer watch, or the time without
            compilation of kernels.

    Attributes:
        interrupted: whether a first ``KeyboardInterrupt`` has ended the search, which then had a
            frontier. A second one is raised.
        timed_out: whether time has ended the search.
        was_not_worth: whether it ended since the gap was not worth more time.
        ran_out: whether a search inside was ended by time, or not begun since no time was left.
        progress: see above.
        known: for each problem that is being solved, the innermost last, the frontier that was
            kept.
    """

    def __init__(
        self,
        progress: Progress | None = None,
        seconds: float | None = None,
        worth: Callable[[float], float] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.interrupted = self.timed_out = self.was_not_worth = self.ran_out = False
        self.progress = progress
        self.known: list[_Kept | None] = []
        self._seconds = inf if seconds is None else seconds
        self._given_clock, self._clock = clock, clock or search_clock
        self._worth = worth
        self._outer: Watch | None = None

    def __enter__(self) -> Watch:
        self._outer = _current.get()
        if self.progress is None and self._outer is not None:
            self.progress = self._outer.progress
        self._token = _current.set(self)
        if self._given_clock is None and self._outer is not None:
            self._clock = self._outer._clock
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
            self._outer.ran_out |= self.ran_out

    @property
    def ended_by(self) -> EndedBy:
        """The reason why the search was ended, if it was."""
        return "interruption" if self.interrupted else "time" if self.timed_out else ""

    @property
    def was_interrupted_before(self) -> bool:
        """Whether a ``KeyboardInterrupt`` has ended this search or an earlier one."""
        outer = self._outer
        return self.interrupted or (outer is not None and outer.was_interrupted_before)

    @property
    def seconds_left(self) -> float:
        """The seconds until the time is over; infinite without a limit."""
        end = min(self._end, self._worth_end)
        return inf if end == inf else max(0.0, end - self._clock())

    @property
    def is_over_by_worth(self) -> bool:
        """Whether more time is not worth it, before the time is over."""
        return self._worth_end <= self._clock() < self._end

    def has_proven(self, gap: float) -> None:
        """Limit the search to the time that closing this gap is worth."""
        if self._worth is not None:
            self._worth_end = min(self._worth_end, self._begun + self._worth(gap))

    def end(self) -> None:
        """Record that time has ended the search."""
        self.timed_out = True
        self.ran_out |= not self.is_over_by_worth
        self.was_not_worth |= self._worth_end < self._end

    def look_at_clock(self) -> None:
        """End the search if its time is over, once there is a frontier to end with."""
        if self.timed_out or self.seconds_left:
            return
        if any(kept is not None and not kept.is_last_resort for kept in self.known):
            raise _TimeIsOver


def tell(what: str, done: int, all_: int) -> None:
    """Report progress. The search may end here if its time is over."""
    watch = _current.get()
    if watch is not None:
        if watch.progress is not None:
            watch.progress(what, done, all_)
        watch.look_at_clock()


def look_at_clock() -> None:
    """End the search if its time is over. Long loops call this between two `tell`, in any
    thread."""
    watch = _current.get()
    if watch is not None:
        watch.look_at_clock()


def keep(
    known: Frontier | Callable[[], Frontier],
    *,
    last_resort: bool = False,
    gap: float | None = None,
) -> None:
    """Set the frontier with which the problem's search ends if it is ended now.

    Each kept frontier is at least as good as the one before: for every point one as good, and no
    wider gap.

    Args:
        known: the frontier, or a function that makes it when it is needed.
        last_resort: whether it serves an interruption alone; time does not end the search then.
        gap: its proven gap, if there is one; a frontier states its own.
    """
    watch = _current.get()
    if watch is not None and watch.known:
        gap = known.within if isinstance(known, Frontier) else gap
        if gap is not None:
            watch.has_proven(gap)
        make = (lambda: known) if isinstance(known, Frontier) else known
        watch.known[-1] = _Kept(make, last_resort)


def interruptible(solver: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Make a solver return its kept frontier at a first ``KeyboardInterrupt`` or when its time
    is over."""

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
    """Whether an interruption or time has ended a part of the search, so that it is to end now."""
    watch = _current.get()
    return watch is not None and watch.ended_by != ""


def is_stopped_by_user() -> bool:
    """Whether Ctrl-C has ended this search or an earlier one."""
    watch = _current.get()
    return watch is not None and watch.was_interrupted_before


def seconds_left() -> float:
    """The seconds left for a search; 0 where time is over, or a search was interrupted.

    A question that time, or Ctrl-C, answers with 0 is noted in `Watch.ran_out`.
    """
    watch = _current.get()
    if watch is None:
        return inf
    left = 0.0 if watch.was_interrupted_before else watch.seconds_left
    watch.ran_out |= not left and not watch.is_over_by_worth
    return left
