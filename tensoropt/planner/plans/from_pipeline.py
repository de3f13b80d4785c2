"""A pipeline of a frontier as a plan, with the splits of every operator in its stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.configuration import Configuration, fitted
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_under
from tensoropt.pipeline.stages.pipeline import Pipeline, Stage
from tensoropt.plan.details import Details, Move
from tensoropt.plan.operator_plan import OperatorPlan, StagePlan
from tensoropt.plan.plan import Plan
from tensoropt.planner.fixed.kept_pins import with_fixed
from tensoropt.planner.names.dimension_names import dimension_names
from tensoropt.planner.names.named_operators import uses_of_variables
from tensoropt.planner.notes import staged_batch_norm_notes
from tensoropt.planner.optional_space import attempt
from tensoropt.planner.plans.from_frontier import operator_plan
from tensoropt.planner.plans.stage_moves import stage_moves
from tensoropt.planner.plans.stage_peaks import with_peaks
from tensoropt.planner.prices.kinds_of_devices import stage_kind_notes
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.parts import graph_of_one
from tensoropt.transformations.staged.assignment import SHARED
from tensoropt.transformations.staged.order_of_passes import in_flight
from tensoropt.transformations.staged.simulated_time import SharedCores

__all__ = ["executed_nanoseconds", "plan_for_pipeline"]


def plan_for_pipeline(
    request: Request,
    search: PipelineSearch,
    pipeline: Pipeline,
    option: str,
    notes: Sequence[str] = (),
) -> Plan:
    """Return the plan of a pipeline, with the peaks of its stages. It is the only point of its
    frontier.

    Args:
        request: the step.
        search: the search that found the pipeline.
        pipeline: a pipeline of at least two stages.
        option: the option for which it was chosen.
        notes: notes of the plan.

    Raises:
        GraphError: if the step cannot be executed by these stages.
    """
    devices, start = request.devices, search.step_nanoseconds
    cost, executed = request.cost_model(devices), executed_nanoseconds(request, search, pipeline)
    meshes = [_mesh_of(search, pipeline, stage) for stage in pipeline.stages]
    operators = list(_operators(request, search, pipeline, search.stage_of(pipeline), meshes))
    plan = Plan(
        option=option,
        devices=devices,
        mesh_axes=request.cluster_at(devices).mesh(devices).axes,
        cluster=cost.cluster,
        graph_digest=request.graph_digest,
        roots=request.roots,
        shapes=dict(request.shapes),
        batch_placeholders=tuple(sorted(request.batch_placeholders)),
        operators=tuple(operator for _, operator in operators),
        time_nanoseconds=pipeline.time + start,
        memory_bytes=pipeline.memory,
        memory_limit_bytes=request.usable_bytes(devices),
        frontier=((pipeline.memory, executed),),
        point=0,
        exact=False,
        notes=(
            *notes,
            *staged_batch_norm_notes(request.graph, request.batch_norm, pipeline.microbatches),
        ),
        algorithm=request.algorithm,
        executed_nanoseconds=executed,
        network_nanoseconds=search.sending_nanoseconds(pipeline),
        epsilon=request.epsilon,
        batch_norm=request.batch_norm,
        compression=request.compression,
        microbatches=pipeline.microbatches,
        stages=tuple(_stage_plans(pipeline, meshes, operators)),
        schedule=pipeline.schedule,
        copies=pipeline.copies,
        rewrites=request.rewrites,
        device_order=pipeline.order,
    )
    plan = with_fixed(plan, request.pins)
    plan = replace(plan, notes=(*plan.notes, *stage_kind_notes(request, plan)))
    return with_peaks(request, _with_moves(request, plan, search.cut(pipeline.microbatches)))


def _with_moves(request: Request, plan: Plan, cut: BatchCut) -> Plan:
    """Return the plan with its moves; with a note if they cannot be followed."""
    notes = list(plan.notes)
    without: tuple[Move, ...] = ()
    moves = attempt(
        "moves between devices", partial(stage_moves, request, plan, cut), without, notes
    )
    return replace(plan, details=Details(moves), notes=tuple(notes))


def _stage_plans(
    pipeline: Pipeline, meshes: Sequence[Mesh], operators: Sequence[tuple[int, OperatorPlan]]
) -> Iterator[StagePlan]:
    """Yield the stages of a plan, from their meshes and from all operators with their stages."""
    for number, (stage, mesh) in enumerate(zip(pipeline.stages, meshes, strict=True)):
        yield StagePlan(
            mesh.axes,
            tuple(operator.name for of_stage, operator in operators if of_stage == number),
            stage.forward,
            stage.backward,
            stage.once,
            stage.memory,
            stage.recompute,
        )


def executed_nanoseconds(request: Request, search: PipelineSearch, pipeline: Pipeline) -> int:
    """Return the predicted nanoseconds of a step, as it is executed."""
    return pipeline.simulated_time(_shared_cores(request, pipeline)) + search.step_nanoseconds


def _shared_cores(request: Request, pipeline: Pipeline) -> SharedCores | None:
    """Return the cores that all devices share, by the profile; None if they share none."""
    cores = request.shared_cores(request.devices)
    if cores is None:
        return None
    return SharedCores(cores, tuple(pipeline.copies * stage.devices for stage in pipeline.stages))


def _mesh_of(search: PipelineSearch, pipeline: Pipeline, stage: Stage) -> Mesh:
    """Return the mesh of a stage's devices in all copies; the axes within a machine come last."""
    within = search.within_machine(stage.devices)
    across = pipeline.copies * stage.devices // within.size
    return Mesh((*Mesh.of(across).axes, *within.axes))


