"""Supported points: strategies of least cost for some weights, found by dichotomy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.hull import Cost, gap, hull_of, slope
from tensoropt.search.pareto.region import Weights
from tensoropt.search.supported.joining import joined
from tensoropt.search.watch import tell

__all__ = ["dichotomy"]


def dichotomy(
    problem: Problem,
    known: Frontier,
    search: Callable[[Frontier, Sequence[Weights]], Int32Array],
    *,
    epsilon: float,
    at_once: int,
    most: int,
) -> Frontier:
    """Look between neighbours on the hull, the widest gaps first (Aneja and Nair, "Bicriteria
    transportation problem", 1979).

    Between two points the weights are next for which both cost the same. It ends when gaps that
    have not been looked into are at most ``epsilon``.

    Args:
        problem: whose strategies they are.
        known: strategies, among them the ends.
        search: finds a strategy of little cost for each of some weights, int32[weights, nodes],
            from those known by then.
        epsilon: how wide a gap may stay.
        at_once: pairs of weights at a time: on every machine the same, so that what is found is.
        most: pairs of weights altogether.

    Returns:
        What is known then.
    """
    tried: set[tuple[Cost, Cost]] = set()
    for number in range(0, most, at_once):
        hull = [known[corner][:2] for corner in hull_of(known.memory, known.time)]
        gaps = [ends for ends in pairwise(hull) if ends not in tried and gap(ends) > epsilon]
        if not gaps:
            break
        tell("supported strategies", number, most)
        widest = sorted(gaps, key=gap)[-at_once:]
        tried.update(widest)
        known = joined(problem, known, search(known, [(1.0, slope(*ends)) for ends in widest]))
    return known
