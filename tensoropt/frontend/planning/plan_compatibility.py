"""Checks that a plan belongs to this job and this graph; the plan that the environment demands."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace

import tensorflow as tf

from tensoropt.elastic.rank_variables import PLAN_VARIABLE, RESTARTS_VARIABLE
from tensoropt.errors import PlanError
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.planning.training_step import graph_of
from tensoropt.graph.batch_norm import with_batch_norm
from tensoropt.graph.from_tensorflow import has_operation
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.strategy import derivations_under
from tensoropt.plan import Plan
from tensoropt.plan.amounts import devices_of
from tensoropt.quiet.standard_error import write_note
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.microbatches.parts import graph_of_one
from tensoropt.transformations.rewritten.application import apply, substitutions_by_name

__all__ = ["check_plan", "demanded_plan", "plan_lines"]

_NAMED = 3
"""The most operators that an error names."""


def demanded_plan(job: Job, path: str, graph_digest: str) -> Plan | None:
    """The plan of the file that `PLAN_VARIABLE` names, for a step; None if it is to be searched.

    The file's plan is for the first step that a job plans. Further steps, such as that of a last,
    smaller batch, are searched. So is the first one if a job of ``tensoropt run`` has other devices
    than the plan, since some of its machines may be lost.

    Args:
        job: the job.
        path: the file.
        graph_digest: the digest of the step's graph.

    Raises:
        PlanError: there is no such file; its plan is for another step, or another number of devices
            than the job was started with.
    """
    plan = Plan.load(path)
    if graph_digest != plan.graph_digest:
        if any(running.plan is not None for running in job.graphs.values()):
            write_note(f"a further step is searched, since {path} has a plan for another one")
            return None
        raise PlanError(
            f"{PLAN_VARIABLE} is a plan for the first step of the script, with its batch. Got "
            f"{path!r}, whose graph or shapes differ from the script's; make the plan again with "
            "`tensoropt plan`, or leave it out for a search."
        )
    if RESTARTS_VARIABLE not in os.environ:
        _check_devices(job, plan)
    elif not plan.runs_on(job.devices):
        sys.stderr.write(
            f"tensoropt: the plan of {path} is for {devices_of(plan.devices)}, and the job has "
            f"{job.devices}: a strategy is searched\n"
        )
        return None
    return plan


def check_plan(job: Job, script: tf.Graph, plan: Plan) -> Graph:
    """Check that a plan can run in this job and graph, and return the graph of its step.

    Raises:
        PlanError: the plan is for another graph or another number of devices, or was edited.
    """
    _check_devices(job, plan)
    graph = _check_graph(script, plan)
    _check_configurations(_rewritten(graph, plan), plan)
    return graph


def plan_lines(plan: Plan) -> list[str]:
    """A plan as lines that ranks compare, one for each field and operator."""
    values = plan.to_json()
    operators = values.pop("operators")
    del values["digest"]  # it depends on all other fields
    lines = [f"{key}={value}" for key, value in values.items()]
    return lines + [f"{entry['name']}: {entry}" for entry in operators]


def _check_devices(job: Job, plan: Plan) -> None:
    if not plan.runs_on(job.devices):
        raise PlanError(
            "a plan runs on the number of devices it was made for. Got a plan for "
            f"{devices_of(plan.devices)} in a job of {job.devices}; find a strategy for this job, "
            f"or start it with {plan.devices} ranks."
        )


def _check_graph(script: tf.Graph, plan: Plan) -> Graph:
    """The script's logical graph, checked against the plan's."""
    roots = [name for name in plan.roots if has_operation(script, name)]
    graph = None
    if len(roots) == len(plan.roots):
        graph = graph_of(script, roots, plan.shapes)
    if graph is None or graph.digest() != plan.graph_digest:
        raise PlanError(
            "a plan runs the graph it was made for. Got a plan whose graph differs from the "
            "script's"
            + (f" ({_missing(plan.roots, roots)})" if graph is None else "")
            + "; call find_strategy again after changing the model."
        )
    return graph


def _missing(wanted: Iterable[str], found: Collection[str]) -> str:
    """The operators of a plan's step that a script lacks; the names of the first of them."""
    names = sorted(set(wanted) - set(found))
    more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
    return f"it has no {', '.join(map(repr, names[:_NAMED]))}{more}"


def _rewritten(graph: Graph, plan: Plan) -> Graph:
    """The graph after the plan's substitutions, each checked to be known and to apply."""
    known = substitutions_by_name() if plan.rewrites else {}
    for rewrite in plan.rewrites:
        substitution = known.get(rewrite.substitution)
        after = None
        if substitution is not None:
            after = apply(graph, rewrite, substitution, plan.roots)
        if after is None:
            raise PlanError(
                "a plan's substitutions are proven, and in the script's graph. Got "
                f"{rewrite}; call find_strategy again with this version of TensorOpt."
            )
        graph = after
    return graph


def _check_configurations(graph: Graph, plan: Plan) -> None:
    """Check that every operator's configuration is valid (a plan file may have been edited)."""
    planned, stage_of = plan.configurations, plan.stage_of
    meshes = [stage.mesh for stage in plan.stages] or [plan.mesh]
    batch = frozenset(plan.batch_placeholders)
    if plan.microbatches > 1:  # the plan is for one microbatch
        graph = with_batch_norm(graph, plan.batch_norm)
        graph = graph_of_one(cut_along_batch(graph, batch, plan.microbatches))
    derivations = derivations_under(graph, planned)
    # Uneven pieces that no search offers are as exact as others, where an operator computes them.
    uneven = frozenset(
        index.extent
        for name in planned.keys() & derivations.keys()
        for index, axes in zip(derivations[name].indices, planned[name].splits, strict=False)
        if axes
    )
    groups = [
        (group, [name for name in group.members if stage_of.get(name, 0) == number])
        for number, mesh in enumerate(meshes)
        for group in strategy_choices(graph, mesh, batch, derivations, uneven=uneven)
        if not (plan.stages and graph[group.leader].is_placeholder)
    ]
    for group, members in groups:
        wanted = {name: planned.get(name) for name in members}
        split = {name: config and replace(config, kept="both") for name, config in wanted.items()}
        if not any(split.items() <= option.items() for option in group.options):
            raise PlanError(
                "every operator of a plan has one of its valid configurations. Got for "
                + ", ".join(f"{name!r} {config}" for name, config in wanted.items())
                + "; call find_strategy for a valid plan."
            )
