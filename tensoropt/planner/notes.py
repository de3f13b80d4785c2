"""Notes of a plan: what was not searched, cannot be split or has no price; its frontier's gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.batch_norm import BatchNorm, takes_statistics
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.plan import NAMES_ONLY, OperatorPlan
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
"""Share of the computing time in operators that are split, below which the plan says why."""

# A tensor of more integers may be data.
_FEW = 64


def notes_of(problem: GraphProblem, frontier: Frontier, request: Request) -> tuple[str, ...]:
    """A plan's notes, see above."""
    notes = [*_limits(problem, request)]
    if problem.mesh.size > 1 and not _can_split(problem):
        notes.append(
            "no operator of this graph can be split: every device runs all of it (replicated)"
        )
    without = sorted(
        {
            operator.type
            for operator in problem.graph
            if is_undescribed(operator)
            and not calls_functions(operator)
            and not _makes_few_integers(operator)
        }
    )
    if problem.mesh.size > 1 and without:
        notes.append(
            f"operators of type {', '.join(without)} have no description: every device runs all of "
            "them (replicated)"
        )
    notes += _unknown_costs(problem)
    if not frontier.exact:
        notes.append(f"approximate frontier, {_gap(problem, frontier, request)}")
    return tuple(notes)


def unsplit_notes(
    problem: GraphProblem, request: Request, operators: Sequence[OperatorPlan]
) -> tuple[str, ...]:
    """Why a plan splits nothing, or nearly nothing; empty where it does split."""
    computing = [each for each in operators if each.type not in NAMES_ONLY]
    whole = sum(each.time_nanoseconds for each in computing)
    split = sum(each.time_nanoseconds for each in computing if each.is_split)
    if problem.mesh.size == 1 or split > _NEARLY_NOTHING * whole or not computing:
        return ()
    fed = [request.shapes[name] for name in sorted(request.batch_placeholders)]
    sizes = {shape[0] // request.microbatches for shape in fed if shape}
    odd = sorted(size for size in sizes if size % problem.mesh.size)
    examples = "examples" if request.microbatches == 1 else "examples of a microbatch"
    if not sizes:
        reason = "nothing that the step is fed has the batch as its first dimension"
    elif odd:
        reason = (
            f"{odd[0]} {examples} are not divisible by {devices_of(problem.mesh.size)}; take a "
            f"batch that is a multiple of {problem.mesh.size * request.microbatches}"
        )
    elif _can_split(problem):
        reason = "more splits are predicted to be slower, or to take more memory"
    else:
        return ()  # which a note of the problem says
    count = sum(each.is_split for each in computing)
    return (
        f"{count} of {len(computing)} operators that compute are split, the others run whole on "
        f"every device: {reason}",
    )


def _makes_few_integers(operator: Operator) -> bool:
    """Whether an operator makes a shape, or another few integers: no device loses by that."""
    return all(
        spec.dtype.startswith(("int", "uint"))
        and all(extent >= 0 for extent in spec.shape)
        and spec.elements <= _FEW
        for spec in operator.outputs
    )


def _gap(problem: GraphProblem, frontier: Frontier, request: Request) -> str:
    """What is proven of an approximate frontier, why no more is, and what to do about it."""
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
    # As near as is looked for unasked; from mesh to mesh no nearer can be asked for.
    is_one_mesh = len(request.meshes(problem.mesh.size)) == 1
    if epsilon == 0 and is_one_mesh and frontier.is_within(DEFAULT_LIMITS.approximate_gap):
        return f"{gap}; ask for a smaller one with epsilon=..."
    return f"{gap}: the rest is too large to search"


def _limits(problem: GraphProblem, request: Request) -> tuple[str, ...]:
    """The mesh that was searched, where mesh axes were taken together."""
    whole = request.cluster_at(problem.mesh.size).mesh(problem.mesh.size)
    if len(problem.mesh.axes) == len(whole.axes):
        return ()
    return (
        f"{problem.mesh.size} devices were searched on a mesh of {len(problem.mesh.axes)} axes, "
        f"{problem.mesh} for {whole}: strategies that split one of these axes in parts were not "
        "looked at",
    )


def _unknown_costs(problem: GraphProblem) -> Iterator[str]:
    """Loops, conditionals and calls, which run whole and whose functions are not priced."""
    found = Counter(operator.type for operator in problem.graph if calls_functions(operator))
    if found:
        types = ", ".join(f"{count} {type_}" for type_, count in sorted(found.items()))
        yield (
            f"the cost of {types} is unknown: what their functions compute is in no prediction, "
            "and every device runs all of it; a step takes that much longer than predicted"
        )


def extrapolations(cost: ClusterCostModel) -> tuple[str, ...]:
    """Collectives of the plan that are larger than the largest that was measured."""
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
    """Of local statistics: which batch normalisations of a strategy have them, of what share."""
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
    """The same of a plan with stages."""
    if batch_norm == "global" or not any(map(takes_statistics, graph)):
        return ()
    return (
        "batch_norm='local': batch normalisations take the statistics of a device's shard of a "
        f"microbatch, at most 1/{microbatches} of the batch's values; losses depend on the plan",
    )


def _by_partial(strategy: Strategy, operator: Operator) -> Iterator[tuple[int, ...]]:
    """The axes that split what an operator takes statistics of."""
    indices = strategy.derivations[operator.name].indices
    splits = strategy.configurations[operator.name].splits
    for index, axes in zip(indices, splits, strict=True):
        if index.partial_outputs:
            yield axes


def _can_split(problem: GraphProblem) -> bool:
    """Whether the devices could share the work of some operator that computes."""
    return any(
        any(option[name].splits)
        for group in problem.choices
        for name in group.members
        if computes(problem.graph[name])
        for option in group.options
    )
