"""Shares searches between the plans of one step, at the time that each search took."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from math import inf
from time import process_time
from typing import Any
from unittest.mock import patch

from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.errors import InfeasibleError
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.request import Request
from tensoropt.search.watch import Watch, seconds_left
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["ChargedResults"]

_PLANNER = "tensoropt.planner"
_SAME_SECONDS = 0.5
"""The most by which two time limits may differ if one search that they end serves both."""


@dataclass(frozen=True, slots=True)
class _Charged:
    """A result, and the seconds that it took.

    Attributes:
        result: the result.
        seconds: the seconds.
        limit: the time limit that ended the search; None if it ended by itself.
    """

    result: Any
    seconds: float
    limit: float | None

    def serves(self, limit: float) -> bool:
        """Whether a search with another time limit would have this result."""
        if self.limit is None:
            return self.seconds <= limit
        return abs(self.limit - limit) <= _SAME_SECONDS


class ChargedResults:
    """Results of searches and dry runs that plans share, and the clock of planning.

    A plan that takes a result from here is charged the seconds that the result took. So each plan
    has the time of one that shares nothing. A search that time would end is not taken from here,
    unless the same time limit ended the known one.
    """

    def __init__(self) -> None:
        self._results: dict[Hashable, _Charged] = {}
        self._charged = 0.0

    def clock(self) -> float:
        """Return the CPU seconds of this process, and those charged.

        CPU seconds end a search, because other processes may use the machine.
        """
        return process_time() + self._charged

    def once(self, key: Hashable, limit: float, find: Callable[[], Any]) -> Any:
        """Return a known result, charged, or find it.

        Args:
            key: distinguishes results.
            limit: the seconds that the search may take.
            find: returns the result.
        """
        known = self._results.get(key)
        if known is not None and known.serves(limit):
            self._charged += known.seconds
            return known.result
        begun = self.clock()
        with Watch() as watch:
            result = find()
        ended_at = limit if watch.ran_out else None
        self._results[key] = _Charged(result, self.clock() - begun, ended_at)
        return result

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share all searches of frontiers inside this context, whatever options ask for them."""
        with ExitStack() as stack:
            for module, name, value in (
                ("searches.frontier_search", "search_once", self._search_once),
                ("choose", "infeasible", _infeasible),
                ("choose", "Watch", partial(Watch, clock=self.clock)),
            ):
                place = import_module(f"{_PLANNER}.{module}")
                stack.enter_context(patch.object(place, name, value))
            yield

    def _search_once(
        self, name: str, request: Request, devices: int, search: Callable[[], Any]
    ) -> Any:
        """Return the result of a search, like the planner's function of this name."""
        transformed = request.rewrites, request.microbatches, request.space, request.shares
        key = name, id(request.graph), devices, request.closes, *transformed

        def find() -> Any:
            # Keeping the request keeps the identity of its graph.
            return request, search()

        limit = min(seconds_left(), request.search_seconds or inf)
        return self.once(key, limit, find)[1]

    def with_shared_dry_runs(self, request: Request) -> Request:
        """Return a request that makes each dry run of a strategy once."""
        dry_run = request.dry_run_peak

        def peak(
            mesh: Mesh,
            planned: Mapping[str, Configuration],
            steps: PlanSteps,
            microbatches: int,
            rewrites: Sequence[Rewrite],
        ) -> Peak | str:
            assert dry_run is not None, "below"
            key = "dry run", mesh, frozenset(planned.items()), microbatches, tuple(rewrites)
            run = partial(dry_run, mesh, planned, steps, microbatches, rewrites)
            found: Peak | str = self.once(key, inf, run)
            return found

        return request if dry_run is None else replace(request, dry_run_peak=peak)


def _infeasible(*_: Any) -> InfeasibleError:
    """The error without remedies, whose computation takes searches on more devices."""
    return InfeasibleError("no offer fits")
