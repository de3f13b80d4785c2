"""A graph as operators in sequence and branches in parallel (Unity, section 5.2).

Unity splits a graph at the operators that every path passes, and in parallel where the graph falls
apart. Here every path passes an operator if it comes before or after each other operator, so a
graph may have several sources and ends. A graph in one piece without such an operator is split at a
join: an operator that is the first to read two parts. The join and all that depends on it follow
the parts that the others fall into. The join with most operators beside the largest part counts.
Reachability is kept as bits: O(n^2 / 64) for each level of nesting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scipy.cluster.hierarchy import DisjointSet

__all__ = ["Parallel", "Series", "Tree", "Whole", "decomposed", "places_of"]


@dataclass(frozen=True, slots=True)
class Whole:
    """Operators that are not divided.

    Attributes:
        places: their numbers, ascending.
    """

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Parts one after the other, at least two.

    Attributes:
        parts: each needs parts before it alone.
    """

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branches that need nothing of each other, at least two.

    Attributes:
        branches: by their first operator.
    """

    branches: tuple[Tree, ...]


Tree = Whole | Series | Parallel
_JOINS = 8
"""Joins that are looked at in a graph in one piece: enough for the models of `benchmarks`."""


def decomposed(places: Sequence[int], edges: Sequence[tuple[int, int]]) -> Tree:
    """Split some operators of a graph as far as they can be split.

    Args:
        places: numbers of the operators, at least one, in topological order.
        edges: (from, to) between operators; edges that leave ``places`` do not count.
    """
    sources: dict[int, list[int]] = {place: [] for place in places}
    for source, target in edges:
        if source in sources and target in sources:
            sources[target].append(source)
    return _split(list(places), sources)


def places_of(tree: Tree) -> list[int]:
    """The operators of a tree, ascending."""
    return sorted(_walk(tree))


def _walk(tree: Tree) -> Iterator[int]:
    if isinstance(tree, Whole):
        yield from tree.places
        return
    for part in tree.parts if isinstance(tree, Series) else tree.branches:
        yield from _walk(part)


def _split(places: list[int], sources: dict[int, list[int]]) -> Tree:
    apart = _apart(places, sources)
    if len(apart) > 1:
        return Parallel(tuple(_split(piece, sources) for piece in apart))
    passed = _passed_by_all(places, sources)
    parts: list[Tree] = []
    if not passed:
        ahead, behind = _at_a_join(places, sources)
        if not behind:
            return Whole(tuple(places))
        for each in (ahead, behind):
            _append(parts, _split(each, sources))
        return Series(tuple(parts))
    between: list[int] = []
    for place in places:
        if place not in passed:
            between.append(place)
            continue
        if between:
            _append(parts, _split(between, sources))
            between = []
        _append(parts, Whole((place,)))
    if between:
        _append(parts, _split(between, sources))
    return parts[0] if len(parts) == 1 else Series(tuple(parts))


def _apart(places: list[int], sources: dict[int, list[int]]) -> list[list[int]]:
    """The pieces that nothing links."""
    inside = DisjointSet(places)
    for place in places:
        for source in sources[place]:
            if source in inside:
                inside.merge(source, place)
    return sorted(sorted(piece) for piece in inside.subsets())


def _append(parts: list[Tree], part: Tree) -> None:
    """Append to a sequence, in which undivided operators that follow each other are one part."""
    for each in part.parts if isinstance(part, Series) else (part,):
        last = parts[-1] if parts else None
        if isinstance(last, Whole) and isinstance(each, Whole):
            parts[-1] = Whole(last.places + each.places)
        else:
            parts.append(each)


def _at_a_join(places: list[int], sources: dict[int, list[int]]) -> tuple[list[int], list[int]]:
    """What falls apart ahead of a join, and the join with all that depends on it; the latter is
    empty where no join has parts ahead."""
    best, found = 0, (places, list[int]())
    for join in _joins(places, sources):
        dependent = {join}
        for place in places[places.index(join) + 1 :]:
            if not dependent.isdisjoint(sources[place]):
                dependent.add(place)
        ahead = [place for place in places if place not in dependent]
        apart = _apart(ahead, sources)
        beside = len(ahead) - max(map(len, apart), default=0)
        if beside > best:
            best, found = beside, (ahead, sorted(dependent))
    return found


def _joins(places: list[int], sources: dict[int, list[int]]) -> list[int]:
    """The first readers of two parts, at most `_JOINS`, those that join most operators first."""
    parts, size = DisjointSet(places), dict.fromkeys(places, 1)
    found = []
    for place in places:
        joined = sorted({parts[source] for source in sources[place] if source in size})
        sizes = [size[each] for each in joined]
        if len(joined) > 1:
            found.append((sum(sizes) - max(sizes), place))
        for each in joined:
            parts.merge(each, place)
        size[parts[place]] = 1 + sum(sizes)
    return [place for _, place in sorted(found, reverse=True)[:_JOINS]]


def _passed_by_all(places: list[int], sources: dict[int, list[int]]) -> set[int]:
    """Operators that come before or after each other one."""
    number = {place: bit for bit, place in enumerate(places)}
    before = [0] * len(places)
    behind = [0] * len(places)
    for bit, place in enumerate(places):
        for source in sources[place]:
            if source in number:
                before[bit] |= before[number[source]] | 1 << number[source]
    for bit in reversed(range(len(places))):
        for source in sources[places[bit]]:
            if source in number:
                behind[number[source]] |= behind[bit] | 1 << bit
    last = len(places) - 1
    return {
        place
        for bit, place in enumerate(places)
        if before[bit].bit_count() + behind[bit].bit_count() == last
    }
