"""Forks: the branches of a step that do not depend on each other (Unity, section 5.2).

A decomposed step is a sequence of parts. The parallel part with the most work outside its largest
branch becomes a *fork*. The parts before it are its *stem*. The parts after it, and its branches
with little work, are its *rest*. A branch of a fork may fork again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scipy.cluster.hierarchy import DisjointSet

from tensoropt.pipeline.branches.decomposition import Parallel, Series, Tree, Whole, places_of

__all__ = ["Fork", "forked", "sharing_together"]

_SMALL = 0.01
"""A branch with at most this share of its fork's work gets no devices of its own."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Components of a step, with branches that can run at the same time.

    Attributes:
        places: all components, ascending.
        stem: the components before the branches.
        branches: at least two, by descending work; or none.
        rest: the components after the branches, and those of branches with little work.
    """

    places: tuple[int, ...]
    stem: tuple[int, ...] = ()
    branches: tuple[Fork, ...] = ()
    rest: tuple[int, ...] = ()


def forked(tree: Tree, work: Sequence[float]) -> Fork:
    """Return the fork with the most work outside its largest branch, with its nested forks.

    Args:
        tree: the decomposed components.
        work: the work of each component.
    """
    return _Forks(work).of(tree)


def sharing_together(fork: Fork, states: Iterable[Collection[int]]) -> Fork | None:
    """Return the fork in which branches that share a state are one branch, which forks again.

    If branches that share a state are on different devices, their gradients have to be summed over
    all these devices.

    Args:
        fork: a fork with at least two branches.
        states: the components that hold each state.

    Returns:
        The fork; None if no branches share a state, or if all branches would be one.
    """
    number = {place: n for n, branch in enumerate(fork.branches) for place in branch.places}
    together = DisjointSet(range(len(fork.branches)))
    for holders in states:
        holding_branches = [number[place] for place in holders if place in number]
        for first, second in pairwise(holding_branches):
            together.merge(first, second)
    groups = [sorted(group) for group in together.subsets()]
    if len(groups) in (1, len(fork.branches)):
        return None
    branches = []
    for group in sorted(groups):
        members = tuple(fork.branches[n] for n in group)
        places = tuple(sorted(place for branch in members for place in branch.places))
        joined = Fork(places, branches=members)
        branches.append(joined if len(group) > 1 else members[0])
    return Fork(fork.places, fork.stem, tuple(branches), fork.rest)


class _Forks:
    """The recursion of `forked`."""

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
        assert isinstance(part, Parallel), "only parallel parts have work outside a largest branch"
        large, small = self._by_size(part)
        rest += [place for branch in small for place in places_of(branch)]
        if len(large) == 1:
            inner = self.of(large[0])
            stem, branches, rest = [*stem, *inner.stem], inner.branches, [*inner.rest, *rest]
        else:
            branches = tuple(map(self.of, large))
        return Fork(places, tuple(stem), branches, tuple(sorted(rest)))

    def _beside(self, tree: Tree) -> float:
        """Return the work outside the largest branch, of the fork that `of` returns."""
        if isinstance(tree, Whole):
            return 0.0
        if isinstance(tree, Series):
            return max(map(self._beside, tree.parts))
        large, _ = self._by_size(tree)
        if len(large) == 1:
            return self._beside(large[0])
        return sum(map(self._sum, large[1:]))

    def _by_size(self, tree: Parallel) -> tuple[list[Tree], list[Tree]]:
        """Return the branches that may get devices of their own, and those with little work.

        Both lists are by descending work; the first has at least one branch.
        """
        branches = sorted(tree.branches, key=lambda branch: -self._sum(branch))
        least = _SMALL * sum(map(self._sum, branches))
        count = max(1, sum(self._sum(branch) > least for branch in branches))
        return branches[:count], branches[count:]

    def _sum(self, tree: Tree) -> float:
        return sum(self._work[place] for place in places_of(tree))
