"""Limits of the search as one value: they decide how a problem is searched, and for how long.

Units: a *cell* is a pair of slots of an edge; an *addition* is one sum of a cell with a cost; a
*state* is a configuration of a node, or a combination of configurations of merged nodes. All limits
are counts, not seconds, so that a frontier is the same on every machine; a core makes about 1e9
additions a second.

They were set with the four models of ``benchmarks.search`` at 16 devices and the series of
``benchmarks.search.growth``. A limit that one experiment set names it; others were not measured
apart. Tolerances and efforts of single steps are in `tensoropt.search.tolerances` and
`tensoropt.search.effort`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tensoropt.errors import OptionError
from tensoropt.problem.model import Problem

__all__ = ["DEFAULT_LIMITS", "SearchLimits"]


# Limits that must not be 0: they divide, or count objects that a solver always has.
_NOT_ZERO = frozenset({"branch_states", "simplified_nodes", "table_points"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """The limits of all solvers.

    Attributes:
        table_points: points of all frontiers of one table: 1 GB, of which a merge holds three times
            as much.
        table_additions: additions of all tables of one exact search.
        simple_additions: additions. A node with one or two neighbours is eliminated before there
            are bounds if it takes at most this many.
        simplify_additions: additions of all these eliminations.
        simple_points: points for each state of such a node, and for each cell of its edges. A node
            with more is eliminated after bounds, which drop some points.
        branch_states: states. Branch elimination makes no node with more; where no exact
            elimination is left, a heuristic one follows. A higher limit is more often exact, and
            slower. With 512, BERT's mask on 4 devices needs one heuristic elimination without
            bounds, and none with them.
        bounded_cells: cells. Below, bounds cost more than they save.
        simplified_cells: cells. Above, eliminations before bounds take longer than bounds. With
            eliminations first, the RNN takes a third of the time. The RNN and VGG16 are below the
            limit, WideResNet and the Transformer above.
        simplified_left: states of a simplified graph of up to ``simplified_nodes`` nodes, and in
            proportion of larger graphs, up to which it is searched exactly. The proportion keeps 48
            layers exact.
        simplified_nodes: nodes, see ``simplified_left``.
        plain_states: states of a simplified graph up to which eliminations without bounds are
            tried: they take as long or less, and a first search compiles half the code.
        plain_points: points of all frontiers of one table, above which these eliminations end.
        exact_cells: cells of a subproblem that is simplified, or searched exactly.
        approximate_gap: share. The gap at which a search without an epsilon ends if it has many
            cells; it goes on to ``closing_gap`` if that is near.
        bucket_cells: cells of one table of a bucket elimination among promising configurations: 32
            MiB. With it OptCNN's strategy for the Transformer is proven on 4 to 16 devices.
        closing_gap: share. The gap at which a search without an epsilon ends if it has few cells.
        closing_gap_cells: cells up to which it does. Not scaled: the gap asked for does not depend
            on the work allowed.
        coarse_gap: share. The gap on a mesh that is not the last; its strategies only begin the
            next mesh's search.
        exact_points: points of all tables of an exact search: some seconds. With twice as many,
            searches of some hundred operators on 4 devices take minutes.
        exact_additions: additions of all tables of an exact search of few cells: about a second.
            Problems with more are mostly searched within a gap in less time.
        unlike_additions: the same, where bounds drop little and subgraphs are not alike.
        longer_additions: additions for each node of the simplified graph. If the first exact search
            took more before its tables were too large, no longer one is begun. In the zoo on 4 and
            8 devices the first took up to 8e5 where the longer one ended, else 2e6 or more.
        short_additions: additions of each stage of a short branch and bound: some seconds. If a
            stage does not end within them, an exact search may take more.
        branching_additions: additions of a branch and bound.
        stage_additions: additions of each of its stages; each stage has a narrower gap.
        stalled_additions: additions of a stage in which its gap hardly narrows and more subproblems
            wait.
        line_additions: the price of a pair of weights besides sweeps, in additions; exact searches
            of subproblems pay in proportion.
        leaf_configurations: configurations of a subproblem that is searched exactly.
        leaf_points: points of all tables of such a search.
        plain_share: share of ``table_additions`` for eliminations without bounds.
        promising_share: share of ``table_additions`` for the search of promising states; a search
            of all states takes about 40 times as many.
        first_gap: share. The gap of a branch and bound's first stage.
        next_stage_share: share of ``branching_additions`` after which no narrower stage begins: it
            takes at least four times as much.
        closing_share: share of ``branching_additions`` within which a search goes on to a gap that
            nobody asked for.

    Raises:
        OptionError: if a limit is too small.
    """

    table_points: int = 40_000_000
    table_additions: float = 1e12
    simple_additions: int = 1 << 20
    simplify_additions: int = 1 << 27
    simple_points: int = 4
    branch_states: int = 512
    bounded_cells: int = 3_000
    simplified_cells: int = 2_000_000
    simplified_left: int = 8_000
    simplified_nodes: int = 250
    plain_states: int = 1_000
    plain_points: int = 50_000
    exact_cells: int = 500_000
    approximate_gap: float = 0.01
    bucket_cells: int = 1 << 22
    closing_gap: float = 0.001
    closing_gap_cells: int = 2_000_000
    coarse_gap: float = 0.05
    exact_points: int = 300_000
    exact_additions: float = 3e8
    unlike_additions: float = 4e7
    longer_additions: float = 1.3e6
    short_additions: float = 8e9
    branching_additions: float = 6e10
    stage_additions: float = 6e10
    stalled_additions: float = 6e10
    line_additions: float = 1e7
    leaf_configurations: int = 8_000
    leaf_points: int = 300_000
    plain_share: float = 0.125
    promising_share: float = 0.025
    first_gap: float = 0.01
    next_stage_share: float = 0.25
    closing_share: float = 0.65

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = int(field.name in _NOT_ZERO)
            if not value >= least:
                raise OptionError(
                    f"{field.name} is at least {least}. Got {value}; the default is "
                    f"{field.default}."
                )

    def scaled(self, factor: float) -> SearchLimits:
        """All counts ``factor`` times as large, but not below the least allowed; shares stay."""
        counts: dict[str, Any] = {
            field.name: _scaled(getattr(self, field.name), factor, int(field.name in _NOT_ZERO))
            for field in fields(self)
            if not field.name.endswith(("_gap", "_gap_cells", "_share"))
        }
        return replace(self, **counts)

    @property
    def context_branch_states(self) -> int:
        """`branch_states` where bounds and known strategies keep tables small: 40 times as many.

        With it BERT needs no heuristic elimination on 8 devices.
        """
        return 40 * self.branch_states

    @property
    def promising_points(self) -> int:
        """Points of a frontier of promising states above which the search of all states would not
        end.

        Tables on the way to it have some fifty to a hundred times as many.
        """
        return self.table_points // 60

    @property
    def exact(self) -> SearchLimits:
        """The limits of an exact search of few cells."""
        return replace(self, table_points=self.exact_points, table_additions=self.exact_additions)

    @property
    def longer_exact(self) -> SearchLimits:
        """The limits of an exact search after a short branch and bound: four times as many
        additions.

        They apply whether or not subgraphs are alike; points are not limited apart.
        """
        additions = 4 * self.exact_additions
        return replace(self, table_additions=additions, unlike_additions=additions)

    @property
    def leaf(self) -> SearchLimits:
        """The limits of an exact search of a subproblem: a thousand additions for each point."""
        points = self.leaf_points
        return replace(self, table_points=points, table_additions=1_000 * points)

    @property
    def short_branching(self) -> SearchLimits:
        """The limits of a branch and bound that ends if one of its stages stalls."""
        stalled = self.short_additions / 4
        return replace(self, stage_additions=self.short_additions, stalled_additions=stalled)

    def can_bound(self, problem: Problem) -> bool:
        """Whether bounds hold, since no cost is negative, and are worth their time."""
        cells = sum(edge.time.size for edge in problem.edges)
        return cells > self.bounded_cells and not problem.has_negative

    def gap(self, problem: Problem) -> float:
        """The gap of an approximate frontier if no epsilon is given."""
        cells = sum(edge.time.size for edge in problem.edges)
        return self.closing_gap if cells <= self.closing_gap_cells else self.approximate_gap

    def simplified_states(self, nodes: int) -> float:
        """`simplified_left` of a graph with a number of nodes."""
        return self.simplified_left * max(1.0, nodes / self.simplified_nodes)


def _scaled(count: float, factor: float, least: int) -> float:
    return max(least, round(factor * count)) if isinstance(count, int) else factor * count


DEFAULT_LIMITS = SearchLimits()
