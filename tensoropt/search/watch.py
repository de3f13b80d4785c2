"""Watching a search: how far it is, and what it has when somebody interrupts it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier

__all__ = [
    "Progress",
    "Watch",
    "interruptible",
    "keep",
    "tell",
    "was_interrupted",
]

Arguments = ParamSpec("Arguments")
Progress = Callable[[str, int, int], None]
"""Told what is done, how much of it is, and of how much."""

_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


class Watch:
    """Somebody who waits for a search, for as long as it is entered as a context.

    Args:
        progress: told how far the search is, up to some thousand times a second.

    Attributes:
        interrupted: whether a first ``KeyboardInterrupt`` has come: the search ends with what it
            has, where it has a frontier. A second one is raised.
        progress: see above.
        known: of each problem that is being solved, the innermost last, what makes the frontier
            that was kept.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self.interrupted = False
        self.progress = progress
        self.known: list[Callable[[], Frontier] | None] = []

    def __enter__(self) -> Watch:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def tell(what: str, done: int, all_: int) -> None:
    """Say how far a search is."""
    watch = _current.get()
    if watch is not None and watch.progress is not None:
        watch.progress(what, done, all_)


def keep(known: Frontier | Callable[[], Frontier]) -> None:
    """Give what an interruption ends the problem's search with; made when it is needed."""
    watch = _current.get()
    if watch is not None and watch.known:
        watch.known[-1] = (lambda: known) if isinstance(known, Frontier) else known


def interruptible(solver: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """A solver that ends with what it has kept at the first ``KeyboardInterrupt`` in a watch."""

    @wraps(solver)
    def search(*args: Arguments.args, **options: Arguments.kwargs) -> Outcome:
        watch = _current.get()
        if watch is None:
            return solver(*args, **options)
        watch.known.append(None)
        try:
            return solver(*args, **options)
        except KeyboardInterrupt:
            known = watch.known[-1]
            if known is None or watch.interrupted:
                raise
            watch.interrupted = True
            return Outcome(known())
        finally:
            watch.known.pop()

    return search


def was_interrupted() -> bool:
    """Whether the search is to end with what it has."""
    watch = _current.get()
    return watch is not None and watch.interrupted
