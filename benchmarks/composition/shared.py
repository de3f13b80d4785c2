"""Shares searches between plans of one step on one number of devices under several memory
limits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from time import process_time
from typing import Any
from unittest.mock import patch

from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.errors import InfeasibleError
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.search.watch import Watch
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["shared_dry_runs", "shared_searches"]

_PLANNER = "tensoropt.planner"
_SHARED = (
    ("searches.joint_search", "near_candidates"),
    ("searches.joint_search", "search_frontier"),
    ("offers.strategies", "search_frontier"),
    ("spaces.microbatches", "least_bytes"),
    ("spaces.microbatches", "microbatch_counts"),
    ("spaces.stages", "microbatch_counts"),
)
"""Functions of a request and other arguments whose result does not depend on the memory limit."""


def shared_dry_runs(request: Request) -> Request:
    """A request that makes each dry run once."""
    dry_run, of_stage = request.dry_run_peak, request.stage_peak
    known: dict[Hashable, Peak | str] = {}

    def peak(
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        steps: PlanSteps,
        microbatches: int,
        rewrites: Sequence[Rewrite],
    ) -> Peak | str:
        assert dry_run is not None, "below"
        key = mesh, frozenset(planned.items()), microbatches, tuple(rewrites)
        if key not in known:
            known[key] = dry_run(mesh, planned, steps, microbatches, rewrites)
        return known[key]

    return request if dry_run is None else replace(request, dry_run_peak=peak, stage_peak=of_stage)


@contextmanager
def shared_searches() -> Iterator[None]:
    """Share all searches inside this context, whatever memory limits and options ask for them.

    CPU seconds end a search, because other processes may use the machine.
    """
    known: dict[Hashable, Any] = {}
    with ExitStack() as stack:
        for module, name in _SHARED:
            place = import_module(f"{_PLANNER}.{module}")
            found = _once(getattr(place, name), known, name)
            stack.enter_context(patch.object(place, name, found))
        place = import_module(f"{_PLANNER}.choose")
        stack.enter_context(patch.object(place, "infeasible", _infeasible))
        stack.enter_context(patch.object(place, "Watch", partial(Watch, clock=process_time)))
        place = import_module(f"{_PLANNER}.spaces.stages")
        stack.enter_context(patch.object(place, "PipelineSearch", _searches(known)))
        yield


def _infeasible(*_: Any) -> InfeasibleError:
    """The error without remedies, whose computation takes searches on more devices."""
    return InfeasibleError("no offer fits")


def _once(found: Callable[..., Any], known: dict[Hashable, Any], name: str) -> Callable[..., Any]:
    def once(request: Request, *others: Any) -> Any:
        key = (name, *_step_key(request), *others)
        if key not in known:
            # Keeping the request keeps the identity of its graph.
            known[key] = request, found(request, *others)
        return known[key][1]

    return once


def _searches(known: dict[Hashable, Any]) -> Callable[..., PipelineSearch]:
    """Searches of pipelines that share the prices of stages."""

    def search(request: Request, *others: Any) -> PipelineSearch:
        key = ("pipelines", *_step_key(request), *map(_hashable, others))
        if key not in known:
            known[key] = PipelineSearch(request, *others)
            prices = ("profile", *_step_key(request), *map(_hashable, others[:3]))
            first = known.setdefault(prices, known[key])
            if first is not known[key]:
                vars(known[key])["profile"] = first.profile
        found: PipelineSearch = known[key]
        return found

    return search


def _hashable(argument: Any) -> Hashable:
    return tuple(argument) if isinstance(argument, list) else argument


def _step_key(request: Request) -> tuple[Hashable, ...]:
    return id(request.graph), request.space, request.microbatches, request.devices
