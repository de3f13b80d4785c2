"""The frontier within a gap, where few large trade-offs leave wide gaps in its hull.

Bounds on weighted costs say nothing about strategies above the lower hull of a frontier. Where one
operator's choice moves much memory and time at once, the next supported point is far away, and
strategies that no weights find may lie between the two. So the search has two phases (Ulungu and
Teghem, "The two phases method", 1995). The first finds the supported points, and all mixtures of
neighbours among them. The second divides: at the widest gap it takes the node whose choice costs
both sides most, and splits the problem into the configurations that are cheaper on the side of
memory and those that are cheaper on the side of time. Each subproblem has a hull of its own, closer
to its frontier (branch and bound for two objectives; Przybylski and Gandibleux, "Multi-objective
branch and bound", 2017).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.bounds.corner_gaps import Corners, by_lines, by_nodes, limits_of
from tensoropt.search.branching.divide import Halves, at_hub, by_costs, sides
from tensoropt.search.branching.exact_search import search_exactly
from tensoropt.search.branching.known_points import KnownPoints, Points
from tensoropt.search.branching.subproblem import NO_CORNERS, Hull, Subproblem
from tensoropt.search.effort import (
    BOUNDS_AGAIN,
    CONFIGURATIONS_PER_WEIGHT,
    CORNER_PRICE,
    MIXED_EDGES,
    WEIGHT_SWEEPS,
)
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.tolerances import (
    BETTER_MIXTURE,
    DIVIDED_GAP,
    EXACT_EDGE,
    MIXTURE_GRAIN,
    NEAR_BOUND,
    REBUILT_PART,
    REPEATED_SEARCH,
    SAME_SLOPE,
    STAGE_REACHED,
    STALLED_GAP,
    WIDEST_GAP,
)
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["branch_and_bound"]

# Slopes of a hull that are bounded at once.
_AT_ONCE = 4
# Factor from the mean worth of a byte to weights of least time, or least memory.
_FAR = 1e6
# Factor between the gaps of two stages.
_NARROWER = 10.0


@interruptible
def branch_and_bound(
    problem: Problem,
    epsilon: float,
    limits: SearchLimits,
    whole: Subproblem | None = None,
    incumbent: Frontier | None = None,
    *,
    closes: bool = False,
) -> Outcome:
    """Return the frontier of a problem within a gap that it states.

    The gap is ``epsilon``, or wider where that would take more additions than limits allow.

    Args:
        problem: with costs that are not negative.
        epsilon: more than 0.
        limits: of additions and of exact searches.
        whole: the problem as a subproblem, if it was made already.
        incumbent: strategies to begin with.
        closes: whether to go on to `SearchLimits.closing_gap`, with a share of the additions.
    """
    if whole is None:
        whole = Subproblem(FlatGraph.of(problem))
        if whole.cells <= limits.simplified_cells:
            whole = whole.simplified(limits)
    return Outcome(_Search(problem, epsilon, limits, incumbent, closes).run(whole))


class _Gaps(NamedTuple):
    """The gaps at a subproblem's open corners, at one time.

    Attributes:
        known: the number of strategies known at that time.
        corners: memory and time of each.
        share: float64[corners], the share by which a strategy may be better.
    """

    known: int
    corners: Corners
    share: Float64Array


class _Search:
    """One search.

    Attributes:
        known: the points known so far.
        proven: the least gap that was proven so far.
        spent: the additions so far.
        epsilon: the gap of this stage.
        closed: the widest gap of all subproblems that are not searched further.
    """

    def __init__(
        self,
        problem: Problem,
        epsilon: float,
        limits: SearchLimits,
        incumbent: Frontier | None,
        closes: bool,
    ) -> None:
        self.problem, self.target, self.closes = problem, epsilon, closes
        self.limits = limits.leaf
        self.known = KnownPoints(problem)
        self.proven = np.inf  # the least gap that was proven so far
        if incumbent is not None:
            self.known.add(Points(incumbent.memory, incumbent.time, incumbent.strategies))
            self.proven = np.inf if incumbent.within is None else incumbent.within
        self.spent = 0.0
        self.epsilon = epsilon  # of this stage
        self.closed = 0.0  # the widest gap of all parts that are not searched further
        self._heap: list[tuple[float, int, Subproblem, _Gaps]] = []
        self._pushed = 0
        self._mixed: set[bytes] = set()

    def run(self, whole: Subproblem) -> Frontier:
        """Search until gaps are narrow enough or the additions are spent.

        Each stage begins with the whole problem again, and with the points known by then.
        """
        worth = self.problem.byte_worth
        ends = [(1.0, 0.0), (1.0, worth / _FAR), (1.0, worth), (1.0, worth * _FAR), (0.0, 1.0)]
        if not whole.bounds:
            self._bound(whole, ends)
        keep(partial(self._frontier, self.proven), gap=self.proven)
        limits = self.limits
        most = limits.next_stage_share * limits.branching_additions  # before a narrower stage
        for epsilon in _stages(self.target, self.proven, limits.first_gap):
            enough = epsilon if epsilon == self.target else STAGE_REACHED * epsilon
            self._stage(whole, epsilon, (enough, np.inf))
            if self.proven > enough or self.spent > most:
                break
        if self.closes and limits.closing_gap < self.proven <= self.target:
            additions = limits.closing_share * limits.branching_additions
            self.limits = replace(limits, branching_additions=additions)
            if self.spent <= limits.closing_share * most:
                gap = limits.closing_gap
                self._stage(whole, gap, (gap, DIVIDED_GAP * gap))
        return self._frontier(self.proven)

    def _stage(self, whole: Subproblem, epsilon: float, divided: tuple[float, float]) -> None:
        """Search until all gaps are at most ``epsilon``, additions are spent, or the stage stalls.

        Subproblems are divided if the whole problem's gap is above the first of ``divided``, and
        not above the second.
        """
        begun = self.spent
        self.epsilon, self.closed = epsilon, 0.0
        self._mixed.clear()
        whole.closed, whole.failed = NO_CORNERS, np.inf
        self._look_at(whole)
        enough, wide = divided
        if not enough < self.within <= wide:
            self.closed = self.within
            self._heap.clear()
        most = min(self.limits.branching_additions, begun + self.limits.stage_additions)
        narrowest, fewest, at = np.inf, 0, self.spent
        while self._heap and self.spent < most:
            self.proven = self.within
            if self.proven < STALLED_GAP * narrowest or len(self._heap) <= fewest:
                narrowest, fewest, at = self.proven, len(self._heap), self.spent
            elif self.spent - at > self.limits.stalled_additions:
                break
            tell(f"gap {self.proven:.2%}", int(self.spent), int(self.limits.branching_additions))
            keep(partial(self._frontier, self.proven), gap=self.proven)
            _, _, part, gaps = heapq.heappop(self._heap)
            self._go_on(part, gaps)
        self.proven = self.within
        self._heap.clear()

    def _frontier(self, within: float) -> Frontier:
        return self.known.frontier(within if within <= WIDEST_GAP else None)

    @property
    def within(self) -> float:
        """The proven gap: the widest of all subproblems, or a narrower one proven before."""
        return min(self.proven, max([self.closed, *(-negative for negative, *_ in self._heap)]))

    def _bound(self, part: Subproblem, weights: Sequence[Weights]) -> None:
        points, additions, swept = part.bound(
            weights, WEIGHT_SWEEPS, NEAR_BOUND * self.epsilon, self.epsilon
        )
        each = self.limits.line_additions * (1 + part.configurations / CONFIGURATIONS_PER_WEIGHT)
        self.spent += additions + swept * each
        self.known.add(points)

    def _look_at(self, part: Subproblem) -> None:
        """Find a subproblem's supported points near open corners, mixtures of them, and its gap."""
        self._mix(part, self._supported(part, EXACT_EDGE * self.epsilon))
        self._supported(part, 0.0)
        self._wait(part)

    def _wait(self, part: Subproblem) -> None:
        """Queue a subproblem, unless its gap is narrow."""
        gaps = self._gaps(part)
        if gaps is None:
            return
        gap = float(gaps.share.max())
        if gap > self.epsilon:
            self._push(part, gap, gaps)
        else:
            self.closed = max(self.closed, gap)

    def _gaps(self, part: Subproblem) -> _Gaps | None:
        """Return a subproblem's open corners and their gaps, if it has any."""
        corners, share = self._open_corners(part)
        if share.size == 0:
            return None
        limits = self._limits(part, corners)
        share = by_nodes(limits, part.min_marginals(), part.start, share)
        self.spent += share.size * CORNER_PRICE * part.configurations
        return _Gaps(self.known.count, corners, share)

    def _go_on(self, part: Subproblem, earlier: _Gaps) -> None:
        """Reduce the gap of a subproblem at its widest edge of the hull.

        It is searched exactly if few configurations are left. Else configurations that are not
        better than known strategies are dropped, if these are many. Else it is divided.
        """
        gaps = earlier if earlier.known == self.known.count else self._gaps(part)
        if gaps is None:
            return
        corners, share = gaps.corners, gaps.share
        worst = int(share.argmax())
        gap = float(share[worst])
        if gap <= self.epsilon:
            self.closed = max(self.closed, gap)
            return
        if self._heap and gap < -self._heap[0][0]:  # better strategies are known since
            self._push(part, gap, gaps)
            return
        hull = part.hull()
        edges = hull.edges_below(corners[0])
        wide = share > self.epsilon
        here = wide & (edges == edges[worst])
        window = corners[0][here], corners[1][here]
        self.closed = max(self.closed, self.epsilon)  # what is left out may be better by so much
        region = _region(window, self.epsilon)
        lines = BoundSet([each.weights for each in part.bounds], region)
        alive = lines.possible(part.min_marginals())
        worth = hull.slope(int(edges[worst])) if hull.memory.size > 1 else self.problem.byte_worth
        limits = self._limits(part, corners)
        near = self._near_corners(part, limits[here])
        if self._searched(part, alive, region, worth):
            part.close(window)
            self._wait(part)
        elif (wide & ~here).any() or alive.sum() < REBUILT_PART * part.configurations:
            self._look_at_some(part, alive, near, window)
            part.close(window)
            self._wait(part)
        elif part.configurations == part.nodes:
            self.closed = max(self.closed, gap)
        else:
            for half in at_hub(part) or self._halves(part, worth):
                self._look_at_some(part, half, near, part.window)

    def _halves(self, part: Subproblem, slope: float) -> Halves:
        """Return halves of a subproblem by costs on both sides of an edge of its hull, see
        `by_costs`."""
        weights, own = sides(part, slope), {each.weights for each in part.own}
        wanted = [pair for pair in weights if pair not in own]
        if wanted:
            self._bound(part, wanted)
        return by_costs(part, weights)

    def _look_at_some(
        self, part: Subproblem, alive: BoolArray, near: Sequence[int], window: Corners | None
    ) -> None:
        """Look at some of a subproblem's configurations, below the corners of a window.

        The bounds near these corners are inherited.
        """
        some = part.only(alive, near)
        some.window = window
        if not some.is_simple and some.cells <= self.limits.exact_cells:
            some = some.simplified(self.limits)
        again = [part.bounds[line].weights for line in near[:BOUNDS_AGAIN]]
        self._bound(some, again)
        self._look_at(some)

    def _searched(
        self, part: Subproblem, alive: BoolArray, region: SearchRegion, worth: float
    ) -> bool:
        """Whether the remaining configurations of a subproblem could be searched exactly in a
        region."""
        if not np.logical_or.reduceat(alive, part.start[:-1]).all():
            return True
        left = int(alive.sum())
        most = max(self.limits.leaf_configurations, part.nodes)
        if left > min(most, REPEATED_SEARCH * part.failed):
            return False
        smaller = part.only(alive)
        if smaller.cells <= self.limits.exact_cells and self._solved(
            smaller, region, self.epsilon, worth
        ):
            return True
        part.failed = left
        return False

    def _push(self, part: Subproblem, gap: float, gaps: _Gaps) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (-gap, self._pushed, part, gaps))

    def _open_corners(self, part: Subproblem) -> tuple[Corners, Float64Array]:
        """Return the corners at which lines leave a gap of more than epsilon, and their gaps.

        Narrower gaps count as closed.
        """
        corners = self.known.corners()
        lines = part.lines()
        limits = limits_of(corners, [weights for weights, _ in lines])
        share = by_lines(limits, np.array([least for _, least in lines]))
        wide = share > self.epsilon
        self.closed = max(self.closed, float(share.max(initial=0.0, where=~wide)))
        wide[wide] = part.is_open((corners[0][wide], corners[1][wide]))
        return (corners[0][wide], corners[1][wide]), share[wide]

    def _limits(self, part: Subproblem, corners: Corners) -> Float64Array:
        return limits_of(corners, [each.weights for each in part.bounds])

    def _supported(self, part: Subproblem, nearly: float) -> Hull:
        """Find a subproblem's supported points and return their hull (dichotomy: Aneja and Nair,
        1979).

        Each edge of the hull below an open corner becomes one of the hull of all strategies, as far
        as bounds prove it; edges within a share ``nearly`` of that, as bounds for other slopes say,
        are skipped.
        """
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
                if not (np.abs(known - (slope := hull.slope(edge))) <= SAME_SLOPE * slope).any()
                and (nearly == 0 or part.is_loose(hull, edge, nearly))
            ]
            if not wanted:
                return hull
            best = sorted(wanted, reverse=True)[:_AT_ONCE]
            self._bound(part, sorted((1.0, slope) for _, slope in best))

    def _ends(self, part: Subproblem, hull: Hull, corners: Corners) -> list[Weights]:
        """Return weights for the ends of a hull that does not reach to an open corner."""
        worth = self.problem.byte_worth
        ends = []
        if corners[0].min() <= hull.memory[0]:
            ends.append((1.0, worth * _FAR))
        if corners[1].min() <= hull.time[-1]:
            ends.append((1.0, worth / _FAR))
        known = {each.weights for each in part.own}
        return [pair for pair in ends if pair not in known]

    def _mix(self, part: Subproblem, hull: Hull) -> None:
        """Find mixtures of neighbours on a subproblem's hull, below open corners."""
        corners, _ = self._open_corners(part)
        if hull.memory.size > 1 and corners[0].size:
            edges = np.unique(hull.edges_below(corners[0]))
            for some in np.array_split(edges, -(-edges.size // MIXED_EDGES)):
                self._mix_edges(part, hull, some)

    def _mix_edges(self, part: Subproblem, hull: Hull, edges: Int64Array) -> None:
        """Find mixtures of the ends of some of a hull's edges.

        If that takes too much, the edges are halved.
        """
        ends = np.unique([edges, edges + 1])
        key = hull.strategies[ends].tobytes()
        if key in self._mixed:
            return
        self._mixed.add(key)
        better = BETTER_MIXTURE * self.epsilon
        region = _region(self.known.corners(), better)
        grain = int(MIXTURE_GRAIN * better * hull.time[ends[-1]])
        worth = hull.slope(int(edges[edges.size // 2]))
        if not self._solved(part.mixtures(hull, ends), region, better, worth, grain):
            for half in np.array_split(edges, 2) if edges.size > 1 else ():
                self._mix_edges(part, hull, half)

    def _solved(
        self, part: Subproblem, region: SearchRegion, epsilon: float, worth: float, grain: int = 0
    ) -> bool:
        """Whether a subproblem could be searched exactly, for strategies better by more than
        epsilon.

        The strategies found are known afterwards. See `search_exactly`.
        """
        result = search_exactly(part, region, epsilon / 2, worth, self.limits, grain)
        self.spent += result.additions
        if result.points is not None:
            self.known.add(result.points)
        return result.is_whole

    def _near_corners(self, part: Subproblem, limits: Float64Array) -> list[int]:
        """Return the bounds that rule out most at open corners, those that do so most often
        first."""
        least = np.array([each.least for each in part.bounds])
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.where(np.isfinite(limits), least / limits, 0.0)
        order = np.argsort(-near, axis=1, kind="stable")
        _, first = np.unique(order.T, return_index=True)
        lines: list[int] = order.T.ravel()[np.sort(first)][: 4 * BOUNDS_AGAIN].tolist()
        return lines


def _region(corners: Corners, epsilon: float) -> SearchRegion:
    """The region of strategies better than a corner by more than a factor of 1 + epsilon."""
    return SearchRegion.at(corners[0] / (1 + epsilon), corners[1] / (1 + epsilon))


def _stages(epsilon: float, proven: float, first: float) -> list[float]:
    """The gaps of all stages, from ``first`` down to ``epsilon``, below the proven gap."""
    stages = [epsilon]
    while stages[0] < first:
        stages.insert(0, min(first, stages[0] * _NARROWER))
    return [stage for stage in stages[:-1] if stage < proven] + stages[-1:]
