"""From a frontier to a plan: the options of TensorOpt, section 4.1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tensoropt.cost.cluster import Cluster
from tensoropt.cost.model import ClusterCostModel, MeasuredCostModel
from tensoropt.cost.operator_times import OperatorTimes
from tensoropt.cost.peak import peak_memory
from tensoropt.cost.profile import Profile
from tensoropt.errors import InfeasibleError, LayoutError
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.meshes import cluster_on, meshes_of
from tensoropt.plan.plan import NAMES_ONLY, OperatorPlan, Plan
from tensoropt.plan.profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.step_time import step_time
from tensoropt.plan.steps import steps_priced_by
from tensoropt.search.from_graph import GraphProblem, graph_problem, least_memory_bytes
from tensoropt.search.frontier import Frontier
from tensoropt.search.frontier_tracking import frontier_tracking
from tensoropt.search.kept import PLAIN, Space
from tensoropt.search.mesh_refinement import Refinement
from tensoropt.search.strategies import data_parallel, solver
from tensoropt.search.strategies.coarse_to_fine import coarse_to_fine
from tensoropt.search.watch import best_known, keep, solving, was_interrupted
from tensoropt.tdl import Derivation, described

__all__ = [
    "Request",
    "computes",
    "fewest_devices",
    "makes_text",
    "mini_parallelism",
    "mini_time",
    "plan_for",
    "profiling",
    "searched",
]

_MOST_DEVICES = 64
# Frontiers on meshes that take axes together are not looked for nearer than that.
_FINEST = 0.001


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a strategy is looked for.

    Attributes:
        graph: one training step, shapes bound.
        cluster_at: where it runs, by number of devices (ranks on one host share its cores).
        devices: number of devices to use, for ``mini_parallelism`` at most.
        roots: the operators that the step runs.
        shapes: shape of each placeholder.
        batch_placeholders: placeholders loaded data parallel.
        memory_limit_bytes: memory of one device; None for the cluster's.
        profile_at: what was measured there, by number of devices; None where nothing was.
        reads: what the backward pass reads of the forward pass.
        memory_model: name of the memory model, see `tensoropt.cost.memory`.
        algorithm: name of the solver, see `tensoropt.search.strategies`.
        space: what may be kept for the backward pass, see `tensoropt.search.kept`.
        epsilon: by how much a frontier's points may be off, see `frontier_tracking`.
    """

    graph: Graph
    cluster_at: Callable[[int], Cluster]
    devices: int
    roots: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    batch_placeholders: frozenset[str]
    memory_limit_bytes: int | None = None
    profile_at: Callable[[int], Profile | None] = lambda _: None
    reads: BackwardReads = field(default_factory=BackwardReads)
    memory_model: str = "execution"
    algorithm: str = "ft"
    space: Space = PLAIN
    epsilon: float = 0.0

    def meshes(self, devices: int) -> tuple[Refinement, ...]:
        """The meshes that are searched, coarsest first: one but for many devices.

        Raises:
            LayoutError: if the cluster cannot give a job this number of devices.
        """
        return meshes_of(self.graph, self.cluster_at(devices), devices)

    def cost_model(self, devices: int, mesh: Mesh | None = None) -> ClusterCostModel:
        """What things cost on so many devices: as measured where there is a profile.

        Args:
            devices: how many.
            mesh: one of `meshes`, the last of them if None.

        Raises:
            LayoutError: if the cluster cannot give a job this number of devices.
        """
        mesh = self.meshes(devices)[-1].mesh if mesh is None else mesh
        cluster = cluster_on(self.cluster_at(devices), mesh)
        profile = self.profile_at(devices)
        if profile is None:
            return ClusterCostModel(cluster, mesh, self.memory_model)
        times = OperatorTimes(profile.operators, cluster.device)
        return MeasuredCostModel(cluster, mesh, times, self.memory_model)

    def usable_bytes(self, devices: int) -> int:
        """What a plan may take of one device: the limit divided by the safety factor."""
        cluster = self.cluster_at(devices)
        limit = self.memory_limit_bytes
        return int(
            (cluster.device.memory_bytes if limit is None else limit) / cluster.safety_factor
        )


