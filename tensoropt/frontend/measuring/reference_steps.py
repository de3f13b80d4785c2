"""Training steps of a script under a few strategies, for its profile.

The steps show how much longer operators and collectives take in steps than alone
(`tensoropt.cost.slowdown_in_steps`). Strategies differ in their operators and collectives. The
causes of the slowdown are the same for one model on one machine, so a few strategies represent all.
A step in microbatches shows the time to read weights again for each part of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import tensorflow as tf

from collectives import Group
from tensoropt.cost.cluster import Cluster
from tensoropt.cost.machine_profile import Profile, measured_cluster
from tensoropt.cost.measured_operator_times import OperatorTimes
from tensoropt.cost.measuring.measure import Progress
from tensoropt.cost.model import ClusterCostModel, MeasuredCostModel
from tensoropt.cost.slowdown_in_steps import MeasuredStep
from tensoropt.errors import GraphError, OptionError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.inputs.sample_batch import fed_batch
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.hardware import Hardware
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.measuring.step_timing import TimedStep, median_step
from tensoropt.frontend.measuring.trial_run import TrialRun, TrialSetting
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan import Plan
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.prices.reshard_steps import step_planner
from tensoropt.planner.prices.step_parts import StepTime
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.random_strategies import random_strategies
from tensoropt.search.solvers import solver
from tensoropt.transformations.microbatches.parts import graph_of_one

__all__ = ["StepsRequest", "measured_steps", "references"]

_SHARES, _SEED = (0.2, 0.4, 0.6, 0.8, 1.0), 11
"""Shares of random choices in the strategies that run beside data parallelism. Strategies from near
the frontier to random ones differ most in their collectives and sizes. With five strategies,
predictions were as good as with more; with one or two, some were off by a quarter."""
_LEAST_STEPS, _MOST_STEPS = 5, 20  # per strategy
_SECONDS = 3.0
"""After the least steps of a strategy, its timing stops at this time."""
_LONG_SECONDS = 2.0
"""Steps that take longer are timed once or twice: beside the network, disturbances are short."""
_MICROBATCHES = 4
"""Number of microbatches of the step that shows the cost of weights that are read again; half this
number if the examples of a rank cannot be divided by it."""


@dataclass(frozen=True, slots=True, eq=False)
class StepsRequest:
    """The settings of the reference steps.

    Attributes:
        group: all ranks.
        hardware: the machines they run on.
        script: the script's graph.
        request: its training step.
        cluster: the machines as a cluster, before any measurement.
        profile: measurements of collectives and operators.
    """

    group: Group
    hardware: Hardware
    script: tf.Graph
    request: Request
    cluster: Cluster
    profile: Profile


def references(problem: GraphProblem) -> list[list[int]]:
    """The reference strategies: data parallelism, and random ones."""
    (data_parallel,) = solver("data_parallel")(problem).found.strategies.tolist()
    return [data_parallel, *random_strategies(problem, len(_SHARES), _SEED, _SHARES)]


def measured_steps(
    request: StepsRequest, progress: Progress, until: float = inf
) -> tuple[tuple[MeasuredStep, ...], str]:
    """Run the reference strategies that fit the memory. Collective: every rank calls it.

    Args:
        request: the step.
        progress: called before every strategy.
        until: the time, by `time.monotonic`, after which no strategy but the first starts.

    Returns:
        The measured steps, the same on every rank, and the reason why a step cannot be run; one of
        the two is empty.
    """
    group, size = request.group, request.group.size
    priced = _priced(request)
    cost = priced.cost_model(size)
    plans: list[Plan] = []

    def planned(number: int) -> dict[str, Any]:
        if not plans:
            plans.extend(_plans(priced, size))
        return plans[number].to_json() if number < len(plans) else {}

    agreement = Agreement(group)
    job = Job(group, True, size, request.hardware, None, 0, agreement)
    feeds = fed_batch(request.script, {}, priced.shapes)
    world = MPIWorld(cost.mesh, group)
    limit = priced.limit_bytes(size)
    setting = TrialSetting(job, request.script, world, group, agreement, {}, feeds, limit)
    measured: list[MeasuredStep] = []
    several = 2 + len(_SHARES)
    for number in range(several):
        if number and group.broadcast(np.array([monotonic() > until]))[0]:
            break
        progress("steps", number, several)
        values = on_first_rank(group, partial(planned, number))
        if not values:
            break
        plan = Plan.from_json(values)
        try:
            steps = _timed(TrialRun(setting, plan), group)
        except OptionError as error:
            return (), str(error)
        if steps:
            alone, digest = _alone(priced, plan, cost), priced.graph.digest()
            rereading = _alone(priced, plan, _rereading(priced, size)).total
            reread = max(0, rereading - alone.total)  # both are rounded
            measured.append(median_step(steps, digest, alone, cost, plan.microbatches, reread))
    if not measured:
        return (), (
            "at least one of the strategies under which they would run fits a rank's share of the "
            f"memory. Got none for {priced.usable_bytes(size):,} bytes; profile with a smaller "
            "--batch-size"
        )
    return tuple(measured), ""


def _priced(request: StepsRequest) -> Request:
    """The step, priced with the profile's measurements outside of steps.

    The memory limit is a rank's share of the machine. The script's own limit only applies to its
    plans; if only stages or microbatches fit it, nothing would be left to measure.
    """
    profile = replace(request.profile, steps=())
    measured = measured_cluster(request.cluster, profile)
    return replace(
        request.request,
        cluster_at=lambda _: measured,
        profile_at=lambda _: profile,
        memory_limit_bytes=None,
        dry_run_peak=None,
    )


def _plans(request: Request, devices: int) -> Iterator[Plan]:
    """The reference strategies that fit the memory, as plans.

    The last one is data parallelism with microbatches, if the step can be computed so.
    """
    cost = request.cost_model(devices)
    problem = graph_problem(
        AnnotatedGraph.of(request.graph, cost.mesh, cost, request.batch_placeholders)
    )
    strategies = np.array(references(problem), np.int32)
    memory, time = problem.problem.costs(strategies)
    for number in np.flatnonzero(memory <= request.usable_bytes(devices)):
        only = slice(number, number + 1)
        point = Frontier(memory[only], time[only], strategies[only], exact=False)
        yield plan_for(request, problem, point, point.strategies[0], "mini_time")
    in_parts = _in_parts(request, devices)
    if in_parts is not None:
        parts_problem = problem_of(in_parts, devices)
        point = solver("data_parallel")(parts_problem).found
        if point[0].memory <= request.usable_bytes(devices):
            yield plan_for(in_parts, parts_problem, point, point.strategies[0], "mini_time")


def _in_parts(request: Request, devices: int) -> Request | None:
    """The step in microbatches of which every device gets examples; None if that is impossible."""
    examples = {request.shapes[name][0] for name in request.batch_placeholders}
    for count in (_MICROBATCHES, _MICROBATCHES // 2):
        if examples and all(number % (count * devices) == 0 for number in examples):
            with suppress(GraphError):
                return request.in_microbatches(count)
    return None


def _alone(request: Request, plan: Plan, cost: ClusterCostModel) -> StepTime:
    """The predicted time of a plan's step."""
    planned = request if plan.microbatches == 1 else request.in_microbatches(plan.microbatches)
    graph = planned.graph if planned.cut is None else graph_of_one(planned.cut)
    strategy = Strategy(graph, plan.mesh, plan.configurations, planned.batch_placeholders)
    return step_time(strategy, cost, step_planner(plan), planned.reads, planned.repeats)


def _rereading(request: Request, devices: int) -> MeasuredCostModel:
    """Costs in which each byte that is read again takes a nanosecond more."""
    cost, profile = request.cost_model(devices), request.profile_at(devices)
    assert profile is not None
    times = OperatorTimes(profile.operators, cost.cluster.device, rereading=1.0)
    return MeasuredCostModel(cost.cluster, cost.mesh, times, "execution")


def _timed(trial: TrialRun, group: Group) -> list[TimedStep]:
    """Timed steps of one strategy; none if memory runs out."""
    steps: list[TimedStep] = []
    try:
        if not trial.start():
            if trial.failure:
                raise OptionError(trial.failure)
            return []
        started = perf_counter()
        for done in range(_MOST_STEPS):
            slowest = max(group.allgather_object(perf_counter() - started))
            if slowest > _SECONDS and (done >= _LEAST_STEPS or slowest > done * _LONG_SECONDS > 0):
                break
            steps.append(trial.timed())
    finally:
        trial.close()
    return steps
