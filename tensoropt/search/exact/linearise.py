"""Simplify one connected part of a graph to a chain: which node to mark, which to eliminate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from tensoropt.search.exact.branch_elimination import MergedStates, eliminate_branch
from tensoropt.search.exact.heuristic_elimination import eliminate_by_choice, fold
from tensoropt.search.exact.memo import Memo
from tensoropt.search.exact.node_elimination import eliminate_node
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.watch import tell

__all__ = ["linearise", "simplify"]

# A node between two edges is eliminated at once where that takes no more additions than this, and
# while all of them together take no more than so many times as many.
_FEW_ADDITIONS, _TIMES = 1 << 20, 128
# And where it has at most so many points a state, and its edges so many a cell.
_FEW_POINTS = 4


def _component(graph: SearchGraph, start: int) -> list[int]:
    return sorted([start, *(node for node, _ in _outward(graph, start, set()))])


def _outward(graph: SearchGraph, start: int, marked: set[int]) -> Iterator[tuple[int, int]]:
    """Unmarked nodes that ``start`` reaches and their distances, nearest first, then by number."""
    seen, ring, distance = {start, *marked}, [start], 0
    while ring:
        distance += 1
        ring = sorted({far for node in ring for far in graph.neighbours(node)} - seen)
        seen.update(ring)
        for node in ring:
            yield node, distance


def _first_operator(graph: SearchGraph) -> int:
    """Where the chain begins: an operator that nothing in its component comes before.

    The paper breaks ties between such operators at random. Here one with the fewest neighbours
    is preferred, so that an input that many operators share (an attention mask) is not it, then
    one with the longest path ahead, then the first.
    """
    component = _component(graph, min(graph.nodes))
    ahead: dict[int, int] = {}
    for node in reversed(component):
        ahead[node] = 1 + max(
            (ahead[far] for far in graph.neighbours(node) if far > node), default=0
        )
    sources = [node for node in component if all(far > node for far in graph.neighbours(node))]
    return min(sources, key=lambda node: (graph.degree(node), -ahead[node], node))


def _extend(graph: SearchGraph, chain: list[int]) -> None:
    """Mark on while the last marked operator has one neighbour besides the one before it."""
    while True:
        ahead = [far for far in graph.neighbours(chain[-1]) if far not in chain[-2:-1]]
        if len(ahead) != 1:
            return
        chain.append(ahead[0])


class _Candidates:
    """What may be eliminated next, known anew only around what has been eliminated.

    Args:
        graph: that nodes are eliminated from.
        nodes: of the component that is simplified.
        max_states: that a node may have after a branch elimination.

    Attributes:
        simple: nodes that have a single state, one neighbour or two.
    """

    def __init__(self, graph: SearchGraph, nodes: Iterable[int], max_states: int) -> None:
        self.simple: set[int] = set()
        self._graph, self._max_states = graph, max_states
        self._merged = MergedStates(graph)
        self._states: dict[tuple[int, int], int] = {}
        # How many states it makes, the node and what it is merged into; some are out of date.
        self._branches: list[tuple[int, int, int]] = []
        for node in nodes:
            self._look_at(node)

    def around(self, *nodes: int) -> set[int]:
        """What changes when these are eliminated or merged, as they are joined now."""
        return {*nodes, *(far for node in nodes for far in self._graph.neighbours(node))}

    def changed(self, nodes: Iterable[int]) -> None:
        """Some nodes are gone, or have other edges or states."""
        for node in sorted(nodes):
            self.simple.discard(node)
            if node in self._graph.nodes:
                self._look_at(node)

    def _look_at(self, node: int) -> None:
        graph = self._graph
        if graph.states(node) == 1 or 1 <= graph.degree(node) <= 2:
            self.simple.add(node)
        for far in graph.neighbours(node):
            pair = min(node, far), max(node, far)
            states = self._merged.of(*pair)
            if states != self._states.get(pair):
                self._states[pair] = states
                if states <= self._max_states:
                    heappush(self._branches, (states, *pair))
                    heappush(self._branches, (states, *pair[::-1]))

    def branch(self, marked: set[int]) -> tuple[int, int] | None:
        """An unmarked node and its neighbour that have the fewest states together."""
        graph = self._graph
        while self._branches:
            states, node, into = heappop(self._branches)
            pair = min(node, into), max(node, into)
            is_joined = node in graph.nodes and into in graph.neighbours(node)
            if is_joined and node not in marked and self._states[pair] == states:
                return node, into
        return None


def _eliminate_simply(graph: SearchGraph, chain: list[int], candidates: _Candidates) -> bool:
    """Eliminate the nearest node that has a single state, one neighbour or two."""
    if candidates.simple.issubset(chain):
        return False
    for node, _ in _outward(graph, chain[-1], set(chain)):
        if node not in candidates.simple:
            continue
        around = candidates.around(node)
        if graph.states(node) == 1:
            fold(graph, node)
        elif graph.degree(node) == 1:
            eliminate_branch(graph, node, graph.neighbours(node)[0])
        else:
            eliminate_node(graph, node)
        candidates.changed(around)
        return True
    return False


def _eliminate_branch(graph: SearchGraph, chain: list[int], candidates: _Candidates) -> bool:
    """Merge the two neighbours that have the fewest states together, if few enough."""
    best = candidates.branch(set(chain))
    if best is None:
        return False
    around = candidates.around(*best)
    eliminate_branch(graph, *best)
    candidates.changed(around)
    return True


def _eliminate_heuristically(graph: SearchGraph, chain: list[int], candidates: _Candidates) -> bool:
    """Decide the node that has the most neighbours: what it leaves is simplest without it."""
    rest = [node for node, _ in _outward(graph, chain[-1], set(chain))]
    if not rest:
        return False
    node = min(rest, key=lambda node: (-graph.degree(node), node))
    around = candidates.around(node)
    eliminate_by_choice(graph, node)
    candidates.changed(around)
    return True


def linearise(graph: SearchGraph, max_states: int) -> list[int]:
    """Turn the component of the lowest numbered node into a chain (paper, algorithm 2).

    The chain's operators are marked one by one and never eliminated. All but the last have no
    neighbours but the marked ones beside them, so whatever is merged or joined elsewhere, the
    chain stays linear. Nodes near the end of the chain are eliminated first, so that what is
    linear further on is left to the dynamic program.

    Returns:
        The nodes of the chain in order; the graph has edges between consecutive ones. Where the
        graph is pruned out, it is no chain yet.
    """
    chain = [_first_operator(graph)]
    whole = len(graph.nodes)
    candidates = _Candidates(graph, _component(graph, chain[0]), max_states)
    while True:
        _extend(graph, chain)
        tell("eliminations", whole - len(graph.nodes), whole)
        if graph.is_pruned_out or not (
            _eliminate_simply(graph, chain, candidates)
            or _eliminate_branch(graph, chain, candidates)
            or _eliminate_heuristically(graph, chain, candidates)
        ):
            return chain


def simplify(graph: SearchGraph) -> None:
    """Eliminate, before anything is known, what is no trouble: nodes with a single state, and
    those with one neighbour or two while few points come of it."""
    spent = 0
    waiting = sorted(graph.nodes)
    graph.memo = Memo()
    while waiting:
        again: set[int] = set()
        for node in waiting:
            work = _simple_work(graph, node)
            if work is None or spent + work > _TIMES * _FEW_ADDITIONS or len(graph.nodes) == 1:
                continue
            spent += work
            again.update(graph.neighbours(node))
            if graph.states(node) == 1:
                fold(graph, node)
            elif graph.degree(node) == 1:
                eliminate_branch(graph, node, graph.neighbours(node)[0])
            else:
                eliminate_node(graph, node)
            again.discard(node)
        waiting = sorted(again & graph.nodes.keys())
    graph.memo = None


def _simple_work(graph: SearchGraph, node: int) -> int | None:
    """How many additions it takes to eliminate a node; None if that is not simple."""
    near = graph.neighbours(node)
    if graph.states(node) == 1:
        return 0
    if not 1 <= len(near) <= 2:
        return None
    tables = [graph.nodes[node]]
    tables += [graph.nodes[near[0]]] if len(near) == 1 else []
    edges = [graph.stored(node, far).table for far in near]
    if any(table.memory.size > _FEW_POINTS * table.rows for table in (*tables, *edges)):
        return None
    work = graph.nodes[node].memory.size
    for table in edges:
        work = work * table.rows // graph.states(node)
    return work if work <= _FEW_ADDITIONS else None
