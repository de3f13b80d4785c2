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
_NOT_ZERO = frozenset({"branch_states", "table_points"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """The limits of all solvers.

    Attributes:
        table_points: points of all frontiers of one table: 1 GB, of which a merge holds three times
            as much.
        table_additions: additions of all tables of one exact search.
        simple_additions: additions. A node with one or two neighbours is eliminated before there
            are bounds if it takes at most this many. With 128 times as many, a recurrent encoder
            and decoder on 4 devices ends at 0.1 % and is not exact.
        simple_points: points for each state of such a node, and for each cell of its edges. A node
            with more is eliminated after bounds, which drop some points.
        branch_states: states. Branch elimination makes no node with more; where no exact
            elimination is left, a heuristic one follows. A higher limit is more often exact, and
            slower. With 512, BERT's mask on 4 devices needs one heuristic elimination without
            bounds, and none with them.
        bounded_cells: cells. Below, bounds cost more than they save.
        few_cells: cells up to which a problem, or a subproblem, is simplified and searched exactly,
            and a search without an epsilon goes on to ``closing_gap``. Above, eliminations before
            bounds take longer than bounds. With eliminations first, the RNN takes a third of the
            time. The RNN and VGG16 are below the limit, WideResNet and the Transformer above. Not
            scaled: the gap asked for does not depend on the work allowed.
        plain_states: states of a simplified graph up to which eliminations without bounds are
            tried: they take as long or less, and a first search compiles half the code.
        exact_states: states of a subproblem that is searched exactly, unless its nodes alone are
            more.
        approximate_gap: share. The gap at which a search without an epsilon ends if it has many
            cells; it goes on to ``closing_gap`` if that is near.
        closing_gap: share. The gap at which a search without an epsilon ends if it has few cells.
        coarse_gap: share. The gap on a mesh that is not the last; its strategies only begin the
            next mesh's search.
        bucket_cells: cells of one table of a bucket elimination: 32 MiB. A first elimination takes
            at most as many additions a step for each of its tables. With it OptCNN's strategy for
            the Transformer is proven on 4 to 16 devices.
        bucket_additions: the same additions of a last elimination, of all configurations. With it
            OptCNN's strategy for the paper's WideResNet is proven on 16 devices.
        exact_points: points of all tables of an exact search: some seconds. With twice as many,
            searches of some hundred operators on 4 devices take minutes.
        exact_additions: additions of all tables of an exact search of few cells: about a second.
            Problems with more are mostly searched within a gap in less time.
        unlike_additions: the same, where bounds drop little and subgraphs are not alike.
        longer_additions: additions for each node of the simplified graph. If the first exact search
            took more before its tables were too large, no longer one is begun. In the zoo on 4 and
            8 devices the first took up to 8e5 where the longer one ended, else 2e6 or more.
        trial_share: share of the additions of an exact search that are spent to see
            whether it would end: without bounds, or among promising states. A search of all states
            takes about 40 times as many.
        branching_additions: additions of a branch and bound.
        short_additions: additions of a short one: some seconds. If it does not end within them, an
            exact search may take more.
        line_additions: the price of a pair of weights, or of an exact search of a subproblem,
            besides sweeps, in additions.

    Raises:
        OptionError: if a limit is too small.
    """

    table_points: int = 40_000_000
    table_additions: float = 1e12
    simple_additions: int = 1 << 20
    simple_points: int = 4
    branch_states: int = 512
    bounded_cells: int = 3_000
    few_cells: int = 2_000_000
    plain_states: int = 1_000
    exact_states: int = 8_000
    approximate_gap: float = 0.01
    closing_gap: float = 0.001
    coarse_gap: float = 0.05
    bucket_cells: int = 1 << 22
    bucket_additions: int = 1 << 30
    exact_points: int = 300_000
    exact_additions: float = 3e8
    unlike_additions: float = 4e7
    longer_additions: float = 1.3e6
    trial_share: float = 0.025
    branching_additions: float = 6e10
    short_additions: float = 8e9
    line_additions: float = 1e7

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
        """All counts ``factor`` times as large, but not below the least allowed.

        Shares stay, and ``few_cells``.
        """
        counts: dict[str, Any] = {
            field.name: _scaled(getattr(self, field.name), factor, int(field.name in _NOT_ZERO))
            for field in fields(self)
            if field.name != "few_cells" and not field.name.endswith(("_gap", "_share"))
        }
        return replace(self, **counts)

    @property
    def context_branch_states(self) -> int:
        """`branch_states` where bounds and known strategies keep tables small: 40 times as many.

        With it BERT needs no heuristic elimination on 8 devices.
        """
        return 40 * self.branch_states

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
    def trial(self) -> SearchLimits:
        """The limits of an attempt that says whether a search with these limits would end."""
        return replace(self, table_additions=self.trial_share * self.table_additions)

    @property
    def short_branching(self) -> SearchLimits:
        """The limits of a branch and bound that ends if it stalls."""
        return replace(self, branching_additions=self.short_additions)

    @property
    def stalled_additions(self) -> float:
        """Additions after which a stage ends if its gap hardly narrows and more subproblems wait: a
        quarter of a short branch and bound's. Otherwise all."""
        is_short = self.branching_additions <= self.short_additions
        return self.branching_additions / 4 if is_short else self.branching_additions

    def can_bound(self, problem: Problem) -> bool:
        """Whether bounds hold, since no cost is negative, and are worth their time."""
        cells = sum(edge.time.size for edge in problem.edges)
        return cells > self.bounded_cells and not problem.has_negative

    def gap(self, problem: Problem) -> float:
        """The gap of an approximate frontier if no epsilon is given."""
        cells = sum(edge.time.size for edge in problem.edges)
        return self.closing_gap if cells <= self.few_cells else self.approximate_gap


def _scaled(count: float, factor: float, least: int) -> float:
    return max(least, round(factor * count)) if isinstance(count, int) else factor * count


DEFAULT_LIMITS = SearchLimits()