def mini_time(request: Request) -> Plan:
    """The fastest strategy on all devices that fits the memory limit, of those that are looked at.

    Raises:
        InfeasibleError: none fits; says the least memory and the fewest devices that would.
    """
    problem, frontier = searched(request)
    point = frontier.fastest(request.usable_bytes(request.devices))
    return plan_for(request, problem, frontier, point, "mini_time")


def searched(request: Request) -> tuple[GraphProblem, Frontier]:
    """The frontier on all devices, of which some point fits the memory limit.

    Raises:
        InfeasibleError: see `mini_time`.
    """
    problem, frontier = _solved(request, request.devices)
    if frontier.memory[0] > request.usable_bytes(request.devices):
        raise InfeasibleError(_too_little(request, int(frontier.memory[0])))
    return problem, frontier


def mini_parallelism(request: Request) -> Plan:
    """The fastest strategy on the fewest devices that fit the memory limit.

    Raises:
        InfeasibleError: not even all devices suffice.
    """
    plan = mini_time(replace(request, devices=fewest_devices(request)))
    return replace(plan, option="mini_parallelism")


def fewest_devices(request: Request) -> int:
    """The fewest devices on which some strategy fits the memory limit.

    Raises:
        InfeasibleError: see `mini_parallelism`.
    """
    fewest = _fewest_devices(request, range(1, request.devices + 1))
    if fewest is None:
        least = _least_bytes(request, request.devices)
        raise InfeasibleError(_too_little(request, least))
    return fewest


