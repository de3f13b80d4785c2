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
from functools import partial
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.bounds.corner_gaps import by_nodes
from tensoropt.search.branching.divide import Halves, at_hub, by_costs, sides
from tensoropt.search.branching.first_phase import FirstPhase
from tensoropt.search.branching.known_points import Points
from tensoropt.search.branching.subproblem import NOWHERE, Subproblem
from tensoropt.search.effort import LINES_AT_ONCE
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.tolerances import NEAR_GAP, NEARLY
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["branch_and_bound"]

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
    divides: bool = True,
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
        divides: whether the problem may be divided; if not, there is a first phase alone.
    """
    if whole is None:
        whole = Subproblem(FlatGraph.of(problem))
        if whole.cells <= limits.few_cells:
            whole = whole.simplified(limits)
    search = _Search(problem, whole, epsilon, limits, incumbent)
    return Outcome(search.run(closes, divides))


class _Gaps(NamedTuple):
    """The gaps at the corners of a subproblem's open region, at one time.

    Attributes:
        known: the number of strategies known at that time.
        region: the open region.
        share: float64[corners], the share by which a strategy may be better.
    """

    known: int
    region: SearchRegion
    share: Float64Array


class _Search(FirstPhase):
    """One search: the second phase divides the subproblems that the first phase explores.

    Attributes:
        target: the gap to reach.
    """

    def __init__(
        self,
        problem: Problem,
        whole: Subproblem,
        epsilon: float,
        limits: SearchLimits,
        incumbent: Frontier | None,
    ) -> None:
        super().__init__(problem, whole, epsilon, limits.exact)
        self.target = epsilon
        if incumbent is not None:
            self.known.add(Points(incumbent.memory, incumbent.time, incumbent.strategies))
            self.proven = np.inf if incumbent.within is None else incumbent.within
        self._heap: list[tuple[float, int, Subproblem, _Gaps]] = []
        self._pushed = 0

    def run(self, closes: bool, divides: bool) -> Frontier:
        """Search until gaps are narrow enough or the additions are spent; see `branch_and_bound`.

        Each stage begins with the whole problem again, and with the points known by then.
        """
        self.look()
        limits = self.limits
        for epsilon in _stages(self.target, self.proven, limits.approximate_gap):
            enough = epsilon if epsilon == self.target else NEAR_GAP * epsilon
            self._stage(epsilon, (enough, np.inf if divides else 0.0))
            if self.proven > enough or self.spent > limits.branching_additions:
                break
        gap = limits.closing_gap
        is_left = self.spent < limits.branching_additions
        if closes and is_left and gap < self.proven <= self.target:
            self._stage(gap, (gap, NEAR_GAP * gap))
        return self.frontier(self.proven)

    def _stage(self, epsilon: float, divided: tuple[float, float]) -> None:
        """Search until all gaps are at most ``epsilon``, additions are spent, or the stage stalls.

        Subproblems are divided if the whole problem's gap is above the first of ``divided``, and
        not above the second.
        """
        self.epsilon, self.closed = epsilon, 0.0
        self.forget_mixtures()
        self.whole.closed, self.whole.failed = NOWHERE, np.inf
        self._explore(self.whole)
        enough, wide = divided
        if not enough < self.within <= wide:
            self.closed = self.within
            self._heap.clear()
        narrowest, fewest, at = np.inf, 0, self.spent
        while self._heap and self.spent < self.limits.branching_additions:
            self.proven = self.within
            if self.proven < NEARLY * narrowest or len(self._heap) <= fewest:
                narrowest, fewest, at = self.proven, len(self._heap), self.spent
            elif self.spent - at > self.limits.stalled_additions:
                break
            tell(f"gap {self.proven:.2%}", int(self.spent), int(self.limits.branching_additions))
            keep(partial(self.frontier, self.proven), gap=self.proven)
            _, _, part, gaps = heapq.heappop(self._heap)
            self._narrow(part, gaps)
        self.proven = self.within
        self._heap.clear()

    @property
    def within(self) -> float:
        """The proven gap: the widest of all subproblems, or a narrower one proven before."""
        return min(self.proven, max([self.closed, *(-negative for negative, *_ in self._heap)]))

    def _explore(self, part: Subproblem) -> None:
        """Explore a subproblem, and queue it unless its gap is narrow."""
        self.explore(part)
        self._queue(part)

    def _queue(self, part: Subproblem) -> None:
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
        """Return a subproblem's open region and its gaps, if it has any."""
        region, share = self.open_region(part)
        if share.size == 0:
            return None
        limits = self._limits(part, region)
        share = by_nodes(limits, part.min_marginals(), part.start, share)
        self.spent += share.size * part.configurations
        return _Gaps(self.known.count, region, share)

    def _narrow(self, part: Subproblem, earlier: _Gaps) -> None:
        """Reduce the gap of a subproblem at its widest edge of the hull.

        It is searched exactly if few configurations are left. Else configurations that are not
        better than known strategies are dropped, if these are many. Else it is divided.
        """
        gaps = earlier if earlier.known == self.known.count else self._gaps(part)
        if gaps is None:
            return
        share = gaps.share
        worst = int(share.argmax())
        gap = float(share[worst])
        if gap <= self.epsilon:
            self.closed = max(self.closed, gap)
            return
        if self._heap and gap < -self._heap[0][0]:  # better strategies are known since
            self._push(part, gap, gaps)
            return
        hull = part.hull()
        edges = hull.edges_below(gaps.region.memory)
        wide = share > self.epsilon
        here = wide & (edges == edges[worst])
        window = gaps.region.take(here)
        self.closed = max(self.closed, self.epsilon)  # what is left out may be better by so much
        region = window.shrunk(self.epsilon)
        lines = BoundSet([each.weights for each in part.bounds], region)
        alive = lines.possible(part.min_marginals())
        worth = hull.slope(int(edges[worst])) if hull.memory.size > 1 else self.problem.byte_worth
        limits = self._limits(part, gaps.region)
        near = self._near_corners(part, limits[here])
        if self._searched(part, alive, region, worth):
            part.close(window)
            self._queue(part)
        elif (wide & ~here).any() or alive.sum() < NEARLY * part.configurations:
            self._explore_some(part, alive, near, window)
            part.close(window)
            self._queue(part)
        elif part.configurations == part.nodes:
            self.closed = max(self.closed, gap)
        else:
            for half in at_hub(part) or self._halves(part, worth):
                self._explore_some(part, half, near, part.window)

    def _halves(self, part: Subproblem, slope: float) -> Halves:
        """Return halves of a subproblem by costs on both sides of an edge of its hull, see
        `by_costs`."""
        weights, own = sides(part, slope), {each.weights for each in part.own}
        wanted = [pair for pair in weights if pair not in own]
        if wanted:
            self.bound(part, wanted)
        return by_costs(part, weights)

    def _explore_some(
        self, part: Subproblem, alive: BoolArray, near: Sequence[int], window: SearchRegion | None
    ) -> None:
        """Explore some of a subproblem's configurations, in a window.

        The bounds near its corners are inherited.
        """
        some = part.only(alive, near)
        some.window = window
        if not some.is_simple and some.cells <= self.limits.few_cells:
            some = some.simplified(self.limits)
        self.bound(some, _apart([part.bounds[line].weights for line in near])[:LINES_AT_ONCE])
        self._explore(some)

    def _searched(
        self, part: Subproblem, alive: BoolArray, region: SearchRegion, worth: float
    ) -> bool:
        """Whether the remaining configurations of a subproblem could be searched exactly in a
        region."""
        if not np.logical_or.reduceat(alive, part.start[:-1]).all():
            return True
        left = int(alive.sum())
        most = max(self.limits.exact_states, part.nodes)
        if left > min(most, NEARLY * part.failed):
            return False
        smaller = part.only(alive)
        if smaller.cells <= self.limits.few_cells and self.solved(
            smaller, region, self.epsilon, worth
        ):
            return True
        part.failed = left
        return False

    def _push(self, part: Subproblem, gap: float, gaps: _Gaps) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (-gap, self._pushed, part, gaps))

    def _limits(self, part: Subproblem, region: SearchRegion) -> Float64Array:
        return region.limits([each.weights for each in part.bounds])

    def _near_corners(self, part: Subproblem, limits: Float64Array) -> list[int]:
        """Return the bounds that rule out most at open corners, those that do so most often
        first."""
        least = np.array([each.least for each in part.bounds])
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.where(np.isfinite(limits), least / limits, 0.0)
        order = np.argsort(-near, axis=1, kind="stable")
        _, first = np.unique(order.T, return_index=True)
        lines: list[int] = order.T.ravel()[np.sort(first)][: 4 * LINES_AT_ONCE].tolist()
        return lines


def _apart(weights: Sequence[Weights]) -> list[Weights]:
    """Return the first of all pairs of weights whose slopes are nearly the same, in order."""
    apart: list[Weights] = []
    for pair in weights:
        alike = (other for other in apart if other[0] == pair[0])
        if all(NEARLY * max(pair[1], other[1]) >= min(pair[1], other[1]) for other in alike):
            apart.append(pair)
    return apart


def _stages(epsilon: float, proven: float, first: float) -> list[float]:
    """The gaps of all stages, from ``first`` down to ``epsilon``, below the proven gap."""
    stages = [epsilon]
    while stages[0] < first:
        stages.insert(0, min(first, stages[0] * _NARROWER))
    return [stage for stage in stages[:-1] if stage < proven] + stages[-1:]
