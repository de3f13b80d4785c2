"""Where a step has branches that need nothing of each other (Unity, section 5.2).

Among parts in sequence the one in parallel with most work beside its largest branch is a *fork*;
the parts before are its *stem*, those behind and its small branches its *rest*. Branches may fork
in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scipy.cluster.hierarchy import DisjointSet

from tensoropt.pipeline.branches.decomposition import Parallel, Series, Tree, Whole, places_of

__all__ = ["Fork", "forked", "sharing_together"]

_SMALL = 0.01
"""Share of a fork's work below which a branch needs no devices of its own."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Components of a step, of which branches can run at once.

    Attributes:
        places: the components, ascending.
        stem: those that branches read, before all of them.
        branches: at least two, by descending work; or none.
        rest: those after the branches, and branches that are not worth devices of their own.
    """

    places: tuple[int, ...]
    stem: tuple[int, ...] = ()
    branches: tuple[Fork, ...] = ()
    rest: tuple[int, ...] = ()


def forked(tree: Tree, work: Sequence[float]) -> Fork:
    """The fork with most work beside its largest branch, and those in its branches.

    Args:
        tree: the components.
        work: of each.
    """
    return _Forks(work).of(tree)


def sharing_together(fork: Fork, states: Iterable[Collection[int]]) -> Fork | None:
    """The fork with branches that share a state as one branch, which forks into these in turn.

    On devices of their own such branches add up their gradients over all of these. None where no
    branches share any, or all do.

    Args:
        fork: at least two branches.
        states: the components that hold each.
    """
    number = {place: n for n, branch in enumerate(fork.branches) for place in branch.places}
    together = DisjointSet(range(len(fork.branches)))
    for holders in states:
        own = [number[place] for place in holders if place in number]
        for first, second in pairwise(own):
            together.merge(first, second)
    groups = [sorted(group) for group in together.subsets()]
    if len(groups) in (1, len(fork.branches)):
        return None
    branches = []
    for group in sorted(groups):
        own_branches = tuple(fork.branches[n] for n in group)
        places = tuple(sorted(place for branch in own_branches for place in branch.places))
        joined = Fork(places, branches=own_branches)
        branches.append(joined if len(group) > 1 else own_branches[0])
    return Fork(fork.places, fork.stem, tuple(branches), fork.rest)


class _Forks:
    def __init__(self, work: Sequence[float]) -> None:
        self._work = work

    def of(self, tree: Tree) -> Fork:
        """See `forked`."""
        places = tuple(places_of(tree))
        if not self._beside(tree):
            return Fork(places)
        parts: Sequence[Tree] = tree.parts if isinstance(tree, Series) else [tree]
        chosen = max(range(len(parts)), key=lambda number: self._beside(parts[number]))
        stem = [place for part in parts[:chosen] for place in places_of(part)]
        rest = [place for part in parts[chosen + 1 :] for place in places_of(part)]
        part = parts[chosen]
        assert isinstance(part, Parallel), "others have nothing beside another"
        large, small = self._by_size(part)
        rest += [place for branch in small for place in places_of(branch)]
        if len(large) == 1:
            inner = self.of(large[0])
            stem, branches, rest = [*stem, *inner.stem], inner.branches, [*inner.rest, *rest]
        else:
            branches = tuple(map(self.of, large))
        return Fork(places, tuple(stem), branches, tuple(sorted(rest)))

    def _beside(self, tree: Tree) -> float:
        """Work beside the largest branch, of the fork that `of` takes."""
        if isinstance(tree, Whole):
            return 0.0
        if isinstance(tree, Series):
            return max(map(self._beside, tree.parts))
        large, _ = self._by_size(tree)
        if len(large) == 1:
            return self._beside(large[0])
        return sum(map(self._sum, large[1:]))

    def _by_size(self, tree: Parallel) -> tuple[list[Tree], list[Tree]]:
        """Branches by descending work: those that may have devices of their own, at least one, and
        those that run with the rest."""
        branches = sorted(tree.branches, key=lambda branch: -self._sum(branch))
        least = _SMALL * sum(map(self._sum, branches))
        count = max(1, sum(self._sum(branch) > least for branch in branches))
        return branches[:count], branches[count:]

    def _sum(self, tree: Tree) -> float:
        return sum(self._work[place] for place in places_of(tree))
