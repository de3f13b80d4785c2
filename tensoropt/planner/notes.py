"""The notes of a plan: limits of its search, operators without splits or prices, and its gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.batch_norm import BatchNorm, takes_statistics
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.operator_plan import NAMES_ONLY, OperatorPlan
from tensoropt.planner.operator_kinds import calls_functions, computes, is_undescribed
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.pareto.frontier import Frontier

__all__ = [
    "batch_norm_notes",
    "extrapolations",
    "notes_of",
    "staged_batch_norm_notes",
    "unsplit_notes",
]

_NEARLY_NOTHING = 0.05
"""If split operators take at most this share of the computing time, a note says why."""

_FEW = 64
"""The most integers of a tensor that counts as a shape; a larger tensor may be data."""


def notes_of(problem: GraphProblem, frontier: Frontier, request: Request) -> tuple[str, ...]:
    """Return the notes on a problem and its frontier."""
    notes = [*_limits(problem, request)]
    if problem.mesh.size > 1 and not _can_split(problem):
        notes.append(
            "no operator of this graph can be split: every device runs all of it (replicated)"
        )
    undescribed = sorted(
        {
            operator.type
            for operator in problem.graph
            if is_undescribed(operator)
            and not calls_functions(operator)
            and not _makes_few_integers(operator)
        }
    )
    if problem.mesh.size > 1 and undescribed:
        notes.append(
            f"operators of type {', '.join(undescribed)} have no description: every device runs "
            "all of them (replicated)"
        )
    notes += _unknown_costs(problem)
    if not frontier.exact:
        notes.append(f"approximate frontier, {_gap(problem, frontier, request)}")
    return tuple(notes)


def unsplit_notes(
    problem: GraphProblem, request: Request, operators: Sequence[OperatorPlan]
) -> tuple[str, ...]:
    """Return a note that says why a plan splits almost nothing; none if it splits enough."""
    computing = [operator for operator in operators if operator.type not in NAMES_ONLY]
    time = sum(operator.time_nanoseconds for operator in computing)
    split_time = sum(operator.time_nanoseconds for operator in computing if operator.is_split)
    if problem.mesh.size == 1 or split_time > _NEARLY_NOTHING * time or not computing:
        return ()
    fed = [request.shapes[name] for name in sorted(request.batch_placeholders)]
    sizes = {shape[0] // request.microbatches for shape in fed if shape}
    devices = devices_of(problem.mesh.size)
    too_small = sorted(size for size in sizes if size < problem.mesh.size)
    part = "batch" if request.microbatches == 1 else "microbatch"
    if not sizes:
        reason = "nothing that the step is fed has the batch as its first dimension"
    elif too_small:
        reason = (
            f"a {part} of {too_small[0]} cannot be split over {devices}; take a batch of at least "
            f"{problem.mesh.size * request.microbatches}"
        )
    elif _can_split(problem):
        reason = "more splits are predicted to be slower, or to take more memory"
    else:
        return ()  # `notes_of` says that no operator can be split
    count = sum(operator.is_split for operator in computing)
    return (
        f"{count} of {len(computing)} operators that compute are split, the others run whole on "
        f"every device: {reason}",
    )


def _makes_few_integers(operator: Operator) -> bool:
    """Whether an operator makes a shape or a few other integers, which cost nothing to repeat."""
    return all(
        spec.dtype.startswith(("int", "uint"))
        and all(extent >= 0 for extent in spec.shape)
        and spec.elements <= _FEW
        for spec in operator.outputs
    )


def _gap(problem: GraphProblem, frontier: Frontier, request: Request) -> str:
    """Return the proven gap of an approximate frontier, why it is not smaller, and a remedy."""
    epsilon = request.epsilon
    heuristic = frontier.eliminations.get("heuristic", 0)
    if heuristic:
        return f"no proven gap: {heuristic} operators were decided by a heuristic"
    gap = "no proven gap"
    if frontier.within is not None:
        gap = f"proven gap {100 * frontier.within:.2g} %"
        if frontier.within <= epsilon:
            return f"{gap} (epsilon={epsilon:g})"
    if frontier.ended_by == "interruption":
        return f"{gap}: the search was interrupted"
    if frontier.ended_by == "time":
        return f"{gap}; search_seconds=... allows more"
    # The search has reached its default gap. Searches over several meshes cannot go below it.
    is_one_mesh = len(request.meshes(problem.mesh.size)) == 1
    if epsilon == 0 and is_one_mesh and frontier.is_within(DEFAULT_LIMITS.approximate_gap):
        return f"{gap}; ask for a smaller one with epsilon=..."
    return f"{gap}: the rest is too large to search"


def _limits(problem: GraphProblem, request: Request) -> tuple[str, ...]:
    """Return a note on the searched mesh if it has fewer axes than the cluster's."""
    whole = request.cluster_at(problem.mesh.size).mesh(problem.mesh.size)
    if len(problem.mesh.axes) == len(whole.axes):
        return ()
    return (
        f"{problem.mesh.size} devices were searched on a mesh of {len(problem.mesh.axes)} axes, "
        f"{problem.mesh} for {whole}: strategies that split one of these axes in parts were not "
        "looked at",
    )


