"""The facts of a plan for people: see `tensoropt.plan.details`."""

from __future__ import annotations

from tensoropt.cost.peak.estimated_peak import followed_step
from tensoropt.cost.peak.held_memory import HeldMemory, Holder, held_memory
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.details import Details, OtherStrategy, TimePart
from tensoropt.planner.names.named_operators import uses_of_variables
from tensoropt.planner.prices.estimates import added_by_microbatches, can_be_estimated
from tensoropt.planner.prices.frontier_peaks import FrontierPeaks
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.prices.step_parts import StepTime
from tensoropt.planner.prices.step_time import executed_step
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel, whole

__all__ = ["details_of", "other_strategies"]


def details_of(
    request: Request, strategy: Strategy, steps: ReshardSteps, executed: StepTime
) -> Details:
    """Return the details of a strategy."""
    memory = _memory(request, strategy, steps) if can_be_estimated(request) else None
    parts = (
        ("operators", executed.operators),
        ("sums of gradients of shared tensors", executed.sums),
        ("local copies", executed.copies),
        ("collectives", executed.network),
        ("collectives hidden behind computation", -executed.hidden),
        ("calls of collectives", executed.coordination),
        ("start of the step", executed.start),
    )
    return Details(executed.moves, memory, tuple(TimePart(*part) for part in parts if part[1]))


def _memory(request: Request, strategy: Strategy, steps: ReshardSteps) -> HeldMemory:
    uses: dict[str, Holder] = {}
    for name, use in uses_of_variables(strategy.graph).items():
        uses[name] = use or "input"
    step = followed_step(strategy, request.reads, steps)
    return held_memory(step, uses, added_by_microbatches(request, strategy))


def other_strategies(request: Request, problem: GraphProblem) -> tuple[OtherStrategy, ...]:
    """Return the simple strategies to compare a plan with, whether or not they fit the memory."""
    others = []
    for name, frontier in (
        ("data parallelism", data_parallel.solve(problem)),
        ("every device computes all", whole.solve(problem)),
    ):
        peaks = FrontierPeaks(request, problem, frontier)
        peaks.estimate(0)
        peak = peaks.estimates.get(0)
        step = executed_step(request, problem, frontier.strategies[0].tolist())
        others.append(OtherStrategy(name, int(frontier.memory[0]), step, peak))
    return tuple(others)