def profiling(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """The minimal time per step at each number of devices."""
    points = []
    for devices in parallelism:
        limit = request.usable_bytes(devices)
        _, frontier = _solved(request, devices)
        if frontier.memory[0] > limit:
            points.append(ProfilePoint(devices, None, int(frontier.memory[0])))
            continue
        point = frontier.fastest(limit)
        points.append(
            ProfilePoint(devices, int(frontier.time[point]) / 1e9, int(frontier.memory[point]))
        )
    return ParallelismProfile(tuple(points))


def plan_for(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    point: int,
    option: str,
) -> Plan:
    """One point of a frontier as a plan."""
    strategy = [int(number) for number in frontier.strategies[point]]
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    planned = Strategy(
        problem.graph, problem.mesh, problem.configurations(strategy), request.batch_placeholders
    )
    steps = steps_priced_by(problem.mesh, cost.collective_nanoseconds)
    executed = step_time(planned, cost)
    return Plan(
        option=option,
        devices=problem.mesh.size,
        mesh_axes=problem.mesh.axes,
        cluster=cost.cluster,
        graph_digest=request.graph.digest(),
        roots=request.roots,
        shapes=dict(request.shapes),
        batch_placeholders=tuple(sorted(request.batch_placeholders)),
        operators=_operator_plans(problem, strategy),
        time_nanoseconds=int(frontier.time[point]),
        memory_bytes=int(frontier.memory[point]),
        memory_limit_bytes=request.usable_bytes(problem.mesh.size),
        frontier=tuple(
            (int(memory), int(time))
            for memory, time in zip(frontier.memory, frontier.time, strict=True)
        ),
        exact=frontier.exact,
        notes=(*_notes(problem, frontier, request), *_extrapolations(cost)),
        peak_bytes=peak_memory(planned, request.reads, steps).bytes,
        algorithm=request.algorithm,
        executed_nanoseconds=executed.total,
        network_nanoseconds=executed.network,
        epsilon=request.epsilon,
        within=frontier.within,
    )


def _solved(request: Request, devices: int) -> tuple[GraphProblem, Frontier]:
    """The frontier on some devices, by the algorithm that is asked for.

    Frontier tracking goes from coarse meshes to finer ones where the devices have more axes than
    can be searched at once. Interrupted before anything is known, it ends with data parallelism.
    """
    meshes = request.meshes(devices)
    if request.algorithm != "ft":
        problem = _problem(request, devices)
        return problem, solver(request.algorithm)(problem)
    if len(meshes) > 1:
        epsilon = max(request.epsilon, _FINEST)
        return coarse_to_fine(lambda mesh: _problem(request, devices, mesh), meshes, epsilon)
    problem = _problem(request, devices)
    with solving():
        keep(lambda: replace(data_parallel.solve(problem), exact=False, within=None))
        try:
            return problem, frontier_tracking(problem.problem, epsilon=request.epsilon)
        except KeyboardInterrupt:
            found = best_known()
            if found is None:
                raise
            return problem, found


def _problem(request: Request, devices: int, mesh: Mesh | None = None) -> GraphProblem:
    cost = request.cost_model(devices, mesh)
    return graph_problem(
        request.graph,
        cost.mesh,
        cost,
        request.batch_placeholders,
        request.reads,
        request.space,
    )


def _least_bytes(request: Request, devices: int) -> int:
    cost = request.cost_model(devices)
    return least_memory_bytes(
        request.graph,
        cost.mesh,
        cost,
        request.batch_placeholders,
        request.reads,
        request.space,
    )


def _fewest_devices(request: Request, counts: range) -> int | None:
    for devices in counts:
        try:
            least = _least_bytes(request, devices)
        except LayoutError:  # the cluster cannot give a job this number of devices
            continue
        if least <= request.usable_bytes(devices) and _fits(request, devices):
            return devices
    return None


def _fits(request: Request, devices: int) -> bool:
    """Whether some strategy does: what edges take is in no bound, so this one searches."""
    _, frontier = _solved(request, devices)
    return int(frontier.memory[0]) <= request.usable_bytes(devices)


def _too_little(request: Request, least: int) -> str:
    fewest = _fewest_devices(request, range(request.devices + 1, _MOST_DEVICES + 1))
    remedy = (
        f"Use {fewest} devices, the fewest that would fit, or raise the limit"
        if fewest is not None
        else f"No number of devices up to {_MOST_DEVICES} would fit; raise the limit"
    )
    usable = request.usable_bytes(request.devices)
    factor = request.cluster_at(request.devices).safety_factor
    frugal = replace(request, space=Space(reuse=True, recompute=True))
    if request.space == PLAIN and _least_bytes(frugal, request.devices) <= usable:
        remedy = f"Try find_strategy(save_memory=True), which keeps less. {remedy}"
    return (
        f"a strategy takes at most the memory limit of a device, {_mib(usable)} after division by "
        f"the safety factor {factor}. Got a least memory of {_mib(least)} on {request.devices} "
        f"devices. {remedy} to {_limit_for(least, factor):,} bytes."
    )


def _limit_for(usable: int, factor: float) -> int:
    """The least limit that leaves so many bytes after division by the safety factor."""
    limit = math.ceil(usable * factor)
    while int(limit / factor) < usable:  # rounding
        limit += 1
    return limit


def _mib(count: int) -> str:
    return f"{count:,} bytes ({count / 2**20:.1f} MiB)"


def _operator_plans(problem: GraphProblem, strategy: Sequence[int]) -> tuple[OperatorPlan, ...]:
    number_of = {
        name: number
        for group, number in zip(problem.choices, problem.simplest(strategy), strict=True)
        for name in group.members
    }
    chosen = problem.configurations(strategy)
    plans = []
    for operator in problem.graph:
        if operator.name not in chosen:
            continue
        number = number_of[operator.name]
        configuration = chosen[operator.name]
        mesh, inputs, output = _maps(
            problem.derivations[operator.name], configuration, problem.mesh
        )
        plans.append(
            OperatorPlan(
                name=operator.name,
                type=operator.type,
                splits=configuration.splits,
                mesh=mesh,
                inputs=inputs,
                output=output,
                time_nanoseconds=int(problem.time[operator.name][number]),
                memory_bytes=int(problem.memory[operator.name][number]),
                kept=configuration.kept,
            )
        )
    return tuple(plans)


def _maps(
    derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> tuple[str, tuple[str, ...], str]:
    """A configuration as the paper writes it: one device mesh, and a map for each tensor."""
    sizes, of_index = Layout(configuration.splits).mesh_and_map(mesh)

    def tensor_map(dims: Sequence[int | None]) -> str:
        return "[" + ",".join(str(-1 if n is None else of_index[n]) for n in dims) + "]"

    return (
        "[" + ",".join(map(str, sizes)) + "]",
        tuple(tensor_map(dims) for dims in derivation.inputs),
        tensor_map(derivation.outputs[0]) if derivation.outputs else "",
    )


def _notes(problem: GraphProblem, frontier: Frontier, request: Request) -> tuple[str, ...]:
    notes = [*_limits(problem, request)]
    if problem.mesh.size > 1 and not _can_split(problem):
        notes.append(
            "no operator of this graph can be split: every device runs all of it (replicated)"
        )
    without = sorted({operator.type for operator in problem.graph if _is_undescribed(operator)})
    if problem.mesh.size > 1 and without:
        notes.append(
            f"operators of type {', '.join(without)} have no description: every device runs all of "
            "them (replicated)"
        )
    heuristic = frontier.eliminations.get("heuristic", 0)
    if heuristic:
        notes.append(
            f"the frontier is not exact: {heuristic} operators were decided by a heuristic"
        )
    elif not frontier.exact and frontier.within != request.epsilon:
        share = "" if frontier.within is None else f" by more than {100 * frontier.within:.2g} %"
        reason = "it was interrupted" if was_interrupted() else "too much was left to search"
        notes.append(
            f"the frontier is not exact, {reason}"
            + (f": no strategy betters all of its points{share}" if share else "")
        )
    elif not frontier.exact:
        notes.append(
            f"epsilon: no strategy betters all points of the frontier by more than "
            f"{100 * request.epsilon:.2g} %"
        )
    return tuple(notes)


def _limits(problem: GraphProblem, request: Request) -> tuple[str, ...]:
    """Whether mesh axes were taken together, and which."""
    whole = request.cluster_at(problem.mesh.size).mesh(problem.mesh.size)
    if len(problem.mesh.axes) == len(whole.axes):
        return ()
    return (
        f"{problem.mesh.size} devices were searched on a mesh of {len(problem.mesh.axes)} axes, "
        f"{problem.mesh} for {whole}: strategies that split one of these axes in parts were not "
        "looked at",
    )


def _extrapolations(cost: ClusterCostModel) -> tuple[str, ...]:
    """What was priced beyond the largest size measured, while the plan's steps were."""
    if not cost.extrapolated:
        return ()
    largest = ", ".join(
        f"{kind} ({size / 2**20:g} MiB)" for kind, size in sorted(cost.extrapolated.items())
    )
    return (
        f"times of {largest} are extrapolated beyond the largest size measured; `tensoropt profile "
        "--largest` measures larger ones",
    )


def _can_split(problem: GraphProblem) -> bool:
    """Whether the devices could share the work of some operator that computes."""
    return any(
        any(option[name].splits)
        for group in problem.choices
        for name in group.members
        if computes(problem.graph[name])
        for option in group.options
    )


def computes(operator: Operator) -> bool:
    """Whether an operator makes something, and does not only hold, read or name it."""
    return not (operator.is_variable or operator.is_placeholder or operator.type in NAMES_ONLY)


def makes_text(operator: Operator) -> bool:
    """Whether all that an operator makes is text: a summary, a file's name, a label."""
    dtypes = {spec.dtype for spec in operator.outputs}
    return dtypes == {"string"}


def _is_undescribed(operator: Operator) -> bool:
    return bool(
        computes(operator)
        and operator.outputs
        and not makes_text(operator)
        and not operator.is_constant
        and operator.type not in described()
    )
