"""Simplify one connected part of a graph to a chain: which nodes to mark, and which to
eliminate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from tensoropt.search.elimination_queue import EliminationQueue
from tensoropt.search.exact.branch_elimination import combinations, eliminate_branch
from tensoropt.search.exact.heuristic_elimination import eliminate_by_choice, fold
from tensoropt.search.exact.node_elimination import eliminate_node
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.like_subgraphs import Memo
from tensoropt.search.watch import look_at_clock, tell

__all__ = ["linearise", "simplify"]


def _component(graph: SearchGraph, start: int) -> list[int]:
    return sorted([start, *_outward(graph, start, set())])


def _outward(graph: SearchGraph, start: int, marked: set[int]) -> Iterator[int]:
    """Yield the unmarked nodes that ``start`` reaches, nearest first, then by number."""
    seen, ring = {start, *marked}, [start]
    while ring:
        ring = sorted({far for node in ring for far in graph.neighbours(node)} - seen)
        seen.update(ring)
        yield from ring


def _first_operator(graph: SearchGraph) -> int:
    """Return the first node of the chain: an operator without predecessors in its component.

    The paper breaks ties between these operators at random. Here the one with the fewest neighbours
    is preferred, which excludes an input of many operators (an attention mask), then one with the
    longest path ahead, then the first.
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
    """Mark nodes while the last marked one has one neighbour besides the one before it."""
    while True:
        ahead = [far for far in graph.neighbours(chain[-1]) if far not in chain[-2:-1]]
        if len(ahead) != 1:
            return
        chain.append(ahead[0])


class _Candidates:
    """The nodes that may be eliminated next, updated around each elimination.

    Args:
        graph: the graph that is simplified.
        nodes: of the component.
        max_states: the most states of a node after a branch elimination.

    Attributes:
        simple: nodes with a single state, one neighbour or two.
    """

    def __init__(self, graph: SearchGraph, nodes: Iterable[int], max_states: int) -> None:
        self.simple: set[int] = set()
        self._graph, self._max_states = graph, max_states
        # A node and the neighbour that it is merged into, by the number of states of the merger.
        self._branches: EliminationQueue[tuple[int, int]] = EliminationQueue()
        self._changed: set[int] = set()  # whose branches have not been counted since
        # For each node and neighbour, the combinations of slots on all other edges.
        self._combinations: dict[int, dict[int, int]] = {}
        self.changed(nodes)

    def around(self, *nodes: int) -> set[int]:
        """Return the nodes that change when these are eliminated or merged."""
        return {*nodes, *(far for node in nodes for far in self._graph.neighbours(node))}

    def changed(self, nodes: Iterable[int]) -> None:
        """Update nodes that are gone, or have other edges or states."""
        graph = self._graph
        for node in nodes:
            if node in graph.nodes and (graph.states(node) == 1 or 1 <= graph.degree(node) <= 2):
                self.simple.add(node)
            else:
                self.simple.discard(node)
            self._changed.add(node)
            self._combinations.pop(node, None)

    def branch(self, marked: set[int]) -> tuple[int, int] | None:
        """Return an unmarked node and its neighbour whose merger has the fewest states."""
        graph = self._graph
        self._count_branches()
        while (best := self._branches.pop()) is not None:
            (node, into), _ = best
            is_joined = node in graph.nodes and into in graph.neighbours(node)
            if is_joined and node not in marked:
                return node, into
        return None

    def _count_branches(self) -> None:
        graph = self._graph
        pairs = {
            (min(node, far), max(node, far))
            for node in self._changed & graph.nodes.keys()
            for far in graph.neighbours(node)
        }
        self._changed.clear()
        for pair in pairs:
            states = self._without(*pair) * self._without(*pair[::-1])
            for ends in (pair, pair[::-1]):
                if states <= self._max_states:
                    self._branches.set(ends, states)
                else:
                    self._branches.discard(ends)

    def _without(self, node: int, but: int) -> int:
        """Return the number of combinations of a node's slots on all its edges but one."""
        counted = self._combinations.setdefault(node, {})
        if but not in counted:
            counted[but] = combinations(self._graph, node, but)
        return counted[but]


