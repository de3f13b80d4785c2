"""The first phase: supported points of subproblems, and mixtures of neighbours among them.

The supported points of a subproblem are found by a dichotomy (Aneja and Nair 1979): each edge of
the hull below an open corner gives the weights of the next bounds. Between the ends of an edge,
strategies that mix both are searched exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.corner_gaps import gaps_of_lines
from tensoropt.search.branching.exact_search import search_exactly
from tensoropt.search.branching.known_points import KnownPoints
from tensoropt.search.branching.subproblem import Hull, Subproblem
from tensoropt.search.effort import LINES_AT_ONCE, SWEEPS
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.tolerances import BETTER_MIXTURE, FINE, NEARLY, NEGLIGIBLE
from tensoropt.search.watch import keep, tell

__all__ = ["FirstPhase"]


class FirstPhase:
    """Finds supported points of subproblems, and mixtures of neighbours among them.

    Args:
        problem: the problem.
        whole: the problem as a subproblem.
        epsilon: the gap that the search is to reach.
        limits: of additions and of exact searches.

    Attributes:
        problem, whole, limits: see above.
        proven: the least gap that was proven so far.
        known: the points known so far.
        spent: the additions so far.
        epsilon: the gap of this stage.
        closed: the widest gap of all subproblems that are not searched further.
    """

    def __init__(
        self, problem: Problem, whole: Subproblem, epsilon: float, limits: SearchLimits
    ) -> None:
        self.problem, self.whole, self.epsilon, self.limits = problem, whole, epsilon, limits
        self.proven = np.inf
        self.known = KnownPoints(problem)
        self.spent = 0.0
        self.closed = 0.0
        self._mixed: set[bytes] = set()

    @property
    def _far(self) -> tuple[Weights, Weights]:
        """Weights of nearly least time and of nearly least memory."""
        worth = self.problem.byte_worth
        return (1.0, worth * NEGLIGIBLE), (1.0, worth / NEGLIGIBLE)

    def forget_mixtures(self) -> None:
        """Let mixtures that were searched in an earlier stage be searched again."""
        self._mixed.clear()

    def frontier(self, within: float) -> Frontier:
        """Return the frontier of the known strategies; a very wide gap is no proven one."""
        return self.known.frontier(within if within <= 1 / NEGLIGIBLE else None)

    def look(self) -> None:
        """Bound the whole problem for both costs and for weights between, unless it is bounded."""
        tell("supported points", 0, 1)
        low, high = self._far
        ends = [(1.0, 0.0), low, (1.0, self.problem.byte_worth), high, (0.0, 1.0)]
        if not self.whole.bounds:
            self.bound(self.whole, ends)
        self._keep_known()

    def _keep_known(self) -> None:
        """Keep the known strategies, with the gap that bounds of the whole problem prove."""
        gaps = self._gaps_of_lines(self.whole, self.known.region())
        self.proven = min(self.proven, float(gaps.max()))
        keep(partial(self.frontier, self.proven), gap=self.proven)

    def explore(self, part: Subproblem) -> None:
        """Find a subproblem's supported points near open corners, and mixtures of them."""
        self._mix(part, self._supported(part, FINE * self.epsilon))
        self._supported(part, 0.0)

    def _mix(self, part: Subproblem, hull: Hull) -> None:
        """Find mixtures of neighbours on a subproblem's hull, below open corners."""
        region, _ = self.open_region(part)
        if hull.memory.size > 1 and region.memory.size:
            edges = np.unique(hull.edges_below(region.memory))
            for some in np.array_split(edges, -(-edges.size // LINES_AT_ONCE)):
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
        region = self.known.region().shrunk(better)
        grain = int(FINE * better * hull.time[ends[-1]])
        worth = hull.slope(int(edges[edges.size // 2]))
        if not self.solved(part.mixtures(hull, ends), region, better, worth, grain):
            for half in np.array_split(edges, 2) if edges.size > 1 else ():
                self._mix_edges(part, hull, half)

    def _supported(self, part: Subproblem, nearly: float) -> Hull:
        """Find a subproblem's supported points and return their hull (dichotomy: Aneja and Nair,
        1979).

        Each edge of the hull below an open corner becomes one of the hull of all strategies, as far
        as bounds prove it; edges within a share ``nearly`` of that, as bounds for other slopes say,
        are skipped. So are edges near one that new bounds could not prove: strategies for these are
        recombined.
        """
        while True:
            hull = part.hull()
            region, share = self.open_region(part)
            if share.size == 0 or self.spent > self.limits.branching_additions:
                return hull
            if part is self.whole:
                tell("supported points", int(self.spent), int(self.limits.branching_additions))
                self._keep_known()
            beyond = self._ends(part, hull, region)
            if beyond:
                self.bound(part, beyond)
                continue
            if hull.memory.size < 2:
                return hull
            gaps: dict[int, float] = {}
            for edge, gap in zip(hull.edges_below(region.memory).tolist(), share, strict=True):
                gaps[edge] = max(gaps.get(edge, 0.0), float(gap))
            known = np.array([each.weights[1] for each in part.bounds if each.weights[0] == 1])
            stuck = part.stuck(FINE * self.epsilon).tolist()
            wanted = [
                (gap, slope)
                for edge, gap in gaps.items()
                if not (np.abs(known - (slope := hull.slope(edge))) <= NEGLIGIBLE * slope).any()
                and (nearly == 0 or part.is_loose(hull, edge, nearly))
                and all(NEARLY * max(slope, each) > min(slope, each) for each in stuck)
            ]
            if wanted:
                best = sorted(wanted, reverse=True)[:LINES_AT_ONCE]
                self.bound(part, sorted((1.0, slope) for _, slope in best))
            elif not stuck or not self._recombined(part, [*stuck, *map(hull.slope, gaps)]):
                return hull

    def _recombined(self, part: Subproblem, slopes: Sequence[float]) -> bool:
        """Whether cheaper strategies for some slopes were found among a subproblem's known ones."""
        points = part.recombine([(1.0, slope) for slope in slopes])
        self.spent += len(slopes) * self.limits.line_additions
        if points is not None:
            self.known.add(points)
        return points is not None

    def _ends(self, part: Subproblem, hull: Hull, region: SearchRegion) -> list[Weights]:
        """Return weights for the ends of a hull that does not reach to an open corner."""
        low, high = self._far
        ends = []
        if region.memory.min() <= hull.memory[0]:
            ends.append(high)
        if region.time.min() <= hull.time[-1]:
            ends.append(low)
        known = {each.weights for each in part.own}
        return [pair for pair in ends if pair not in known]

    def open_region(self, part: Subproblem) -> tuple[SearchRegion, Float64Array]:
        """Return the region in which lines leave a gap of more than epsilon, and the gap at each of
        its corners.

        Narrower gaps count as closed.
        """
        region = self.known.region()
        share = self._gaps_of_lines(part, region)
        wide = share > self.epsilon
        self.closed = max(self.closed, float(share.max(initial=0.0, where=~wide)))
        wide[wide] = part.is_open(region.take(wide))
        return region.take(wide), share[wide]

    def _gaps_of_lines(self, part: Subproblem, region: SearchRegion) -> Float64Array:
        weights, least = zip(*part.lines(), strict=True)
        return gaps_of_lines(weights, least, region)

    def bound(self, part: Subproblem, weights: Sequence[Weights]) -> None:
        points, additions, swept = part.bound(weights, SWEEPS, FINE * self.epsilon, self.epsilon)
        self.spent += additions + swept * self.limits.line_additions
        self.known.add(points)

    def solved(
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