def _unknown_costs(problem: GraphProblem) -> Iterator[str]:
    """Yield a note on loops, conditionals and calls, whose functions have no price."""
    counts = Counter(operator.type for operator in problem.graph if calls_functions(operator))
    if counts:
        types = ", ".join(f"{count} {type_}" for type_, count in sorted(counts.items()))
        yield (
            f"the cost of {types} is unknown: no prediction includes the work of their functions, "
            "and every device runs all of it; a step takes that much longer than predicted"
        )


def extrapolations(cost: ClusterCostModel) -> tuple[str, ...]:
    """Return a note on collectives that are larger than the largest measured one."""
    if not cost.extrapolated:
        return ()
    largest = ", ".join(
        f"{kind} ({size / 2**20:g} MiB)" for kind, size in sorted(cost.extrapolated.items())
    )
    return (
        f"times of {largest} are extrapolated beyond the largest size measured; `tensoropt profile "
        "--largest` measures larger ones",
    )


def batch_norm_notes(
    strategy: Strategy, batch_norm: BatchNorm, microbatches: int = 1
) -> tuple[str, ...]:
    """Return a note on batch normalisations that take local statistics, and of which share."""
    if batch_norm == "global":
        return ()
    parts = [
        microbatches
        * strategy.mesh.pieces([axis for axes in _by_partial(strategy, operator) for axis in axes])
        for operator in strategy.graph
        if takes_statistics(operator)
    ]
    if not parts:
        return (
            "batch_norm='local' changes nothing: this graph has no FusedBatchNorm in training "
            "(statistics that a script takes with tf.nn.moments are always the global batch's)",
        )
    split = sorted({part for part in parts if part > 1})
    if not split:
        return ("batch_norm='local' changes nothing: no batch normalisation is split",)
    shares = " or ".join(f"1/{part}" for part in split)
    shard = "a device's shard" if microbatches == 1 else "a device's shard of a microbatch"
    return (
        f"batch_norm='local': {sum(part > 1 for part in parts)} of {len(parts)} batch "
        f"normalisations take the statistics of {shard}, {shares} of the batch's values; "
        "losses depend on the number of devices and on the plan",
    )


def staged_batch_norm_notes(
    graph: Graph, batch_norm: BatchNorm, microbatches: int
) -> tuple[str, ...]:
    """Return the note of `batch_norm_notes` for a plan with stages."""
    if batch_norm == "global" or not any(map(takes_statistics, graph)):
        return ()
    return (
        "batch_norm='local': batch normalisations take the statistics of a device's shard of a "
        f"microbatch, at most 1/{microbatches} of the batch's values; losses depend on the plan",
    )


def _by_partial(strategy: Strategy, operator: Operator) -> Iterator[tuple[int, ...]]:
    """Yield the mesh axes that split the values over which an operator takes statistics."""
    indices = strategy.derivations[operator.name].indices
    splits = strategy.configurations[operator.name].splits
    for index, axes in zip(indices, splits, strict=True):
        if index.partial_outputs:
            yield axes


def _can_split(problem: GraphProblem) -> bool:
    """Whether an operator that computes has a configuration that splits it."""
    return any(
        any(option[name].splits)
        for group in problem.choices
        for name in group.members
        if computes(problem.graph[name])
        for option in group.options
    )
