"""A graph as operators in sequence and branches in parallel (Unity, section 5.2).

Unity splits a graph at the operators that every path passes, and in parallel where the graph falls
apart. Here every path passes an operator if it comes before or after each other operator, so a
graph may have several sources and ends. A graph in one piece without such an operator is split at a
join: an operator that is the first to read two parts. The join and all that depends on it follow
the parts that the others fall into. The join with most operators beside the largest part counts.
Reachability is kept as bits: O(n^2 / 64) for each level of nesting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scipy.cluster.hierarchy import DisjointSet

__all__ = ["Parallel", "Series", "Tree", "Whole", "decomposed", "decomposed_by_work", "places_of"]


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
_DEEPEST = 64
"""Levels of nesting, below which parts stay whole: branches of fewer operators are seldom worth
devices of their own."""
_DEEPEST_JOINS = 2
"""The same of splits at joins, of which each takes a pass over the part for each join."""
_SMALL = 0.01
"""Share of all work up to which an operator is with its reader."""


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
    return _split(list(places), sources, _DEEPEST, _DEEPEST_JOINS)


def decomposed_by_work(work: Sequence[float], edges: Sequence[tuple[int, int]]) -> Tree:
    """`decomposed`, of all operators. Small ones that need nothing and that one operator reads
    (a cast of labels, a mask of dropout) are with their reader: each would nest all before it.

    Args:
        work: of each operator, in topological order.
        edges: (from, to) between operators.
    """
    readers: list[set[int]] = [set() for _ in work]
    sources: list[set[int]] = [set() for _ in work]
    for source, target in edges:
        readers[source].add(target)
        sources[target].add(source)
    most = _SMALL * sum(work)
    held: dict[int, list[int]] = {place: [place] for place in range(len(work))}
    for place in range(len(work)):
        if sources[place] or len(readers[place]) != 1 or sum(work[n] for n in held[place]) > most:
            continue
        (reader,) = readers[place]
        held[reader] += held.pop(place)
        sources[reader].discard(place)
    return _expanded(decomposed(list(held), edges), held)


def _expanded(tree: Tree, held: Mapping[int, Sequence[int]]) -> Tree:
    """A tree with what each operator holds in its place."""
    if isinstance(tree, Whole):
        return Whole(tuple(sorted(place for each in tree.places for place in held[each])))
    if isinstance(tree, Series):
        return Series(tuple(_expanded(part, held) for part in tree.parts))
    return Parallel(tuple(_expanded(branch, held) for branch in tree.branches))


def places_of(tree: Tree) -> list[int]:
    """The operators of a tree, ascending."""
    return sorted(_walk(tree))


def _walk(tree: Tree) -> Iterator[int]:
    if isinstance(tree, Whole):
        yield from tree.places
        return
    for part in tree.parts if isinstance(tree, Series) else tree.branches:
        yield from _walk(part)


def _split(places: list[int], sources: dict[int, list[int]], deepest: int, joins: int) -> Tree:
    if not deepest:
        return Whole(tuple(places))
    apart = _apart(places, sources)
    if len(apart) > 1:
        return Parallel(tuple(_split(piece, sources, deepest - 1, joins) for piece in apart))
    passed = _passed_by_all(places, sources)
    parts: list[Tree] = []
    if not passed:
        ahead, behind = _at_a_join(places, sources) if joins else (places, [])
        if not behind:
            return Whole(tuple(places))
        for each in (ahead, behind):
            _append(parts, _split(each, sources, deepest - 1, joins - 1))
        return Series(tuple(parts))
    between: list[int] = []
    for place in places:
        if place not in passed:
            between.append(place)
            continue
        if between:
            _append(parts, _split(between, sources, deepest - 1, joins))
            between = []
        _append(parts, Whole((place,)))
    if between:
        _append(parts, _split(between, sources, deepest - 1, joins))
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
