"""Plans of runs without gradients, such as evaluations, predictions and losses of test data.

The variables keep the layouts in which the executor holds them, and the other operators are
searched. The result joins the configurations of the executor that runs the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import tensorflow as tf

from tensoropt.frontend.inputs.shapes import fed_shapes
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job, Running
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.garbage import collected_later
from tensoropt.graph.operator import VARIABLE_TYPES, Graph
from tensoropt.parallel.strategy import derivations_of
from tensoropt.plan import Plan
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.request import Request
from tensoropt.quiet.standard_error import write_note

__all__ = ["plan_forward"]

_SECONDS = 3.0  # longest search
_LEAST_WORK = 2**23
"""Arithmetic operations and elements of a run that is worth a search: about a millisecond."""


def plan_forward(
    job: Job,
    script: tf.Graph,
    running: Running,
    roots: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    limit_bytes: int | None = None,
) -> None:
    """Plan a run without gradients, once. All ranks call this before the run is emitted.

    Nothing is planned if the run is small, or is fed no batch. If the search fails, the first rank
    says why, and operators without a plan follow others or run whole on every rank.

    Args:
        job: the job.
        script: the graph.
        running: the executor of the graph, which gets the configurations.
        roots: names of the operators to run or fetch; none of them needs a gradient.
        shapes: shapes of the fed values, by `fed_operator`.
        limit_bytes: the memory limit of a device where there is no training plan; None for the
            cluster's.
    """
    executor = running.executor
    meshes = executor.meshes
    if job.dry_run is not None or all(mesh.size == 1 for mesh in meshes):
        return
    with collected_later():
        graph = executor.part(roots, shapes)
        fed, batched = fed_shapes(script, None, shapes)
        batches = batched.intersection(op.name for op in graph if op.is_placeholder)
        is_open = any(
            op.name not in executor.planned(n) for op in graph for n in range(len(meshes))
        )
        is_fed = all(op.name in shapes for op in graph if op.is_placeholder)
        if not (batches and is_fed and is_open) or _work(graph) < _LEAST_WORK:
            return
        request = Request(
            graph=graph,
            cluster_at=job.cluster_at,
            profile_at=job.profile_at,
            devices=job.devices,
            roots=tuple(roots),
            shapes={op.name: fed[op.name] for op in graph if op.is_placeholder},
            batch_placeholders=batches,
            search_seconds=_SECONDS,
        )
        job.agreement.check(f"run({', '.join(roots)}), which is planned", graph.summaries())
        plans = [
            _stage_plan(job, running, request, stage, limit_bytes) for stage in range(len(meshes))
        ]
    if any(plan is None for plan in plans):
        return
    if len(plans) == 1 and plans[0] is not None:
        running.forward[tuple(roots)] = plans[0]
    executor.add([plan.configurations for plan in plans if plan is not None], batches)


def _stage_plan(
    job: Job, running: Running, request: Request, stage: int, limit_bytes: int | None
) -> Plan | None:
    """The plan of a run on the mesh of one stage; None if the search fails on the first rank."""
    executor, mesh = running.executor, running.executor.meshes[stage]
    planned = executor.planned(stage)
    request = replace(
        request,
        devices=mesh.size,
        shares=mesh.shares,
        units=mesh.units,
        fixed={op.name: planned[op.name] for op in request.graph if op.name in planned},
    )
    limit = _limit(running.plan, request, limit_bytes)
    request = replace(request, memory_limit_bytes=limit)

    def search() -> dict[str, Any]:
        from tensoropt.planner.offers.forward import forward_plan  # loads the search

        try:
            file = KeptPlan.of(request, "mini_time", job.transport)
            plan = file.read()
            if plan is None:
                plan = forward_plan(request)
                file.write(plan)
            if plan.mesh != mesh:
                return {"failed": f"the search is on a mesh of {plan.mesh}, the plan on {mesh}"}
        except Exception as error:
            return {"failed": first_line(error)}
        return {"plan": plan.to_json()}

    answer = on_first_rank(job.group, search)
    if "failed" in answer:
        if job.group.rank == 0:
            sys.stderr.write(
                f"tensoropt: a run without gradients is not planned: {answer['failed']}\n"
            )
        return None
    plan = Plan.from_json(answer["plan"])
    if job.group.rank == 0:
        write_note(f"without gradients: {plan}")
    return plan


def _limit(training: Plan | None, request: Request, limit_bytes: int | None) -> int:
    """The memory limit of a run, less the variables of the training plan that it does not read."""
    if training is None or training.memory_limit_bytes is None:
        return request.limit_bytes(request.devices) if limit_bytes is None else limit_bytes
    held = sum(
        operator.memory_bytes
        for operator in training.operators
        if operator.type in VARIABLE_TYPES and operator.name not in request.graph
    )
    factor = request.cluster_at(request.devices).safety_factor
    return max(1, int(training.memory_limit_bytes * factor) - held)


def _work(graph: Graph) -> int:
    """Arithmetic operations and elements of the outputs of a graph."""
    flops = sum(derivation.flops for derivation in derivations_of(graph).values())
    return flops + sum(
        prod(spec.shape) for op in graph for spec in op.outputs if not op.is_variable
    )
