"""What a user should know about a plan besides its costs."""

from __future__ import annotations

from tensoropt.cost.model import ClusterCostModel
from tensoropt.plan.operator_kinds import computes, is_undescribed
from tensoropt.plan.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.watch import was_interrupted

__all__ = ["extrapolations", "notes_of"]


def notes_of(problem: GraphProblem, frontier: Frontier, request: Request) -> tuple[str, ...]:
    """What was not looked at, what cannot be split, and how near the frontier is."""
    notes = [*_limits(problem, request)]
    if problem.mesh.size > 1 and not _can_split(problem):
        notes.append(
            "no operator of this graph can be split: every device runs all of it (replicated)"
        )
    without = sorted({operator.type for operator in problem.graph if is_undescribed(operator)})
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
    elif not frontier.exact and (frontier.within is None or frontier.within > request.epsilon):
        share = "" if frontier.within is None else f" by more than {100 * frontier.within:.2g} %"
        reason = "it was interrupted" if was_interrupted() else "too much was left to search"
        notes.append(
            f"the frontier is not exact, {reason}"
            + (f": no strategy betters all of its points{share}" if share else "")
        )
    elif not frontier.exact:
        notes.append(
            f"epsilon: no strategy betters all points of the frontier by more than "
            f"{100 * (frontier.within or 0.0):.2g} %"
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


def extrapolations(cost: ClusterCostModel) -> tuple[str, ...]:
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
