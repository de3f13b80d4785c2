"""Candidates for measuring: what an option chooses from, fastest first, and data parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tensoropt.plan.plan import Plan
from tensoropt.planner.automatic_pipeline import choose_automatically, ordered_candidates
from tensoropt.planner.choose import choose
from tensoropt.planner.optional_space import looked_at
from tensoropt.planner.pipeline_choice import choose_pipeline, pipeline_candidates
from tensoropt.planner.pipeline_peak import Candidate
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.frontier_search import problem_of
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.solvers import solver

__all__ = ["Candidates", "candidates_of"]


class Candidates(Protocol):
    """What an option of ``find_strategy`` chooses from, in the order of its choice."""

    def __len__(self) -> int:
        """How many fit the memory limit."""

    def __getitem__(self, number: int) -> Plan:
        """The predicted fastest after ``number`` others, of those that fit the limit."""

    def data_parallel(self) -> Plan:
        """Data parallelism on the same devices, whether or not it fits the memory limit."""


def candidates_of(request: Request, option: str, asked: int) -> Candidates:
    """What to measure.

    Args:
        request: what a strategy is looked for.
        option: "mini_time", or "mini_parallelism", whose candidates all use the fewest devices.
        asked: how many.

    Raises:
        InfeasibleError: no strategy fits the memory limit.
        GraphError: a pipeline is asked for, and the step cannot be cut.
    """
    if request.pipeline is None:
        return _Points(request, option)
    return _Pipelines(request, option, asked)


class _Points:
    """The points of a frontier. Along it memory ascends as time descends, so each takes less memory
    than the one before."""

    def __init__(self, request: Request, option: str) -> None:
        self._choice = choose(request, option)
        self._peaks = self._choice.frontier_peaks()
        self._notes: list[str] = []
        self._fewer = fewer_devices(self._choice.request, self._choice.problem, self._notes)

    def __len__(self) -> int:
        return self._choice.point + 1

    def __getitem__(self, number: int) -> Plan:
        if not 0 <= number < len(self):
            raise IndexError(number)
        choice = self._choice
        point = choice.frontier[choice.point - number]
        peak = None if number or choice.preferred else choice.peak
        return plan_for(
            choice.request,
            choice.problem,
            choice.frontier,
            point,
            choice.option,
            peak,
            self._notes,
            self._peaks,
            self._fewer,
        )

    def data_parallel(self) -> Plan:
        choice = self._choice
        return _data_parallel(choice.request, choice.problem, choice.option)


class _Pipelines:
    """The fastest pipelines, and what else their frontier has, whose peaks are predicted to fit."""

    _SPARE = 2
    """More than asked for, as some may take more memory when measured."""

    def __init__(self, request: Request, option: str, asked: int) -> None:
        assert request.pipeline is not None, "asked for"
        is_automatic = request.pipeline.stages is None
        chosen = (choose_automatically if is_automatic else choose_pipeline)(request, option)
        self._request, self._option = replace(request, devices=chosen.devices), option
        found = ordered_candidates if is_automatic else pipeline_candidates
        failures: list[str] = []
        others = self._others(chosen, found(self._request, option), asked, failures)
        notes = (*chosen.notes, *dict.fromkeys(failures))
        self._plans = [replace(chosen, notes=notes), *others]

    def __len__(self) -> int:
        return len(self._plans)

    def __getitem__(self, number: int) -> Plan:
        return self._plans[number]

    def data_parallel(self) -> Plan:
        request = replace(self._request, pipeline=None)
        return _data_parallel(request, problem_of(request, request.devices), self._option)

    def _others(
        self, chosen: Plan, every: Sequence[Candidate], asked: int, failures: list[str]
    ) -> list[Plan]:
        limit = self._request.limit_bytes(chosen.devices)
        found: list[Plan] = []
        for each in every:
            if len(found) + 1 >= asked + self._SPARE:
                break
            plan = looked_at("another plan to measure", each.make, None, failures)
            if plan is None:
                continue
            known = [chosen, *found]
            if (plan.peak_bytes or 0) <= limit and not any(plan.runs_as(other) for other in known):
                found.append(plan)
        return found


def _data_parallel(request: Request, problem: GraphProblem, option: str) -> Plan:
    own = replace(request, algorithm="data_parallel")
    frontier = solver(own.algorithm)(problem).found
    return plan_for(own, problem, frontier, frontier[0], option)
