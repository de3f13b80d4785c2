"""A frontier within a stated share, from the strategies of least weighted cost.

Where a problem has so many trade-offs that its exact frontier has tens of thousands of points, few
of them say nearly all: those on its lower hull, each the strategy of least cost for some weights of
time and memory (supported points), and strategies on the way from one of them to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.reduced_cost_fixing import possible
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.hull import gap, hull_of, is_below
from tensoropt.search.scalar.bucket_elimination import Term, least_sum
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.close_gaps import closed
from tensoropt.search.supported.first_look import FirstLook
from tensoropt.search.supported.gaps import and_between, widest_gaps, with_found
from tensoropt.search.supported.near_hull import strategies_near_hull
from tensoropt.search.watch import best_known, keep, solving, tell, was_interrupted

__all__ = ["near_frontier"]

Weights = tuple[float, float]

# Weights and sweeps of every round.
_ROUNDS = ((8, 1), (8, 2), (8, 4))
# Looks at cells in a round; weights are fewer, then sweeps, where it would be more.
_MOST_WORK = 2.5e10
# Configurations of a small problem: altogether, or for each node.
_MOST_PROMISING, _PER_NODE = 2_500, 5
_MOST_CELLS = 1 << 22
# Supported points.
_MOST_POINTS = 160
# Weighted costs are whole numbers below this.
_LARGEST = 2**60
# Additions of an exact elimination.
_MOST_EXACT = 3e10
# With exact eliminations it goes on until the frontier is as near as this, whatever epsilon.
_CLOSE = 0.001
# Sweeps end where they add less to a bound.
_GROWTH = 2e-5


def near_frontier(
    problem: Problem,
    known: Frontier | None = None,
    epsilon: float = 0.001,
    look: FirstLook | None = None,
) -> Frontier:
    """The frontier of a problem, within a share that it states.

    In rounds: bounds for several weights say which configurations are promising. Supported points
    are found for these weights, and by dichotomy (Aneja and Nair, "Bicriteria transportation
    problem", 1979): between two of them the weights are next for which both cost the same, until
    they are nearer than ``epsilon``, or nothing is below the line through them. In a small problem
    each takes an elimination with one number for every choice; in a large one neighbourhoods of
    what is known for the nearest weights are searched (`Neighbourhoods`). Between neighbours the
    configurations of one are exchanged for the other's node by node. Bounds then prove by how much
    a strategy can better all that is known at most: ``within``. The next round's weights are those
    where that is most. The rounds end when it is at most ``epsilon``, or the last one has been. A
    series-parallel graph has one round: after it, the least of all strategies is found for the
    weights where bounds say least (`tensoropt.search.supported.close_gaps`), and gaps are filled.

    Args:
        problem: with costs that are not negative.
        known: strategies to begin with.
        epsilon: more than 0.
        look: at the problem, if there was one.
    """
    bounds: Sequence[Bounds] = () if look is None else (look.bounds,)
    table = WeightedBounds(problem) if look is None else look.table
    elimination = weighted_elimination(problem, _MOST_EXACT)
    with solving():
        if known is not None:
            keep(known)
        try:
            rounds = _ROUNDS if elimination is None else _ROUNDS[:1]
            for number, size in enumerate(rounds):
                tell("bounds", number, len(rounds))
                known, bounds = _round(problem, table, known, bounds, size, epsilon)
                keep(known)
                if was_interrupted() or (known.within is not None and known.within <= epsilon):
                    return known
            if elimination is not None and known is not None:
                share = min(epsilon, _CLOSE)
                known = closed(problem, table, known, bounds, share)
        except KeyboardInterrupt:
            known = best_known()
            if known is None:
                raise
    assert known is not None
    return known


def _round(
    problem: Problem,
    table: WeightedBounds,
    known: Frontier | None,
    earlier: Sequence[Bounds],
    size: tuple[int, int],
    epsilon: float,
) -> tuple[Frontier, Sequence[Bounds]]:
    """What is known then, and all bounds until then, which prove its ``within``."""
    cells = max(1, sum(edge.time.size for edge in problem.edges))
    sweeps = int(max(1, min(size[1], _MOST_WORK / (8 * cells))))
    count = int(max(4, min(size[0], _MOST_WORK / (2 * sweeps * cells))))
    if known is None or len(earlier) < 2:  # of a first look, or none
        weights = _weights(problem, known, count)
    else:
        weights = widest_gaps(known, earlier, count, epsilon, halved=True)
        if not weights:
            return known, earlier
    bounds = warm_bounds(table, weights, sweeps, earlier, _GROWTH)
    found = _supported(problem, table, known, bounds, epsilon)
    if found is None:
        begin = None if known is None else known.strategies[_corners(known, 2 * len(bounds))]
        found = strategies_near_hull(problem, table, begin, bounds, epsilon)
    bounds = [*earlier, *bounds]
    found = and_between(problem, known, found)
    return with_found(problem, known, found, bounds, table.start), bounds


def _supported(
    problem: Problem,
    table: WeightedBounds,
    known: Frontier | None,
    bounds: Sequence[Bounds],
    epsilon: float,
) -> Int32Array | None:
    """Supported strategies of a small problem's promising configurations; None of a large one."""
    if sum(node.configurations for node in problem.nodes) > _MOST_PROMISING:
        return None
    small = _Small.of(problem, _promising(problem, known, bounds, table.start))
    return small.supported(epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class _Small:
    """A problem with few configurations, of which weighted sums are minimised.

    Attributes:
        problem: with those configurations, numbered anew.
        kept: their numbers in the whole problem, of every node.
        terms: nodes, and time and memory over their configurations.
    """

    problem: Problem
    kept: Sequence[Int64Array]
    terms: Sequence[tuple[tuple[int, ...], Int64Array, Int64Array]]

    @classmethod
    def of(cls, problem: Problem, kept: Sequence[Int64Array]) -> _Small:
        small = restrict(problem, kept)
        terms: dict[tuple[int, ...], tuple[Int64Array, Int64Array]] = {
            (number,): (node.time, node.memory) for number, node in enumerate(small.nodes)
        }
        for edge in small.edges:
            cell = edge.source_slots[:, None], edge.target_slots[None, :]
            scope = edge.source, edge.target
            time, memory = edge.time[cell], edge.memory[cell]
            if scope in terms:
                time, memory = time + terms[scope][0], memory + terms[scope][1]
            terms[scope] = time, memory
        return cls(small, kept, [(scope, *both) for scope, both in terms.items()])

    def supported(self, epsilon: float) -> Int32Array | None:
        """Supported strategies by ascending memory, numbered as in the whole problem.

        None where not even eliminations can hold their tables.
        """
        ends = [self._least(*weights) for weights in ((1, 0), (0, 1))]
        if any(end is None for end in ends):
            return self._by_elimination()
        last, first = (end for end in ends if end is not None)
        points = {self.problem.cost(end): end for end in (first, last)}
        waiting = [(self.problem.cost(first), self.problem.cost(last))]
        while waiting and len(points) < _MOST_POINTS:
            # The widest gap first, so that what is left out when points are many is even.
            waiting.sort(key=gap)
            one, other = waiting.pop()
            if gap((one, other)) <= epsilon or was_interrupted():
                continue
            tell("supported strategies", len(points), _MOST_POINTS)
            middle = self._least(other[0] - one[0], one[1] - other[1])
            if middle is None:
                continue
            cost = self.problem.cost(middle)
            if cost in points or not is_below(cost, one, other):
                continue
            points[cost] = middle
            waiting += [(one, cost), (cost, other)]
        return self._whole([points[cost] for cost in sorted(points)])

    def _least(self, per_nanosecond: int, per_byte: int) -> list[int] | None:
        """The strategy of least weighted cost; None where its tables would be too large."""
        if per_nanosecond <= 0 and per_byte <= 0:
            return None
        largest = sum(
            per_nanosecond * int(time.max()) + per_byte * int(memory.max())
            for _, time, memory in self.terms
        )
        # Weights that are rounded choose another strategy, or one of nearly the same cost.
        shift = max(0, largest.bit_length() - _LARGEST.bit_length() + 1)
        weights = per_nanosecond / 2**shift, per_byte / 2**shift
        terms: list[Term] = [
            (scope, np.rint(weights[0] * time + weights[1] * memory).astype(np.int64))
            for scope, time, memory in self.terms
        ]
        counts = [node.configurations for node in self.problem.nodes]
        return least_sum(counts, terms, _MOST_CELLS)

    def _by_elimination(self) -> Int32Array | None:
        outcome = ft_ldp(self.problem, None, 0.0, DEFAULT_LIMITS)
        return None if outcome.is_too_large else self._whole(outcome.found.strategies)

    def _whole(self, strategies: npt.ArrayLike) -> Int32Array:
        numbers = np.asarray(strategies)
        columns = [own[numbers[:, node]] for node, own in enumerate(self.kept)]
        whole: Int32Array = np.stack(columns, axis=1).astype(np.int32)
        return whole


def _weights(problem: Problem, known: Frontier | None, count: int) -> list[Weights]:
    """Of a nanosecond and of a byte: time alone, memory alone, and between."""
    if known is None or len(known) < 3:
        slopes = problem.byte_worth * np.geomspace(1e-3, 1e3, count - 2)
    else:
        corner = _corners(known, count - 1)
        slopes = -np.diff(known.time[corner]) / np.diff(known.memory[corner])
    return [(1.0, 0.0), *((1.0, float(slope)) for slope in slopes), (0.0, 1.0)]


def _corners(frontier: Frontier, count: int) -> Int64Array:
    """Points at the corners of a frontier's lower hull, its ends among them."""
    hull = hull_of(frontier.memory, frontier.time)
    places = np.linspace(0, len(hull) - 1, min(count, len(hull))).round().astype(np.int64)
    return np.array(hull, dtype=np.int64)[places]


def _promising(
    problem: Problem, known: Frontier | None, bounds: Sequence[Bounds], start: Int64Array
) -> list[Int64Array]:
    """Configurations of known strategies, each node's best for some weight, and of the others
    those that by their bounds cost least more than the least, as a share of it."""
    shares = np.array(
        [(each.of_configuration - each.least) / max(each.least, 1.0) for each in bounds]
    )
    worth = shares.min(axis=0)
    if known is not None:
        worth[~possible(bounds, known.memory, known.time)] = np.inf
        for node, numbers in enumerate(known.strategies[_corners(known, 2 * len(bounds))].T):
            worth[start[node] + numbers] = -1.0
    else:
        for each in shares:
            for first, last in pairwise(start.tolist()):
                worth[first + int(each[first:last].argmin())] = -1.0
    most = max(_MOST_PROMISING, _PER_NODE * len(problem.nodes), int((worth < 0).sum()))
    order = np.argsort(worth, kind="stable")[:most]
    marks = np.zeros(worth.size, dtype=np.bool_)
    marks[order[worth[order] < np.inf]] = True
    own = np.split(marks, start[1:-1])
    return [np.flatnonzero(each) for each in own]
