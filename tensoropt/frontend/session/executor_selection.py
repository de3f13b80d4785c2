"""The choice of the executor of a run: the plan's, or a replicated one before there is a plan.

If a script does not find a strategy itself, its first run that needs a gradient finds one
(``mini_time``, at the shapes fed). Earlier runs are replicated. Variables keep their values when
the plan arrives.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.errors import PlanError
from tensoropt.frontend.inputs.shapes import unfed
from tensoropt.frontend.job import copies
from tensoropt.frontend.job.job import Job, Running, current
from tensoropt.frontend.job.plan_executor import replicated_executor
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.frontend.planning.forward_plans import plan_forward
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE, import_graph, needed_operations
from tensoropt.plan import Plan
from tensoropt.quiet.standard_error import write_plan

__all__ = ["is_step", "needs_gradient", "running_for", "say", "switch_to"]

Shapes = Mapping[str, tuple[int, ...]]

_is_step: weakref.WeakKeyDictionary[tf.Graph, dict[tuple[tuple[str, ...], ...], bool]]
_is_step = weakref.WeakKeyDictionary()
"""For each graph, whether some fetched operators, with a plan's roots, are a step: a cache."""
_trains: weakref.WeakKeyDictionary[tf.Graph, dict[tuple[str, ...], bool]]
_trains = weakref.WeakKeyDictionary()
"""For each graph, whether some operators need a gradient: a cache."""


def running_for(
    script: tf.Graph, roots: Sequence[str], shapes: Shapes, limit_bytes: int | None = None
) -> Running:
    """The executor that runs some operators of a graph, and its plan.

    The first run of these operators that is fed and needs no gradient is planned, see
    `plan_forward`.

    Args:
        script: the graph.
        roots: names of the operators.
        shapes: shapes of the fed values, by `fed_operator`.
        limit_bytes: the memory limit of a device for a run before there is a training plan.

    Raises:
        StateError: before `init`; if several ranks would train without a plan.
        InfeasibleError: if a plan is needed and none fits the memory limit.
        PlanError: if a run needs gradients and the plan has none.
    """
    job = current()
    switch_to(job, script)
    if job.plan is None and needs_gradient(script, roots):
        _plan(job, script, roots, shapes)
    if job.plan is None:
        copies.check_replicated_run(script, roots)
    elif _is_unplanned_training(script, roots, job.plan):
        raise PlanError(
            "a training step runs under a plan that was found for it. Got a run of "
            f"{', '.join(map(repr, roots))} with gradients, under a plan of a graph without "
            "gradients; call find_strategy and build_execution_graph after minimize."
        )
    if script not in job.graphs:
        job.graphs[script] = Running(replicated_executor(job, script))
    running = job.graphs[script]
    if shapes and tuple(roots) not in running.forward_searched:
        running.forward_searched.add(tuple(roots))
        if not needs_gradient(script, roots):
            plan_forward(job, script, running, roots, shapes, limit_bytes)
    return running


def needs_gradient(script: tf.Graph, roots: Sequence[str]) -> bool:
    """Whether some operators depend on a gradient that the script computes."""
    cached, key = _trains.setdefault(script, {}), tuple(roots)
    if key not in cached:
        cached[key] = any(
            operation.type == "Identity" and GRADIENT_ATTRIBUTE in operation.node_def.attr
            for operation in needed_operations(script, roots)
        )
    return cached[key]


def is_step(script: tf.Graph, roots: Sequence[str], plan: Plan) -> bool:
    """Whether a run is a whole step of a plan: it runs everything that the plan trains.

    The plan trains the optimizers' operators among its roots; without optimizers, the roots that
    need a gradient; without gradients, all roots. Further fetches make no difference.
    """
    cached = _is_step.setdefault(script, {})
    key = (tuple(roots), plan.roots)
    if key not in cached:
        trained = script.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP)
        names = {getattr(fetch, "op", fetch).name for fetch in trained}
        wanted = [root for root in plan.roots if root in names]
        wanted = wanted or [root for root in plan.roots if needs_gradient(script, [root])]
        run = {operation.name for operation in needed_operations(script, roots)}
        cached[key] = run.issuperset(wanted or plan.roots)
    return cached[key]


def _is_unplanned_training(script: tf.Graph, roots: Sequence[str], plan: Plan) -> bool:
    """Whether a run needs gradients, and no root of the plan does."""
    return needs_gradient(script, roots) and not needs_gradient(script, plan.roots)


def switch_to(job: Job, script: tf.Graph) -> None:
    """Make a graph the job's current one. Each graph has an executor and a plan of its own."""
    job.script = script


def say(job: Job, plan: Plan) -> None:
    """Write the line of a plan that a run has asked for; in a dry run the command writes it."""
    if job.group.rank == 0 and job.dry_run is None:
        write_plan(str(plan), len(plan.notes))


def _plan(job: Job, script: tf.Graph, roots: Sequence[str], shapes: Shapes) -> None:
    with script.as_default():
        steps = _steps(script, roots, shapes)
        plan = find_strategy("mini_time", shapes=shapes, fetches=steps)
        assert isinstance(plan, Plan)
        say(job, plan)
        build_execution_graph(plan=plan)


def _steps(script: tf.Graph, roots: Sequence[str], shapes: Shapes) -> list[str]:
    """The fetched operators, and the script's other training operators that this feed can run."""
    steps = list(roots)
    for trained in script.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP):
        operation = getattr(trained, "op", trained)
        if operation.name in steps:
            continue
        graph = import_graph(script, [operation.name], shapes)
        if all(op.name in shapes for op in graph if op.is_placeholder) and not unfed(graph):
            steps.append(operation.name)
    return steps
