"""``build_execution_graph``: from a plan to the executor that runs it."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NoReturn

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.execution.world.world import World
from tensoropt.frontend.job.dry_run import PlanReached
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.job.plan_executor import (
    early_values,
    plan_executor,
    ranks_of,
    replicated_executor,
)
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.frontend.planning.option_checks import check_engine
from tensoropt.frontend.planning.plan_compatibility import check_plan, plan_lines
from tensoropt.graph.operator import Graph
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.plan.executed_steps import executed_steps
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.request import Request

__all__ = ["build_execution_graph"]

_SAME_PLAN = "Use the plan that find_strategy returned, or load one file on every rank."


def build_execution_graph(
    engine: str = "tensorflow", plan: Plan | ParallelismProfile | None = None, **unknown: NoReturn
) -> None:
    """Emit what each rank runs of a plan's training step: its operators and its collectives.

    Runs that fetch other operators than the step's, or feed other shapes, emit theirs when they
    are first made. Variables start from their initializers; those that a run before the first plan
    has assigned keep their values. An error leaves the job without a plan. Where a plan needs
    fewer devices than there are ranks (``mini_parallelism``, ``mini_cost``), the other ranks end
    here, with status 0.

    Where the step of a plan that `find_strategy` has just returned cannot be emitted, and the
    script did not demand its kind, another one is emitted in its place: the fastest without stages
    whose dry run succeeds, data parallelism, or every operator whole. The first rank says so, and
    later starts use the plan that was emitted; `tensoropt.summary` has the plan in force.

    Args:
        engine: "tensorflow".
        plan: from `find_strategy`, or `Plan.load`.

    Raises:
        OptionError: an argument of another name, unknown engine, or no plan (a profile is none).
        PlanError: the plan is for another graph or another number of devices.
        RankMismatchError: the ranks have different plans.
        GraphError: the step cannot be emitted.
    """
    OptionError.refuse(unknown, build_execution_graph)
    check_engine(engine)
    if not isinstance(plan, Plan):
        raise OptionError(
            f"an execution graph is built for a plan. Got {type(plan).__name__}; pass what "
            "find_strategy(option='mini_time') returned."
        )
    job = current()
    script = tf.compat.v1.get_default_graph()
    graph = check_plan(job, script, plan)
    if job.dry_run is not None:
        raise PlanReached(plan)
    job.agreement.check("build_execution_graph(...)", plan_lines(plan), _SAME_PLAN)
    searched, job.searched = job.searched, None
    values = early_values(job, script)
    world, group, agreement = ranks_of(job, plan)
    if world is None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        raise SystemExit(0)
    if group is not job.group:
        job.group, job.devices, job.agreement = group, plan.devices, agreement
    _stop(job)
    try:
        try:
            _start(job, script, plan, world, values, graph)
        except Exception as error:
            if searched is None or searched[0] != plan:
                raise
            # Not imported above: it loads the search, which a start with a kept plan does without.
            from tensoropt.planner.plans.fallbacks import is_demanded

            if is_demanded(searched[1]):
                raise
            job.agreement.failed(error)  # raises where not all ranks fail alike
            _start_simpler(job, script, plan, values, searched[1], error)
    except Exception:
        _stop(job)
        if values:
            job.executor = replicated_executor(job, script)
            job.executor.assign(values)
        raise


def _stop(job: Job) -> None:
    """Let the job be without a plan, and free what ran it."""
    if job.executor is not None:
        job.executor.close()
    job.executor, job.plan, job.steps = None, None, None


def _start(
    job: Job,
    script: tf.Graph,
    plan: Plan,
    world: World,
    values: dict[str, Any],
    graph: Graph | None = None,
) -> None:
    """Let a plan be in force, with the program of its step emitted.

    Args:
        job: changed.
        script: the script's graph.
        plan: for that graph.
        world: of the plan's devices.
        values: of the variables that runs before the plan have assigned.
        graph: the graph of the plan's step, if it has been imported.
    """
    job.plan, job.steps = plan, executed_steps(plan)
    job.executor = plan_executor(job, script, plan, world, job.agreement, job.trace, graph)
    job.executor.assign(values)
    job.executor.program((), plan.roots, plan.shapes)


def _start_simpler(
    job: Job,
    script: tf.Graph,
    plan: Plan,
    values: dict[str, Any],
    request: Request,
    error: Exception,
) -> None:
    """Let the first plan be in force that can be emitted in place of one that cannot.

    Raises:
        Exception: the error, where none can; the first rank says why.
    """
    from tensoropt.planner.plans.fallbacks import left_out
    from tensoropt.planner.plans_instead import plans_instead

    def simpler() -> dict[str, Any]:
        found: dict[str, Any] = {"plans": [], "failures": []}
        try:
            for each in plans_instead(request, plan, first_line(error)):
                found["plans"].append(each.to_json())
        except Exception as another:
            found["failures"].append(f"no further plan in its place: {first_line(another)}")
        return found

    found = on_first_rank(job.group, simpler)
    failures = list(found["failures"])
    for each in map(Plan.from_json, found["plans"]):
        _stop(job)
        world, _, _ = ranks_of(job, each)
        assert world is not None, "as many devices as the job has now"
        try:
            _start(job, script, each, world, values)
        except Exception as another:
            job.agreement.failed(another)
            failures.append(f"a plan in its place fails, too: {first_line(another)}")
            continue
        if job.group.rank == 0:
            sys.stderr.write(f"tensoropt: {left_out(first_line(error))}\ntensoropt: {each}\n")
            if request.saves_dry_runs:  # else the plan that failed is none that was kept
                KeptPlan.of(request, plan.option, job.transport).write(each)
        return
    if job.group.rank == 0:
        sys.stderr.writelines(f"tensoropt: {each}\n" for each in failures)
    raise error
