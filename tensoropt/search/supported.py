"""A frontier within a stated share, from the strategies of least weighted cost.

Where a problem has so many trade-offs that its exact frontier has tens of thousands of points, few
of them say nearly all: those on its lower hull, each the strategy of least cost for some weights of
time and memory (supported points), and strategies on the way from one of them to the next.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tensoropt.search.bounds import Bounds, WeightedBounds
from tensoropt.search.frontier import Frontier
from tensoropt.search.frontier_tracking import frontier_tracking
from tensoropt.search.hull import between, gap, is_below
from tensoropt.search.kernels import reduce_rows
from tensoropt.search.problem import Problem
from tensoropt.search.pruning import possible, restricted
from tensoropt.search.strategies.least_sum import Term, least_sum
from tensoropt.search.watch import best_known, keep, solving, tell, was_interrupted

__all__ = ["near_frontier"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Weights = tuple[float, float]

# Weights and sweeps of every round.
_ROUNDS = ((8, 3), (12, 8), (24, 12))
# Looks at cells in a round; weights are fewer, then sweeps, where it would be more.
_MOST_WORK = 6e9
# Configurations of a small problem: altogether, or for each node.
_MOST_PROMISING, _PER_NODE = 2_500, 5
_MOST_CELLS = 1 << 22
# Supported points.
_MOST_POINTS = 160
# Weighted costs are whole numbers below this.
_LARGEST = 2**60
_BISECTIONS = 12
_FARTHEST = 1e6


def near_frontier(
    problem: Problem, known: Frontier | None = None, epsilon: float = 0.001
) -> Frontier:
    """The frontier of a problem, within a share that it states.

    In rounds: bounds for several weights say which configurations are promising; of the problem
    that has only those, supported points are found by dichotomy (Aneja and Nair, "Bicriteria
    transportation problem", 1979): between two of them the weights are next for which both cost
    the same, until they are nearer than ``epsilon``, or nothing is below the line through them.
    Each takes an elimination with one number for every choice. Between neighbours the
    configurations of one are exchanged for the other's node by node. Bounds then prove by how much
    a strategy can better all that is known at most: ``within``. The rounds end when that is at
    most ``epsilon``, or the last one has been.

    Args:
        problem: with costs that are not negative.
        known: strategies to begin with.
        epsilon: more than 0.
    """
    with solving():
        if known is not None:
            keep(partial(_unchanged, known))
        try:
            for number, (weights, sweeps) in enumerate(_ROUNDS):
                tell("bounds", number, len(_ROUNDS))
                known = _round(problem, known, weights, sweeps, epsilon)
                keep(partial(_unchanged, known))
                if was_interrupted() or (known.within is not None and known.within <= epsilon):
                    break
        except KeyboardInterrupt:
            known = best_known()
            if known is None:
                raise
    assert known is not None
    return known


def _unchanged(known: Frontier) -> Frontier:
    return known


def _round(
    problem: Problem, known: Frontier | None, count: int, sweeps: int, epsilon: float
) -> Frontier:
    table = WeightedBounds(problem)
    cells = max(1, sum(edge.time.size for edge in problem.edges))
    sweeps = int(max(2, min(sweeps, _MOST_WORK / (8 * cells))))
    count = int(max(4, min(count, _MOST_WORK / (2 * sweeps * cells))))
    bounds = _all_bounds(table, _weights(problem, known, count), sweeps)
    small = _Small.of(problem, _promising(problem, known, bounds, table.start))
    found = small.supported(epsilon)
    strategies = np.concatenate([found, between(found)])
    if known is not None:
        strategies = np.concatenate([known.strategies, strategies])
    memory, time = problem.costs(strategies)
    order = reduce_rows(np.zeros(memory.size, dtype=np.int64), memory, time)
    result = Frontier(memory[order], time[order], strategies[order], exact=False)
    within = _within(bounds, result, table.start)
    if known is not None and known.within is not None:
        within = known.within if within is None else min(within, known.within)
    return replace(result, within=within)


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
        small = restricted(problem, kept)
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

    def supported(self, epsilon: float) -> Int32Array:
        """Supported strategies by ascending memory, numbered as in the whole problem."""
        ends = [self._least(*weights) for weights in ((1, 0), (0, 1))]
        if any(end is None for end in ends):
            return self._by_frontier_tracking(epsilon)
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

    def _by_frontier_tracking(self, epsilon: float) -> Int32Array:
        return self._whole(frontier_tracking(self.problem, epsilon=epsilon).strategies)

    def _whole(self, strategies: npt.ArrayLike) -> Int32Array:
        numbers = np.asarray(strategies)
        columns = [own[numbers[:, node]] for node, own in enumerate(self.kept)]
        whole: Int32Array = np.stack(columns, axis=1).astype(np.int32)
        return whole


def _all_bounds(table: WeightedBounds, weights: Sequence[Weights], sweeps: int) -> list[Bounds]:
    """Of all weights, on as many threads as there are cores; compiled code runs free."""
    with ThreadPoolExecutor(max_workers=min(len(weights), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda pair: table.bounds(pair[0], pair[1], sweeps), weights))


def _weights(problem: Problem, known: Frontier | None, count: int) -> list[Weights]:
    """Of a nanosecond and of a byte: time alone, memory alone, and between."""
    if known is None or len(known) < 3:
        memory = sum(int(node.memory.min()) for node in problem.nodes)
        time = sum(int(node.time.min()) for node in problem.nodes)
        slopes = max(time, 1) / max(memory, 1) * np.geomspace(1e-3, 1e3, count - 2)
    else:
        corner = _corners(known, count - 1)
        slopes = -np.diff(known.time[corner]) / np.diff(known.memory[corner])
    return [(1.0, 0.0), *((1.0, float(slope)) for slope in slopes), (0.0, 1.0)]


def _corners(frontier: Frontier, count: int) -> Int64Array:
    """Points at the corners of a frontier's lower hull, its ends among them."""
    x, y = frontier.memory.tolist(), frontier.time.tolist()
    hull: list[int] = []
    for point in range(len(x)):
        while len(hull) > 1 and (y[hull[-1]] - y[hull[-2]]) * (x[point] - x[hull[-2]]) >= (
            y[point] - y[hull[-2]]
        ) * (x[hull[-1]] - x[hull[-2]]):
            hull.pop()
        hull.append(point)
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


def _within(bounds: Sequence[Bounds], known: Frontier, start: Int64Array) -> float | None:
    """By how much a strategy can be better than all known ones at most: by bisection."""
    low, high = 0.0, 0.01
    while not _proven(bounds, known, start, high):
        low, high = high, 2 * high
        if high > _FARTHEST:
            return None
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _proven(bounds, known, start, middle):
            high = middle
        else:
            low = middle
    return high


def _proven(bounds: Sequence[Bounds], known: Frontier, start: Int64Array, epsilon: float) -> bool:
    alive = possible(bounds, known.memory, known.time, epsilon)
    return not all(own.any() for own in np.split(alive, start[1:-1]))
