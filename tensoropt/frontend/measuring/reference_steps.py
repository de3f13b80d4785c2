"""Training steps of a script under a few strategies, for its profile.

They show how much longer operators and collectives take in steps than alone
(`tensoropt.cost.slowdown_in_steps`). Strategies differ in their operators and collectives, but
not in what slows these down in one model on one machine, so a few strategies stand for all. One in
several microbatches shows what it takes to read weights again for each part of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
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
from tensoropt.execution.world.world import MPIWorld
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
from tensoropt.planner.prices.step_time import StepTime, step_time
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
"""Of random choices, in the strategies run beside data parallelism: from near the frontier to
anywhere, along which collectives and their sizes differ most. With five strategies in all,
predictions were as good as with more; with one or two, some were off by a quarter."""
_LEAST_STEPS, _MOST_STEPS = 5, 20
_SECONDS = 3.0
"""Least and most steps per strategy; after the least, timing stops at so many seconds."""
_MICROBATCHES = 4
"""Of the step that shows what weights take that are read again, where so many parts of a rank's
examples are as many examples; else half as many."""


@dataclass(frozen=True, slots=True, eq=False)
class StepsRequest:
    """What to run.

    Attributes:
        group: all ranks.
        hardware: the machines they run on.
        script: the script's graph.
        request: its training step.
        cluster: the machines as a cluster, before anything was measured.
        profile: what was measured of collectives and operators.
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
    request: StepsRequest, progress: Progress
) -> tuple[tuple[MeasuredStep, ...], str]:
    """Run the reference strategies that fit the memory. Collective: every rank calls it.

    Returns:
        The measured steps, the same on every rank, and why a step cannot be run; one is empty.
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
    found: list[MeasuredStep] = []
    several = 2 + len(_SHARES)
    for number in range(several):
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
            reread = _alone(priced, plan, _rereading(priced, size)).total - alone.total
            found.append(median_step(steps, digest, alone, cost, plan.microbatches, reread))
    if not found:
        return (), (
            "one at least of the strategies under which they would run fits a rank's share of the "
            f"memory. Got none for {priced.usable_bytes(size):,} bytes; profile with a smaller "
            "--batch-size"
        )
    return tuple(found), ""


def _priced(request: StepsRequest) -> Request:
    """The step, priced with what the profile has measured outside of steps.

    It may take a rank's share of the machine: a script's own limit is for what it plans, and under
    one that only stages or microbatches fit nothing would be left to measure.
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
    """The reference strategies that fit the memory, as plans; last data parallelism in parts of
    the batch, where it can be computed so."""
    cost = request.cost_model(devices)
    problem = graph_problem(
        AnnotatedGraph.of(request.graph, cost.mesh, cost, request.batch_placeholders)
    )
    strategies = np.array(references(problem), np.int32)
    memory, time = problem.problem.costs(strategies)
    for number in np.flatnonzero(memory <= request.usable_bytes(devices)):
        only = slice(number, number + 1)
        point = Frontier(memory[only], time[only], strategies[only], exact=False)
        yield plan_for(request, problem, point, point[0], "mini_time")
    in_parts = _in_parts(request, devices)
    if in_parts is not None:
        own = problem_of(in_parts, devices)
        point = solver("data_parallel")(own).found
        if point[0].memory <= request.usable_bytes(devices):
            yield plan_for(in_parts, own, point, point[0], "mini_time")


def _in_parts(request: Request, devices: int) -> Request | None:
    """The step in several microbatches that devices divide; None where there is none."""
    examples = {request.shapes[name][0] for name in request.batch_placeholders}
    for count in (_MICROBATCHES, _MICROBATCHES // 2):
        if examples and all(each % (count * devices) == 0 for each in examples):
            with suppress(GraphError):
                return request.in_microbatches(count)
    return None


def _alone(request: Request, plan: Plan, cost: ClusterCostModel) -> StepTime:
    """The predicted time of a plan's step."""
    own = request if plan.microbatches == 1 else request.in_microbatches(plan.microbatches)
    graph = own.graph if own.cut is None else graph_of_one(own.cut)
    strategy = Strategy(graph, plan.mesh, plan.configurations, own.batch_placeholders)
    return step_time(strategy, cost, step_planner(plan), own.reads, own.repeats)


def _rereading(request: Request, devices: int) -> MeasuredCostModel:
    """Prices in which each reread byte takes a nanosecond more."""
    cost, profile = request.cost_model(devices), request.profile_at(devices)
    assert profile is not None
    times = OperatorTimes(profile.operators, cost.cluster.device, rereading=1.0)
    return MeasuredCostModel(cost.cluster, cost.mesh, times, request.memory_model)


def _timed(trial: TrialRun, group: Group) -> list[TimedStep]:
    """Steps of one strategy; none where memory runs out."""
    steps: list[TimedStep] = []
    try:
        if not trial.start():
            if trial.failure:
                raise OptionError(trial.failure)
            return []
        started = perf_counter()
        for done in range(_MOST_STEPS):
            slowest = max(group.allgather_object(perf_counter() - started))
            if done >= _LEAST_STEPS and slowest > _SECONDS:
                break
            steps.append(trial.timed())
    finally:
        trial.close()
    return steps
