"""Limits of the search as one value: what decides how a problem is searched, and for how long.

Units: a *cell* is a pair of slots of an edge; an *addition* is one sum of a cell with a cost; a
*state* is a configuration of a node, or a combination of configurations of merged nodes. All limits
are counts, not seconds, so that a frontier is the same on every machine; a core makes some 1e9
additions a second.

They were set with the four models of ``benchmarks.search`` at 16 devices and the series of
``benchmarks.search.growth``. Where one figure set a limit, its line gives it; where none does, the
limit was not measured apart. Constants of one algorithm that bound no time or memory of the search
stand beside the algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tensoropt.errors import OptionError
from tensoropt.problem.model import Problem

__all__ = ["DEFAULT_LIMITS", "SearchLimits"]


# Numbers of which a share is taken, and of what a solver always holds.
_NOT_ZERO = frozenset({"branch_states", "simplified_nodes", "table_points"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a solver is used, and when it gives up.

    Attributes:
        table_points: points of all frontiers of one table: 1 GB, of which a merge holds three times
            as much.
        table_additions: additions that all tables of one exact search take.
        simple_additions: additions. A node with one neighbour or two is eliminated before there
            are bounds where that takes no more.
        simplify_additions: additions of all these eliminations together.
        simple_points: points for each state of such a node, and for each cell of its edges. Where
            there are more, it is eliminated after bounds, which drop some of them.
        branch_states: states. Branch elimination makes no node of more; where no exact elimination
            is left, a heuristic one follows. More is more often exact, and slower. With 512, BERT's
            mask on 4 devices needs one heuristic elimination without bounds, and none with them.
        bounded_cells: cells. Below, bounds cost more than they save.
        simplified_cells: cells. Above, eliminations before bounds take longer than bounds.
            Measured: with eliminations first, the RNN takes a third of the time. The RNN and VGG16
            are below it, WideResNet and the Transformer above.
        simplified_left: states that may be left of a simplified graph, of up to
            ``simplified_nodes`` nodes, and in proportion of more; more is searched faster by bounds
            of the whole problem. The proportion keeps 48 layers exact.
        simplified_nodes: nodes, see ``simplified_left``.
        plain_states: states left of a simplified graph, up to which eliminations without bounds
            are tried: they take as long or less, and a first search half the compiled code.
        plain_points: points of all frontiers of one table, beyond which that ends.
        exact_cells: cells of a part that is simplified, or searched exactly.
        approximate_gap: share. Where too much is left for an exact search, the frontier is looked
            for until its proven gap is as small: 1 %, and on to ``closing_gap`` where that is near.
            Users ask for another one by epsilon.
        supported_rounds: of an approximate frontier, pairs of weights and sweeps of each.
        supported_round_additions: additions of a round of bounds of an approximate frontier: some
            12 s on two cores. Weights are fewer, then sweeps, where it would be more.
        bucket_cells: cells of one table of a bucket elimination among promising configurations:
            32 MiB. With it OptCNN's strategy for the Transformer is proven on 4 to 16 devices.
        closing_gap: share. Exact eliminations for single weights go on until the gap is as small.
            It is also asked for where there are few cells.
        closing_gap_cells: cells up to which it is. Where a search may do more or less, as much is
            asked for.
        closing_weights: pairs of weights for which the least of all strategies is found.
        closing_additions: additions of one such elimination at most, if it leaves out nothing; and
            those that all together have made, after which no other begins but where the gap is
            still wider than what is asked for.
        hull_weights: pairs of weights of a series-parallel graph's hull; set for Inception-v3 on
            192 devices (within 3.2 % in 9 s).
        hull_additions_each: additions for one of these pairs at most: some 20 s on one core if all
            were made. More is left to bounds.
        hull_additions: additions for all of them, but for the first 16: some 75 s on two cores.
        coarse_gap: share to which a series-parallel graph is searched on a mesh that is not the
            last. Its strategies only begin the next mesh's search.
        exact_points: points of all tables of an exact search: some seconds. With as many again,
            searches of some hundred operators on 4 devices take minutes.
        exact_additions: additions of all tables of an exact search of few cells: about a second.
            What takes more is mostly searched within a gap in less.
        unlike_additions: of them, where bounds leave out little and subgraphs are not alike.
        short_additions: additions of each stage of a short branch and bound: some seconds. Where a
            stage does not end within them, an exact search may take more.
        branching_additions: additions of a branch and bound, after which no part is looked at.
        stage_additions: of each of its stages, gaps that are looked for one after the other.
        stalled_additions: of a stage, while its gap becomes hardly narrower and more parts wait.
        line_additions: what a pair of weights takes besides sweeps, as so many additions; exact
            searches of parts in proportion.
        leaf_configurations: configurations of a part that is searched exactly.
        leaf_points: points of all tables of such a search.

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
    supported_rounds: tuple[tuple[int, int], ...] = ((8, 1), (8, 2))
    supported_round_additions: float = 2.5e10
    bucket_cells: int = 1 << 22
    closing_gap: float = 0.001
    closing_gap_cells: int = 2_000_000
    closing_weights: int = 16
    closing_additions: float = 6e10
    hull_weights: int = 240
    hull_additions_each: float = 2e10
    hull_additions: float = 1.5e11
    coarse_gap: float = 0.05
    exact_points: int = 300_000
    exact_additions: float = 3e8
    unlike_additions: float = 4e7
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
            if isinstance(value, tuple):
                rule = "has rounds of at least 2 pairs of weights and 1 sweep"
                valid = value and all(weights >= 2 and sweeps >= 1 for weights, sweeps in value)
            else:
                rule = f"is at least {int(field.name in _NOT_ZERO)}"
                valid = value >= int(field.name in _NOT_ZERO)
            if not valid:
                raise OptionError(
                    f"{field.name} {rule}. Got {value}; the default is {field.default}."
                )

    def scaled(self, factor: float) -> SearchLimits:
        """All counts ``factor`` times as large, down to the least that is allowed; shares stay, and
        what is asked for. Of rounds weights times sweeps is one count."""
        counts = {
            field.name: _scaled(getattr(self, field.name), factor, int(field.name in _NOT_ZERO))
            for field in fields(self)
            if not field.name.endswith(("_gap", "_gap_cells", "_share"))
        }
        return replace(self, **counts)

    @property
    def context_branch_states(self) -> int:
        """`branch_states` where bounds and known strategies keep tables small: 40 times as many,
        with which BERT needs no heuristic elimination on 8 devices."""
        return 40 * self.branch_states

    @property
    def promising_points(self) -> int:
        """Points of a frontier of promising configurations alone, beyond which the search of all
        would not end: on the way to it are tables of some fifty to a hundred times as many."""
        return self.table_points // 60

    @property
    def exact(self) -> SearchLimits:
        """Of an exact search of few cells."""
        return replace(self, table_points=self.exact_points, table_additions=self.exact_additions)

    @property
    def longer_exact(self) -> SearchLimits:
        """Of one that goes on where nothing else comes near: four times as many additions, whatever
        is alike, and as many points as these make."""
        additions = 4 * self.exact_additions
        return replace(self, table_additions=additions, unlike_additions=additions)

    @property
    def leaf(self) -> SearchLimits:
        """Of an exact search of a part: `leaf_points`, and a thousand additions for each."""
        points = self.leaf_points
        return replace(self, table_points=points, table_additions=1_000 * points)

    @property
    def short_branching(self) -> SearchLimits:
        """Of a branch and bound that ends where one of its stages stalls."""
        stalled = self.short_additions / 4
        return replace(self, stage_additions=self.short_additions, stalled_additions=stalled)

    def can_bound(self, problem: Problem) -> bool:
        """Whether bounds hold, costs being nowhere negative, and are worth their time."""
        cells = sum(edge.time.size for edge in problem.edges)
        return cells > self.bounded_cells and not problem.has_negative

    def gap(self, problem: Problem) -> float:
        """To which an approximate frontier is searched where no epsilon is given."""
        cells = sum(edge.time.size for edge in problem.edges)
        return self.closing_gap if cells <= self.closing_gap_cells else self.approximate_gap

    def simplified_states(self, nodes: int) -> float:
        """`simplified_left` of a graph of so many nodes."""
        return self.simplified_left * max(1.0, nodes / self.simplified_nodes)


def _scaled(count: Any, factor: float, least: int) -> Any:
    if isinstance(count, tuple):
        root = factor**0.5
        return tuple(
            (_scaled(weights, root, 2), _scaled(sweeps, root, 1)) for weights, sweeps in count
        )
    return max(least, round(factor * count)) if isinstance(count, int) else factor * count


DEFAULT_LIMITS = SearchLimits()
