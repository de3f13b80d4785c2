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
from tensoropt.execution.executor import Executor
from tensoropt.execution.world import MPIWorld, SingleProcessWorld, World
from tensoropt.frontend.inputs.shapes import unfed
from tensoropt.frontend.job import copies
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.job.plan_executor import session_config
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE, import_graph, needed_operations
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan import Plan
from tensoropt.plan.executed_steps import ExecutedSteps
from tensoropt.planner.prices.reshard_steps import ReshardSteps

__all__ = ["close", "executor_for", "is_step", "needs_gradient", "switch_to"]

Shapes = Mapping[str, tuple[int, ...]]

_Run = tuple[Job, Executor | None, Plan | None, ExecutedSteps | None]
_of_other_graphs: weakref.WeakKeyDictionary[tf.Graph, _Run] = weakref.WeakKeyDictionary()
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
        job.executor = _replicated(job, script)
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
    if job.executor is None or job.executor.script is script:
        return
    _of_other_graphs[job.executor.script] = job, job.executor, job.plan, job.steps
    none = job, None, None, None
    kept = _of_other_graphs.pop(script, none)
    _, job.executor, job.plan, job.steps = kept if kept[0] is job else none


def close(script: tf.Graph) -> None:
    """Free what runs a graph that is not the job's present one, and its variables."""
    _, executor, _, _ = _of_other_graphs.pop(script, (None, None, None, None))
    if executor is not None:
        executor.close()


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


def _replicated(job: Job, script: tf.Graph) -> Executor:
    """An executor that runs everything on every rank: no operator has a configuration."""
    mesh = Mesh.of(job.devices)
    world: World = SingleProcessWorld(mesh)
    if job.is_mpi:
        world = MPIWorld(mesh, job.group, job.transport)
    steps = ReshardSteps(mesh, _price)
    return Executor(
        script, world, {}, frozenset(), steps, job.agreement, job.seed, session_config(job)
    )


def _price(kind: str, axes: Sequence[int], bytes_: int) -> int:
    """Of a resharding step: by bytes alone, since a replicated graph reshards almost nothing."""
    del kind, axes
    return 1 + bytes_
