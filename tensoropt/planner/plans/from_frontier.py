"""A point of a frontier as a plan, with the splits of every operator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

from tensoropt.arrays import Int32Array
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.operator_plan import Dimension, OperatorPlan, Variable
from tensoropt.plan.plan import Plan
from tensoropt.planner.fixed.kept_pins import with_fixed
from tensoropt.planner.names.dimension_names import dimension_names
from tensoropt.planner.names.named_operators import reads_of, shape_of, uses_of_variables
from tensoropt.planner.notes import batch_norm_notes, extrapolations, notes_of, unsplit_notes
from tensoropt.planner.plans.details import details_of
from tensoropt.planner.prices.kinds_of_devices import kind_notes
from tensoropt.planner.prices.peak import PredictedPeak, predicted_peak
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.tdl import Derivation

__all__ = ["operator_plan", "plan_for"]

_OF_SHARES = "partial sums"
"""Name of the indices that `Derivation.on_shares` adds."""


def plan_for(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    strategy: Int32Array,
    option: str,
    peak: PredictedPeak | None = None,
    notes: Sequence[str] = (),
    fewer_devices: tuple[tuple[int, int | None], ...] = (),
) -> Plan:
    """Return the plan of a strategy. The strategy is the only point of its frontier.

    Args:
        request: the step.
        problem: the problem of the strategy.
        frontier: the frontier of the search; notes of the plan say how it was found.
        strategy: int32[nodes], each node's configuration number.
        option: the option for which it was chosen.
        peak: its peak memory; predicted here if None.
        notes: further notes of the plan.
        fewer_devices: the times on fewer devices, see `Plan.fewer_devices`.
    """
    numbers = strategy.tolist()
    (memory,), (time,) = (sums.tolist() for sums in problem.problem.costs([numbers]))
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    planned = request.strategy(problem, numbers)
    peak = predicted_peak(request, problem, numbers) if peak is None else peak
    executed = step_time(planned, cost, peak.steps, request.reads, request.repeats)
    operators = _operator_plans(request, problem, numbers)
    plan = Plan(
        option=option,
        devices=problem.mesh.size,
        mesh_axes=problem.mesh.axes,
        cluster=cost.cluster,
        graph_digest=request.graph_digest,
        roots=request.roots,
        shapes=dict(request.shapes),
        batch_placeholders=tuple(sorted(request.batch_placeholders)),
        operators=operators,
        time_nanoseconds=time,
        memory_bytes=memory,
        memory_limit_bytes=request.usable_bytes(problem.mesh.size),
        frontier=((memory, executed.total),),
        point=0,
        exact=frontier.exact,
        notes=(
            *notes_of(problem, frontier, request),
            *unsplit_notes(problem, request, operators),
            *batch_norm_notes(planned, request.batch_norm, request.microbatches),
            *extrapolations(cost),
            *kind_notes(planned, cost, request.repeats),
            *filter(None, [peak.note, *notes]),
        ),
        peak_bytes=peak.bytes,
        peak_is_estimated=not peak.from_dry_run,
        algorithm=request.algorithm,
        executed_nanoseconds=executed.total,
        network_nanoseconds=executed.network,
        epsilon=request.epsilon,
        within=frontier.within,
        reshardings=peak.steps.recorded(),
        batch_norm=request.batch_norm,
        compression=request.compression,
        microbatches=request.microbatches,
        rewrites=request.rewrites,
        fewer_devices=fewer_devices,
        details=details_of(request, planned, peak.steps, executed),
        shares=problem.mesh.shares,
        units=problem.mesh.units,
    )
    return with_fixed(plan, request.pins)


def _operator_plans(
    request: Request, problem: GraphProblem, strategy: Sequence[int]
) -> tuple[OperatorPlan, ...]:
    """Return the operators of a strategy, each with its own time and memory."""
    number_of = {
        name: number
        for group, number in zip(problem.choices, problem.simplest(strategy), strict=True)
        for name in group.members
    }
    chosen = problem.configurations(strategy)
    names = dimension_names(problem.graph, request.batch_placeholders)
    uses = uses_of_variables(problem.graph)
    plans = []
    for operator in problem.graph:
        if operator.name not in chosen:
            continue
        number, costs = number_of[operator.name], problem.costs[operator.name]
        plans.append(
            operator_plan(
                operator,
                problem.derivations[operator.name],
                chosen[operator.name],
                problem.mesh,
                int(costs.time[number]),
                int(costs.memory[number]),
                names[operator.name],
                uses[operator.name],
            )
        )
    return tuple(plans)


def operator_plan(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    time: int,
    memory: int,
    names: Sequence[str],
    use: Variable,
) -> OperatorPlan:
    """Return an operator of a plan.

    Args:
        operator: the operator.
        derivation: its iteration space.
        configuration: its splits over the mesh.
        mesh: the devices.
        time: its nanoseconds in a step.
        memory: its bytes on a device.
        names: the names of its indices.
        use: its use, if it is a variable.
    """
    device_mesh, inputs, output = _maps_of(derivation, configuration, mesh)
    return OperatorPlan(
        name=operator.name,
        type=operator.type,
        splits=configuration.splits,
        mesh=device_mesh,
        inputs=inputs,
        output=output,
        time_nanoseconds=time,
        memory_bytes=memory,
        kept=configuration.kept,
        dimensions=tuple(
            Dimension(name, max(index.extent, 0))  # -1 where it differs between steps
            for name, index in zip(
                chain(names, repeat(_OF_SHARES)), derivation.indices, strict=False
            )
        ),
        reads=reads_of(operator),
        shape=shape_of(operator),
        variable=use,
        unsplittable=_reason(derivation),
    )


def _reason(derivation: Derivation) -> str:
    """Return the reason why an operator cannot be split; empty if it can."""
    if derivation.splittable:
        return ""
    reasons = [index.reason for index in derivation.indices if index.reason]
    return "; ".join(dict.fromkeys(reasons)) or "it has no dimension to divide"


def _maps_of(
    derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> tuple[str, tuple[str, ...], str]:
    """Return a configuration as the paper writes it.

    Returns:
        The device mesh, the maps of all inputs, and the map of the first output.
    """
    sizes, of_index = Layout(configuration.splits).mesh_and_map(mesh)

    def tensor_map(dims: Sequence[int | None]) -> str:
        return "[" + ",".join(str(-1 if n is None else of_index[n]) for n in dims) + "]"

    return (
        "[" + ",".join(map(str, sizes)) + "]",
        tuple(tensor_map(dims) for dims in derivation.inputs),
        tensor_map(derivation.outputs[0]) if derivation.outputs else "",
    )
