"""From joint frontiers to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.plan import Plan
from tensoropt.planner.choose import Choice, choice_of, choose, infeasible
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.joint_search import Searched, search_jointly, union

__all__ = ["choose_jointly"]


def choose_jointly(request: Request, option: str) -> Plan:
    """The fastest point that fits of the script's graph and of rewritten ones.

    A rewritten graph is planned where its step is predicted to take at least 3 % less time, which
    is about how close predictions tell, or where the script's graph does not fit. The frontier of
    the plan is the union. The number of devices for "mini_parallelism" is that of the script's
    graph.

    Raises:
        InfeasibleError: as `tensoropt.planner.choose.choose`, where no graph fits.
    """
    if option == "mini_parallelism":
        devices = choose(replace(request, rewrite=False), option).request.devices
        request = replace(request, devices=devices)
    searched = search_jointly(replace(request, rewrite=False), request.devices)
    tried: list[Choice] = []
    for each in _fastest_first(searched):
        tried.append(choice_of(each.request, each.problem, each.frontier, option))
        if not tried[-1].excess_bytes:
            return _with_union(tried[-1].plan(), searched)
    least = min(int(each.frontier.memory[0]) for each in searched)
    raise infeasible(request, least, tried[0] if tried else None)


def _fastest_first(searched: Sequence[Searched]) -> list[Searched]:
    """Those that fit by the memory that the search adds up; the script's own graph before those
    that are about as fast."""
    times = [(_step_nanoseconds(each), number) for number, each in enumerate(searched)]
    fitting = [(time, number) for time, number in times if time is not None]
    if fitting and fitting[0][1] == 0:
        fitting[0] = (fitting[0][0] / (1 + SAME_TIME), 0)
    return [searched[number] for _, number in sorted(fitting)]


def _step_nanoseconds(searched: Searched) -> float | None:
    """The predicted step of the fastest point that fits; None where none does."""
    request, problem, frontier = searched.request, searched.problem, searched.frontier
    usable = request.usable_bytes(problem.mesh.size)
    if frontier.memory[0] > usable:
        return None
    strategy = frontier.strategies[frontier.fastest(usable)].tolist()
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    return step_time(request.strategy(problem, strategy), cost, reads=request.reads).total


def _with_union(plan: Plan, searched: Sequence[Searched]) -> Plan:
    """A plan with the frontier of all graphs."""
    points = union(searched)
    used = [
        tuple(dict.fromkeys(rewrite.substitution for rewrite in each.request.rewrites))
        for each in searched
    ]
    gaps = [each.frontier.within for each in searched]
    within = None if None in gaps else max(gap for gap in gaps if gap is not None)
    frontier = tuple((point.memory, point.time) for point in points)
    kept = {memory for memory, _ in set(plan.frontier).intersection(frontier)}
    return replace(
        plan,
        frontier=frontier,
        frontier_peaks=tuple(each for each in plan.frontier_peaks if each[0] in kept),
        frontier_rewrites=tuple(used[point.graph] for point in points),
        exact=all(each.frontier.exact for each in searched),
        within=within,
        notes=(*plan.notes, _note(len(searched) - 1)),
    )


def _note(graphs: int) -> str:
    if not graphs:
        return "rewrite=True: no rewritten graph was as fast as the script's, or nearly"
    return f"rewrite=True: the frontier is that of the script's graph and {graphs} rewritten"
