"""The frontier within a gap where few large trade-offs leave wide gaps in its hull.

Bounds of weighted costs say nothing of what lies above the lower hull of a frontier. Where one
operator's choice moves much memory and time at once, the next supported point is far away, and
between the two there is room for strategies that no weights find. So the search goes on in two
phases (Ulungu and Teghem, "The two phases method", 1995). First it finds the supported points, and
all mixtures of neighbours among them. Then it divides: where a gap is widest it asks which node's
choice bounds allow it the least, and splits the problem there, into those configurations that are
bounded from the side of memory and those from the side of time. In each part the hull is another,
and closer to the part's frontier (branch and bound for two objectives; Przybylski and Gandibleux,
"Multi-objective branch and bound", 2017).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.branching.corner_gaps import Corners, by_lines, by_nodes, limits_of
from tensoropt.search.branching.known import Known
from tensoropt.search.branching.part import Hull, Part
from tensoropt.search.exact.ft_ldp import or_too_large, solve_graph
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["branch_and_bound"]

# Sweeps of bounds for new weights, which begin from those of near weights.
_SWEEPS = 4
# Weights in a pass over all tables.
_AT_ONCE = 4
# Weights of a part that are bounded anew when it is divided or has become smaller.
_AGAIN = 4
# Weights this far from the mean worth of a byte: least time, or memory, and little of the other.
_FAR = 1e6
# Two slopes are one if they differ by a smaller share.
_SAME = 1e-6
# Of a mixture only what betters known points by this share of epsilon is worth finding.
_MIXED = 0.25
# A gap beyond it is no statement.
_FARTHEST = 1e6
# A part is made anew once so few of its configurations are left.
_FEWER = 0.7


@interruptible
def branch_and_bound(
    problem: Problem,
    epsilon: float,
    limits: SearchLimits,
    table: WeightedBounds | None = None,
    incumbent: Frontier | None = None,
) -> Outcome:
    """The frontier of a problem within a gap that it states: ``epsilon``, or more where that would
    take more additions than limits allow.

    Args:
        problem: with costs that are not negative.
        epsilon: more than 0.
        limits: of additions and of what is searched exactly.
        table: the problem in flat arrays, where there are some already.
        incumbent: strategies to begin with.
    """
    return Outcome(_Search(problem, epsilon, limits, incumbent).run(Part.whole(problem, table)))


class _Search:
    """One search: what is known, the open parts, and how much work has been done."""

    def __init__(
        self, problem: Problem, epsilon: float, limits: SearchLimits, incumbent: Frontier | None
    ) -> None:
        self.problem, self.epsilon = problem, epsilon
        self.limits = replace(limits, table_points=limits.leaf_points)
        self.known = Known(problem)
        self._given = np.inf  # the gap that was proven before
        if incumbent is not None:
            self.known.add(incumbent.strategies)
            self._given = np.inf if incumbent.within is None else incumbent.within
        self.spent = 0.0
        self.closed = 0.0  # the widest gap of all parts that are not searched further
        self._heap: list[tuple[float, int, Part]] = []
        self._pushed = 0
        self._mixed: set[tuple[bytes, bytes]] = set()

    def run(self, whole: Part) -> Frontier:
        """Search until all gaps are narrow enough, or work is done."""
        worth = self.problem.byte_worth
        ends = [(1.0, 0.0), (1.0, worth / _FAR), (1.0, worth), (1.0, worth * _FAR), (0.0, 1.0)]
        self._bound(whole, ends)
        keep(lambda: self._frontier(self._gap_of(whole)))
        self._look_at(whole)
        while self._heap and self.spent < self.limits.branching_additions:
            within = self.within
            tell(f"gap {within:.2%}", int(self.spent), int(self.limits.branching_additions))
            keep(partial(self._frontier, within))  # holds until the part has been gone on with
            negative, _, part = heapq.heappop(self._heap)
            self._go_on(part, -negative)
        return self._frontier(self.within)

    def _frontier(self, within: float) -> Frontier:
        within = min(within, self._given)
        return self.known.frontier(within if within <= _FARTHEST else None)

    @property
    def within(self) -> float:
        """The proven gap: the widest of all parts."""
        return max([self.closed, *(-negative for negative, *_ in self._heap)])

    def _bound(self, part: Part, weights: Sequence[Weights]) -> None:
        self.spent += len(weights) * (2 * _SWEEPS * part.cells + self.limits.line_additions)
        self.known.add(part.bound(weights, _SWEEPS))

    def _look_at(self, part: Part, most: float = np.inf) -> None:
        """Find a part's supported points near open corners, what is between them, and its gap,
        which is at most that of a part that it is of."""
        hull = self._supported(part)
        self._mix(part, hull)
        gap = min(self._gap_of(part), most)
        if gap > self.epsilon:
            self._push(part, gap)
        else:
            self.closed = max(self.closed, gap)

    def _gap_of(self, part: Part) -> float:
        """The gap that a part's bounds prove."""
        corners, share = self._open_corners(part)
        if share.size == 0:
            return 0.0
        share, _ = by_nodes(self._limits(part, corners), part.min_marginals(), part.start, share)
        return float(share.max())

    def _go_on(self, part: Part, most: float) -> None:
        """Leave out of a part, whose gap is at most what is given, what is not better than known
        strategies, and divide what is left."""
        corners, share = self._open_corners(part)
        if share.size == 0:
            return
        limits = self._limits(part, corners)
        share, nodes = by_nodes(limits, part.min_marginals(), part.start, share)
        worst = int(share.argmax())
        gap = min(float(share[worst]), most)
        if gap <= self.epsilon:
            self.closed = max(self.closed, gap)
            return
        if self._heap and gap < -self._heap[0][0]:  # better strategies are known since
            self._push(part, gap)
            return
        wide = share > self.epsilon
        region = _region((corners[0][wide], corners[1][wide]), self.epsilon)
        lines = BoundSet([each.weights for each in part.bounds], region)
        alive = lines.possible(part.min_marginals())
        self.closed = max(self.closed, self.epsilon)  # what is left out may be better by so much
        if not all(own.any() for own in np.split(alive, part.start[1:-1])):
            return
        left = int(alive.sum())
        near = self._near_corners(part, limits[wide])
        if left < _FEWER * part.configurations or left <= self.limits.leaf_configurations:
            smaller = part.only(alive, near)
            if smaller.configurations <= self.limits.leaf_configurations and self._solved(
                smaller, region, self.epsilon
            ):
                return
            if left < _FEWER * part.configurations:
                self._bound(smaller, [part.bounds[line].weights for line in near[:_AGAIN]])
                self._look_at(smaller, gap)
                return
        if part.configurations == len(part.nodes):  # its one strategy is known
            return
        corner = corners[0][worst], corners[1][worst]
        for side in self._divided(part, corner, limits[worst], int(nodes[worst])):
            half = part.only(side, near)
            self._bound(half, [part.bounds[line].weights for line in near[:_AGAIN]])
            self._look_at(half, gap)

    def _push(self, part: Part, gap: float) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (-gap, self._pushed, part))

    def _open_corners(self, part: Part) -> tuple[Corners, Float64Array]:
        """The corners at which lines leave a gap of more than epsilon, and the gaps; what is
        narrower is closed."""
        corners = self.known.corners()
        lines = part.lines()
        limits = limits_of(corners, [weights for weights, _ in lines])
        share = by_lines(limits, np.array([least for _, least in lines]))
        wide = share > self.epsilon
        self.closed = max(self.closed, float(share.max(initial=0.0, where=~wide)))
        return (corners[0][wide], corners[1][wide]), share[wide]

    def _limits(self, part: Part, corners: Corners) -> Float64Array:
        return limits_of(corners, [each.weights for each in part.bounds])

    def _supported(self, part: Part) -> Hull:
        """A part's supported points, until each edge of their hull below an open corner is one of
        the hull of all its strategies (dichotomy: Aneja and Nair, 1979)."""
        while True:
            hull = part.hull()
            corners, share = self._open_corners(part)
            if share.size == 0 or self.spent > self.limits.branching_additions:
                return hull
            beyond = self._ends(part, hull, corners)
            if beyond:
                self._bound(part, beyond)
                continue
            if hull.memory.size < 2:
                return hull
            gaps: dict[int, float] = {}
            for edge, gap in zip(hull.edges_below(corners[0]).tolist(), share, strict=True):
                gaps[edge] = max(gaps.get(edge, 0.0), float(gap))
            known = np.array([each.weights[1] for each in part.bounds if each.weights[0] == 1])
            wanted = [
                (gap, slope)
                for edge, gap in gaps.items()
                if not (np.abs(known - (slope := hull.slope(edge))) <= _SAME * slope).any()
            ]
            if not wanted:
                return hull
            best = sorted(wanted, reverse=True)[:_AT_ONCE]
            self._bound(part, sorted((1.0, slope) for _, slope in best))

    def _ends(self, part: Part, hull: Hull, corners: Corners) -> list[Weights]:
        """Weights of the ends of a part's hull, where it does not reach to an open corner."""
        worth = self.problem.byte_worth
        ends = []
        if corners[0].min() <= hull.memory[0]:
            ends.append((1.0, worth * _FAR))
        if corners[1].min() <= hull.time[-1]:
            ends.append((1.0, worth / _FAR))
        known = {each.weights for each in part.bounds if each.messages.size}
        return [pair for pair in ends if pair not in known]

    def _mix(self, part: Part, hull: Hull) -> None:
        """Find what mixes neighbours on a part's hull, below corners that are open."""
        corners, _ = self._open_corners(part)
        if hull.memory.size < 2:
            return
        for edge in np.unique(hull.edges_below(corners[0])).tolist():
            pair = hull.strategies[edge : edge + 2]
            whole = part.whole_strategies(pair)
            key = whole[0].tobytes(), whole[1].tobytes()
            if key in self._mixed:
                continue
            self._mixed.add(key)
            alive = np.zeros(part.configurations, dtype=np.bool_)
            alive[part.start[:-1] + pair] = True
            better = _MIXED * self.epsilon
            self._solved(part.only(alive), _region(self.known.corners(), better), better)

    def _solved(self, part: Part, region: SearchRegion, epsilon: float) -> bool:
        """Whether a part could be searched exactly, for what is better than known strategies by
        more than epsilon; what was found is known then."""
        self.spent += self.limits.line_additions * len(part.nodes) / 20

        def search() -> Outcome:
            graph = SearchGraph(part.problem, self.limits)
            graph.prune(_across(region, self.problem.byte_worth), region, 2 * _SWEEPS)
            if graph.is_pruned_out:
                return Outcome(None)
            simplify(graph)
            return solve_graph(graph, None, 0.0, self.limits.context_branch_states)

        outcome = or_too_large(search)
        if outcome.frontier is not None:
            found = outcome.frontier
            self.known.add(
                part.whole_strategies(found.strategies[_thinned(found.time, epsilon / 2)])
            )
            return found.eliminations["heuristic"] == 0
        return not outcome.is_too_large

    def _near_corners(self, part: Part, limits: Float64Array) -> list[int]:
        """Which bounds of a part rule out most at open corners, those that do so at most first."""
        least = np.array([each.least for each in part.bounds])
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.where(np.isfinite(limits), least / limits, 0.0)
        order = np.argsort(-near, axis=1, kind="stable")
        _, first = np.unique(order.T, return_index=True)
        found: list[int] = order.T.ravel()[np.sort(first)][: 4 * _AGAIN].tolist()
        return found

    def _divided(
        self, part: Part, corner: tuple[float, float], limits: Float64Array, node: int
    ) -> tuple[BoolArray, BoolArray]:
        """Two halves of a part, by the configurations of one node: the one that bounds allow least
        at a corner, by whether lines that are steeper than the hull there come nearest to it or
        others; else by the largest step between the supported points beside the corner."""
        half = self._by_line(part, corner, limits, node) if node >= 0 else None
        if half is None or half.all() or not half.any():
            node, half = self._largest_step(part, corner)
        first, last = part.start[node], part.start[node + 1]
        one = np.ones(part.configurations, dtype=np.bool_)
        other = one.copy()
        one[first:last], other[first:last] = half, ~half
        return one, other

    def _by_line(
        self, part: Part, corner: tuple[float, float], limits: Float64Array, node: int
    ) -> BoolArray | None:
        hull = part.hull()
        if hull.memory.size < 2:
            return None
        first, last = part.start[node], part.start[node + 1]
        own = np.array([each.min_marginals[first:last] for each in part.bounds])
        with np.errstate(invalid="ignore"):
            near = np.where(np.isfinite(limits), own.T / limits, 0.0)
        weights = [each.weights for each in part.bounds]
        worth = np.array([pair[1] / pair[0] if pair[0] else np.inf for pair in weights])
        slope = hull.slope(int(hull.edges_below(np.array([corner[0]]))[0]))
        found: BoolArray = worth[near.argmax(axis=1)] > slope
        return found

    def _largest_step(self, part: Part, corner: tuple[float, float]) -> tuple[int, BoolArray]:
        """The node whose choice differs most in cost between the supported points beside a corner,
        and half of its configurations."""
        hull = part.hull()
        edge = int(hull.edges_below(np.array([corner[0]]))[0])
        pair = hull.strategies[[edge, min(edge + 1, hull.memory.size - 1)]]
        worth = hull.slope(edge) if hull.memory.size > 1 else self.problem.byte_worth
        steps = np.zeros(len(part.nodes))
        for number in np.flatnonzero(pair[0] != pair[1]).tolist():
            node = part.problem.nodes[number]
            memory, time = np.abs(
                np.diff(np.array([node.memory, node.time])[:, pair[:, number]], axis=1)
            )
            steps[number] = worth * memory[0] + time[0]
        for each in part.problem.edges:
            rows, columns = (
                each.source_slots[pair[:, each.source]],
                each.target_slots[pair[:, each.target]],
            )
            step = abs(int(np.diff(each.time[rows, columns])[0])) / 2
            for number in (each.source, each.target):
                if pair[0, number] != pair[1, number]:
                    steps[number] += step
        number = int(steps.argmax())
        node = part.problem.nodes[number]
        one, other = pair[:, number]
        if one == other:
            number = int(np.diff(part.start).argmax())
            size = part.problem.nodes[number].configurations
            return number, np.arange(size) < size // 2
        costs = node.memory if node.memory[one] != node.memory[other] else node.time
        if costs[one] == costs[other]:
            return number, np.arange(costs.size) == one
        return number, np.abs(costs - costs[one]) <= np.abs(costs - costs[other])


def _region(corners: Corners, epsilon: float) -> SearchRegion:
    """What is better than a corner by more than a factor of 1 + epsilon."""
    return SearchRegion.at(corners[0] / (1 + epsilon), corners[1] / (1 + epsilon))


def _across(region: SearchRegion, worth: float) -> list[Weights]:
    """Weights for bounds within a region: its own slope, and both ways from it."""
    memory, time = region.upper_bounds
    limited = np.flatnonzero(np.isfinite(memory) & np.isfinite(time))
    slope = worth
    if limited.size > 1:
        first, last = limited[0], limited[-1]
        slope = (time[first] - time[last]) / (memory[last] - memory[first])
    return [(1.0, slope * factor) for factor in (1 / 3, 1.0, 3.0)]


def _thinned(time: Int64Array, epsilon: float) -> Int64Array:
    """Which points of a frontier to keep, so that each other one has a kept one of less memory and
    of at most 1 + epsilon times its time."""
    kept = [0]
    for point, own in enumerate(time.tolist()):
        if time[kept[-1]] > own * (1 + epsilon):
            kept.append(point)
    if kept[-1] != time.size - 1:
        kept.append(time.size - 1)
    return np.array(kept, dtype=np.int64)
