"""``build_execution_graph``: build the executor that runs a plan."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NoReturn

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.execution.agreement.name_counters import equalise_name_counters
from tensoropt.execution.world.world import World
from tensoropt.frontend.job.dry_run import PlanReached
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job, Running, current
from tensoropt.frontend.job.plan_executor import (
    close,
    early_values,
    plan_executor,
    ranks_of,
    replicated_executor,
)
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.frontend.planning.plan_compatibility import check_plan, plan_lines
from tensoropt.graph.operator import Graph
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.plan.comparison import ExecutedSteps
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.request import Request
from tensoropt.tensorflow_private import ops

__all__ = ["build_execution_graph"]

_ENGINES = ("tensorflow",)
_SAME_PLAN = "Use the plan that find_strategy returned, or load one file on every rank."


def build_execution_graph(
    engine: str = "tensorflow", plan: Plan | ParallelismProfile | None = None, **unknown: NoReturn
) -> None:
    """Emit the program of a plan's training step for each rank: its operators and collectives.

    A run that fetches other operators, or feeds other shapes, is emitted when it is first made.
    Variables start from their initializers; a variable that an earlier run assigned keeps its
    value. After an error the job has no plan. If a plan needs fewer devices than there are ranks
    (``mini_parallelism``, ``mini_cost``), the other ranks end here, with status 0.

    If the step of a plan that `find_strategy` has just returned cannot be emitted, another plan
    takes its place, unless the script demanded this kind of plan. The alternatives, in order: the
    fastest plan without stages whose dry run succeeds, data parallelism, and no operator
    split. The first rank reports the change, and later starts use the plan that was emitted;
    `tensoropt.summary` shows the current plan.

    Args:
        engine: "tensorflow".
        plan: a plan from `find_strategy`, or `Plan.load`.

    Raises:
        OptionError: an unknown argument or engine, or no plan (a profile is not a plan).
        PlanError: the plan is for another graph or another number of devices.
        RankMismatchError: the ranks have different plans.
        GraphError: the step cannot be emitted.
    """
    OptionError.refuse(unknown, build_execution_graph)
    if engine not in _ENGINES:
        raise OptionError.one_of("an engine", engine, _ENGINES)
    if not isinstance(plan, Plan):
        raise OptionError(
            f"an execution graph is built for a plan. Got {type(plan).__name__}; pass what "
            "find_strategy(option='mini_time') returned."
        )
    job = current()
    script = tf.compat.v1.get_default_graph()
    graph = check_plan(job, script, plan)
    if job.dry_run is not None:
        # Imported here because only a dry run for a page needs it.
        from tensoropt.frontend.planning.points_of_frontier import plans_of_points

        layer = job.dry_run.explain
        explanation = plan.explain(layer) if layer else None
        raise PlanReached(plan, plans_of_points(job, plan, job.dry_run.points), explanation)
    job.agreement.check("build_execution_graph(...)", plan_lines(plan), _SAME_PLAN)
    job.beside.wait()  # The plan may end ranks of the job.
    job.script = script
    searched, job.searched = job.searched, None
    values = early_values(job, script)
    world, group, agreement = ranks_of(job, plan)
    if world is None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        raise SystemExit(0)
    if group is not job.group:
        if group.size < job.group.size:
            close(job, *job.graphs)  # Ranks of their plans end.
        job.group, job.devices, job.agreement = group, plan.devices, agreement
    close(job, script, *_reset_graphs(job, script))
    try:
        try:
            _start(job, script, plan, world, values, graph)
        except Exception as error:
            if searched is None or searched[0] != plan:
                raise
            # Imported here because it loads the search, which a start with a kept plan avoids.
            from tensoropt.planner.plans.fallbacks import is_demanded

            if is_demanded(searched[1]):
                raise
            job.agreement.failed(error)  # raises unless all ranks fail alike
            _start_simpler(job, script, plan, values, searched[1], error)
    except Exception:
        close(job, script)
        if values:
            executor = replicated_executor(job, script)
            job.graphs[script] = Running(executor)
            executor.variables.assign(values)
        raise
    # Ranks have emitted different operations; names that the script adds now must be equal.
    equalise_name_counters(job.agreement, "the names after build_execution_graph(...)")


def _reset_graphs(job: Job, script: tf.Graph) -> list[tf.Graph]:
    """The graphs that were TensorFlow's default graph before ``reset_default_graph``."""
    if not _is_default(script):
        return []
    return [graph for graph, running in job.graphs.items() if running.is_default]


def _is_default(script: tf.Graph) -> bool:
    return script is ops._default_graph_stack._global_default_graph


def _start(
    job: Job,
    script: tf.Graph,
    plan: Plan,
    world: World,
    values: dict[str, Any],
    graph: Graph | None = None,
) -> None:
    """Make a plan the plan of the job's current graph, and emit the program of its step."""
    executor = plan_executor(job, script, plan, world, job.agreement, job.trace, graph)
    steps = ExecutedSteps(stage=executor.stage)
    job.graphs[script] = Running(executor, plan, steps, is_default=_is_default(script))
    executor.variables.assign(values)
    executor.program((), plan.roots, plan.shapes)


def _start_simpler(
    job: Job,
    script: tf.Graph,
    plan: Plan,
    values: dict[str, Any],
    request: Request,
    error: Exception,
) -> None:
    """Replace a plan that cannot be emitted by the first alternative that can.

    The first rank prints the error before it tries alternatives, and the reasons why they fail.

    Raises:
        Exception: ``error``, if no alternative can be emitted.
    """
    from tensoropt.planner.plans.fallbacks import left_out
    from tensoropt.planner.plans_instead import plans_instead

    if job.group.rank == 0:
        sys.stderr.write(f"tensoropt: {left_out(first_line(error))}\n")

    def simpler() -> dict[str, Any]:
        alternatives: dict[str, Any] = {"plans": [], "failures": []}
        try:
            for alternative in plans_instead(request, plan, first_line(error)):
                alternatives["plans"].append(alternative.to_json())
        except Exception as another:
            alternatives["failures"].append(f"no further plan in its place: {first_line(another)}")
        return alternatives

    alternatives = on_first_rank(job.group, simpler)
    failures = list(alternatives["failures"])
    for alternative in map(Plan.from_json, alternatives["plans"]):
        close(job, script)
        world, job.group, job.agreement = ranks_of(job, alternative)
        assert world is not None, "alternatives use as many devices as the job has now"
        try:
            _start(job, script, alternative, world, values)
        except Exception as another:
            job.agreement.failed(another)
            failures.append(f"a plan in its place fails, too: {first_line(another)}")
            continue
        if job.group.rank == 0:
            sys.stderr.write(f"tensoropt: {alternative}\n")
            if request.saves_dry_runs:  # else the plan that failed was not kept either
                KeptPlan.of(request, plan.option, job.transport).write(alternative)
        return
    if job.group.rank == 0:
        sys.stderr.writelines(f"tensoropt: {failure}\n" for failure in failures)
    raise error
