"""The decomposition of a graph into operators in sequence and branches in parallel.

Unity (section 5.2) splits a graph at operators that every path passes, and in parallel where the
graph consists of unconnected pieces. Here a graph may have several sources and ends: an operator
counts as passed by every path if it comes before or after each other operator.

A connected graph without such an operator is split at a join, an operator that is the first to read
two pieces. The join and all operators that depend on it come after the pieces into which the
remaining operators fall. Among several joins, the one with the most operators outside the largest
piece is taken. Reachability is stored in bits: O(n^2 / 64) for each level of nesting.
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
        places: the numbers of the operators, ascending.
    """

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """At least two parts, one after the other.

    Attributes:
        parts: a part depends on parts before it alone.
    """

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """At least two branches that do not depend on each other.

    Attributes:
        branches: in the order of their first operators.
    """

    branches: tuple[Tree, ...]


Tree = Whole | Series | Parallel
_JOINS = 8
"""The most joins that are tried in a connected graph. It suffices for the models of
`benchmarks`."""
_DEEPEST = 64
"""The most levels of nesting. Deeper branches have few operators, which are seldom worth devices of
their own."""
_DEEPEST_JOINS = 2
"""The most nested splits at joins. A split takes one pass over the graph for each join tried."""
_SMALL = 0.01
"""Operators with at most this share of all work stay with their reader."""


def decomposed(places: Sequence[int], edges: Sequence[tuple[int, int]]) -> Tree:
    """Split a graph, or a part of one, as far as it can be split.

    Args:
        places: the numbers of the operators, at least one, in topological order.
        edges: (from, to) between operators. Edges from or to other operators are ignored.
    """
    sources: dict[int, list[int]] = {place: [] for place in places}
    for source, target in edges:
        if source in sources and target in sources:
            sources[target].append(source)
    return _split(list(places), sources, _DEEPEST, _DEEPEST_JOINS)


def decomposed_by_work(work: Sequence[float], edges: Sequence[tuple[int, int]]) -> Tree:
    """Split all operators of a graph, with small sources joined to their reader.

    A small source has no inputs, one reader and little work (a cast of labels, a dropout mask). On
    its own, it would be a branch beside all operators before its reader.

    Args:
        work: the work of each operator, in topological order.
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
    """Return a tree in which each operator is replaced by the operators that it holds."""
    if isinstance(tree, Whole):
        return Whole(tuple(sorted(place for holder in tree.places for place in held[holder])))
    if isinstance(tree, Series):
        return Series(tuple(_expanded(part, held) for part in tree.parts))
    return Parallel(tuple(_expanded(branch, held) for branch in tree.branches))


def places_of(tree: Tree) -> list[int]:
    """Return the operators of a tree, ascending."""
    return sorted(_walk(tree))


def _walk(tree: Tree) -> Iterator[int]:
    if isinstance(tree, Whole):
        yield from tree.places
        return
    for part in tree.parts if isinstance(tree, Series) else tree.branches:
        yield from _walk(part)


def _split(places: list[int], sources: dict[int, list[int]], deepest: int, joins: int) -> Tree:
    """Split operators, with at most ``deepest`` levels of nesting and ``joins`` splits at joins."""
    if not deepest:
        return Whole(tuple(places))
    pieces = _pieces(places, sources)
    if len(pieces) > 1:
        return Parallel(tuple(_split(piece, sources, deepest - 1, joins) for piece in pieces))
    passed = _passed_by_all(places, sources)
    parts: list[Tree] = []
    if not passed:
        before, after = _split_at_join(places, sources) if joins else (places, [])
        if not after:
            return Whole(tuple(places))
        for half in (before, after):
            _append(parts, _split(half, sources, deepest - 1, joins - 1))
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


def _pieces(places: list[int], sources: dict[int, list[int]]) -> list[list[int]]:
    """Return the connected pieces of a graph."""
    inside = DisjointSet(places)
    for place in places:
        for source in sources[place]:
            if source in inside:
                inside.merge(source, place)
    return sorted(sorted(piece) for piece in inside.subsets())


def _append(parts: list[Tree], part: Tree) -> None:
    """Append a part to a sequence. Undivided operators that follow each other become one part."""
    for new in part.parts if isinstance(part, Series) else (part,):
        last = parts[-1] if parts else None
        if isinstance(last, Whole) and isinstance(new, Whole):
            parts[-1] = Whole(last.places + new.places)
        else:
            parts.append(new)


def _split_at_join(places: list[int], sources: dict[int, list[int]]) -> tuple[list[int], list[int]]:
    """Return the operators before the best join, and the join with all that depends on it.

    The second list is empty if the operators before every join are one piece.
    """
    most_beside, halves = 0, (places, list[int]())
    for join in _joins(places, sources):
        dependent = {join}
        for place in places[places.index(join) + 1 :]:
            if not dependent.isdisjoint(sources[place]):
                dependent.add(place)
        before = [place for place in places if place not in dependent]
        pieces = _pieces(before, sources)
        beside = len(before) - max(map(len, pieces), default=0)
        if beside > most_beside:
            most_beside, halves = beside, (before, sorted(dependent))
    return halves


def _joins(places: list[int], sources: dict[int, list[int]]) -> list[int]:
    """Return the operators that are the first to read two pieces, at most `_JOINS` of them.

    Joins with the most operators outside the largest joined piece come first.
    """
    pieces, size = DisjointSet(places), dict.fromkeys(places, 1)
    joins = []
    for place in places:
        joined = sorted({pieces[source] for source in sources[place] if source in size})
        sizes = [size[piece] for piece in joined]
        if len(joined) > 1:
            joins.append((sum(sizes) - max(sizes), place))
        for piece in joined:
            pieces.merge(piece, place)
        size[pieces[place]] = 1 + sum(sizes)
    return [place for _, place in sorted(joins, reverse=True)[:_JOINS]]


def _passed_by_all(places: list[int], sources: dict[int, list[int]]) -> set[int]:
    """Return the operators that come before or after each other operator."""
    number = {place: bit for bit, place in enumerate(places)}
    before = [0] * len(places)  # by operator: the bits of all operators that come before it
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
