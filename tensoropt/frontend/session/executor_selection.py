"""Which executor runs a fetch: the plan's, or, before there is one, a replicated one.

Where a script finds no strategy itself, its first run that needs a gradient does (``mini_time``, at
the shapes fed). Runs before that are replicated. Variables keep their values when the plan arrives.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.errors import PlanError
from tensoropt.execution.runtime.executor import Executor
from tensoropt.frontend.inputs.shapes import unfed
from tensoropt.frontend.job import copies
from tensoropt.frontend.job.job import Job, Running, current
from tensoropt.frontend.job.plan_executor import replicated_executor
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE, import_graph, needed_operations
from tensoropt.plan import Plan

__all__ = ["close", "executor_for", "is_step", "needs_gradient", "switch_to"]

Shapes = Mapping[str, tuple[int, ...]]

_steps_of: weakref.WeakKeyDictionary[tf.Graph, dict[tuple[tuple[str, ...], ...], bool]]
_steps_of = weakref.WeakKeyDictionary()
_trained_by: weakref.WeakKeyDictionary[tf.Graph, dict[tuple[str, ...], bool]]
_trained_by = weakref.WeakKeyDictionary()


def executor_for(script: tf.Graph, roots: Sequence[str], shapes: Shapes) -> Executor:
    """The executor that runs some operators of a graph.

    Args:
        script: the graph.
        roots: names of the operators.
        shapes: of what is fed, by `fed_operator`.

    Raises:
        StateError: before `init`; if several ranks would train without a plan.
        InfeasibleError: if a plan is needed and none fits the memory limit.
        PlanError: if gradients are run under a plan that has none.
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
    if job.executor is None:
        job.executor = replicated_executor(job, script)
    return job.executor


def needs_gradient(script: tf.Graph, roots: Sequence[str]) -> bool:
    """Whether some operators depend on a gradient that the script asked for."""
    return any(
        operation.type == "Identity" and GRADIENT_ATTRIBUTE in operation.node_def.attr
        for operation in needed_operations(script, roots)
    )


def is_step(script: tf.Graph, roots: Sequence[str], plan: Plan) -> bool:
    """Whether a run is a whole step of a plan: it runs all that the plan trains.

    That is the optimizers' operators among the plan's roots; without any, the roots that need a
    gradient; else all roots. Further fetches make no difference.
    """
    cached = _steps_of.setdefault(script, {})
    key = (tuple(roots), plan.roots)
    if key not in cached:
        trained = script.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP)
        names = {getattr(each, "op", each).name for each in trained}
        wanted = [root for root in plan.roots if root in names]
        wanted = wanted or [root for root in plan.roots if needs_gradient(script, [root])]
        found = {operation.name for operation in needed_operations(script, roots)}
        cached[key] = found.issuperset(wanted or plan.roots)
    return cached[key]


def _is_unplanned_training(script: tf.Graph, roots: Sequence[str], plan: Plan) -> bool:
    """Whether a run needs gradients, and nothing of the plan does."""
    known = _trained_by.setdefault(script, {})
    for each in (tuple(roots), plan.roots):
        if each not in known:
            known[each] = needs_gradient(script, each)
    return known[tuple(roots)] and not known[plan.roots]


def switch_to(job: Job, script: tf.Graph) -> None:
    """Let the job have a graph's executor and plan: each graph of a script has its own."""
    if job.executor is not None:
        if job.executor.script is script:
            return
        job.others[job.executor.script] = Running(job.executor, job.plan, job.steps)
    nothing = None, None, None
    job.executor, job.plan, job.steps = job.others.pop(script, nothing)


def close(job: Job, script: tf.Graph) -> None:
    """Free a graph's executor and its variables, and leave the job's present graph in force."""
    before = job.executor
    switch_to(job, script)
    if job.executor is not None:
        job.executor.close()
    job.executor, job.plan, job.steps = None, None, None
    if before is not None and before.script is not script:
        switch_to(job, before.script)


def _plan(job: Job, script: tf.Graph, roots: Sequence[str], shapes: Shapes) -> None:
    with script.as_default():
        steps = _steps(script, roots, shapes)
        plan = find_strategy("mini_time", shapes=shapes, fetches=steps)
        assert isinstance(plan, Plan)
        if job.group.rank == 0:
            sys.stderr.write(f"tensoropt: {plan}\n")
        build_execution_graph(plan=plan)


def _steps(script: tf.Graph, roots: Sequence[str], shapes: Shapes) -> list[str]:
    """The fetched operators, and other training operators of the script that the feed can run."""
    found = list(roots)
    for trained in script.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP):
        operation = getattr(trained, "op", trained)
        if operation.name in found:
            continue
        graph = import_graph(script, [operation.name], shapes)
        if all(op.name in shapes for op in graph if op.is_placeholder) and not unfed(graph):
            found.append(operation.name)
    return found