def _on_all_machines(configuration: Configuration, index: int | None, across: int) -> Configuration:
    """Return the configuration of an operator on several machines, which share the examples.

    Args:
        configuration: the configuration on the axes of one machine.
        index: the number of the examples' index in the iteration space; None if there is none.
        across: the number of axes between machines, which come first.
    """
    splits = [tuple(axis + across for axis in axes) for axes in configuration.splits]
    if index is not None:
        splits[index] = (*range(across), *splits[index])
    return Configuration(tuple(splits), configuration.kept)


def _operators(
    request: Request,
    search: PipelineSearch,
    pipeline: Pipeline,
    stage_of: Mapping[str, int],
    meshes: Sequence[Mesh],
) -> Iterator[tuple[int, OperatorPlan]]:
    """Yield the operators of all stages with their stages, in the order of the step.

    The time of an operator is that of all microbatches. Its memory is that of the microbatches in
    flight.
    """
    count, number = pipeline.microbatches, len(pipeline.stages)
    strategies = search.strategies(pipeline)
    indices = search.cut(count).indices
    configurations = [
        configurations_of(costs.annotated.choices, chosen.tolist()) for costs, chosen in strategies
    ]
    graph = graph_of_one(search.cut(count))
    names, uses = dimension_names(graph, request.batch_placeholders), uses_of_variables(graph)
    for operator in graph:
        stage, like = stage_of[operator.name], search.profile.sample.stands_for(operator.name)
        if stage == SHARED or operator.is_constant:
            continue
        costs, chosen = strategies[stage]
        mesh = meshes[stage]
        derivation = derivation_under(operator, configurations[stage][like])
        configuration = fitted(
            _on_all_machines(
                configurations[stage][like],
                indices.get(operator.name),
                len(mesh.axes) - len(costs.annotated.mesh.axes),
            ),
            derivation,
            mesh,
        )
        parts = costs.of_operators[like][:, chosen[costs.slots.node_of[like]]].tolist()
        forward, backward, late, fixed, saved, _ = parts
        held, again = in_flight(pipeline.schedule, stage, number, count), 0
        if pipeline.stages[stage].recompute:
            held, again = 1, forward
        yield (
            stage,
            operator_plan(
                operator,
                derivation,
                configuration,
                mesh,
                time=count * (forward + backward + again) + late,
                memory=fixed + held * saved,
                names=names[operator.name],
                use=uses[operator.name],
            ),
        )