def _eliminate_simple(graph: SearchGraph, node: int) -> None:
    """Eliminate a node with a single state, one neighbour or two."""
    if graph.states(node) == 1:
        fold(graph, node)
    elif graph.degree(node) == 1:
        eliminate_branch(graph, node, graph.neighbours(node)[0])
        graph.counts["branch"] += 1
    else:
        eliminate_node(graph, node)


def _eliminate_next(graph: SearchGraph, chain: list[int], candidates: _Candidates) -> bool:
    """Eliminate one unmarked node of the component; return whether there was one.

    The nearest node with a single state, one neighbour or two comes first; else one of the two
    neighbours whose merger has the fewest states, if these are few enough; else, by choice, the
    node with the most neighbours, since the graph is simplest without it.
    """
    marked = set(chain)
    simple = () if candidates.simple <= marked else _outward(graph, chain[-1], marked)
    node = next((each for each in simple if each in candidates.simple), None)
    if node is not None:
        around = candidates.around(node)
        _eliminate_simple(graph, node)
    elif (best := candidates.branch(marked)) is not None:
        around = candidates.around(*best)
        eliminate_branch(graph, *best)
        graph.counts["branch"] += 1
    else:
        left = list(_outward(graph, chain[-1], marked))
        if not left:
            return False
        node = min(left, key=lambda node: (-graph.degree(node), node))
        around = candidates.around(node)
        eliminate_by_choice(graph, node)
    candidates.changed(around)
    return True


def linearise(graph: SearchGraph, max_states: int) -> list[int]:
    """Turn the component of the lowest numbered node into a chain (paper, algorithm 2).

    The chain's operators are marked one by one and never eliminated. All but the last have no
    neighbours but the marked ones beside them, so the chain stays linear, whatever is merged
    elsewhere. Nodes near the end of the chain are eliminated first, so that linear parts further on
    are left to the dynamic program.

    Returns:
        The nodes of the chain in order; the graph has edges between consecutive ones. If the graph
            is pruned out, it is no chain yet.
    """
    chain = [_first_operator(graph)]
    whole = len(graph.nodes)
    candidates = _Candidates(graph, _component(graph, chain[0]), max_states)
    while True:
        _extend(graph, chain)
        tell("eliminations", whole - len(graph.nodes), whole)
        if graph.prune_again():
            candidates.changed(graph.nodes)
        if graph.is_pruned_out or not _eliminate_next(graph, chain, candidates):
            return chain


def simplify(graph: SearchGraph) -> None:
    """Eliminate nodes that make few points, before there are bounds.

    They have a single state, or one or two neighbours (`SearchLimits.simple_additions`).
    """
    waiting = sorted(graph.nodes)
    graph.memo = Memo()
    while waiting:
        again: set[int] = set()
        for node in waiting:
            look_at_clock()
            if len(graph.nodes) == 1 or _additions(graph, node) > graph.limits.simple_additions:
                continue
            again.update(graph.neighbours(node))
            _eliminate_simple(graph, node)
            again.discard(node)
        waiting = sorted(again & graph.nodes.keys())
    graph.memo = None


def _additions(graph: SearchGraph, node: int) -> float:
    """Return the additions to eliminate a node; infinite if `simplify` must not."""
    near = graph.neighbours(node)
    if graph.states(node) == 1:
        return 0
    if not 1 <= len(near) <= 2:
        return inf
    nodes = [graph.nodes[each] for each in ((node, *near) if len(near) == 1 else (node,))]
    edges = [graph.stored(node, far).table for far in near]
    if any(table.memory.size > graph.limits.simple_points * table.rows for table in nodes + edges):
        return inf
    additions = nodes[0].memory.size
    for table in edges:
        additions = additions * table.rows // nodes[0].rows
    return additions
