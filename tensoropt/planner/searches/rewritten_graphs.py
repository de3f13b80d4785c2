"""Rewritten graphs that may be worth a search, found by TASO's backtracking with a bound of a step.

The queue and the pruning are those of Jia et al., "TASO: optimizing deep learning computation with
automatic generation of graph substitutions" (2019), section 5, as Unity uses them (section 5.1).
The time of a step is estimated with its communication (`tensoropt.planner.searches.step_estimate`).
A faster graph may be reached through a slower one (Unity, Figure 5). So if a move makes a graph
slower, it is combined with a second move of the operators that it made, and the two count as one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from tensoropt.graph.operator import Graph, Operator
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.rewritten.application import Rewrite
from tensoropt.transformations.rewritten.moves import Move, moves
from tensoropt.transformations.rewritten.patterns import Patterns

__all__ = ["THRESHOLD", "RewrittenGraph", "candidates"]


THRESHOLD = 1.05
"""A graph's frontier is searched if its step takes at most this multiple of the fastest step so far
(Unity and TASO use the same)."""
_ON_THE_WAY = 2.0
"""The most that a step may become longer within one move, as a factor."""
_GRAPHS = 128
"""The most rewritten graphs that are estimated."""
_OPERATORS = 80_000
"""The most operators of all estimated graphs together."""
_DEEPEST = 4
"""The most moves one after another."""
_GAIN = 0.03
"""The least share of a step that `_DEEPEST` moves together have to gain. A sequence of moves that
gains less than its part of it is not continued."""


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenGraph:
    """A graph after substitutions.

    Attributes:
        rewrites: the substitutions that lead from the script's graph to it, in order.
        graph: the graph.
        nanoseconds: a lower bound of its step.
        moves: the number of moves that lead to it.
    """

    rewrites: tuple[Rewrite, ...]
    graph: Graph
    nanoseconds: int
    moves: int


def candidates(
    graph: Graph,
    roots: Sequence[str],
    substitutions: Iterable[Substitution],
    estimate: StepEstimate,
    share: float = THRESHOLD,
    pinned: Collection[str] = (),
) -> list[RewrittenGraph]:
    """Return the rewritten graphs that may be faster, the fastest first.

    When the time of the current `Watch` is over, these are the graphs known by then.

    Args:
        graph: the script's graph, which is not returned.
        roots: the operators that the step runs.
        substitutions: the substitutions that are applied.
        estimate: bounds the time of steps.
        share: the most time of a returned graph, as a multiple of the script's graph.
        pinned: names of operators that every graph keeps.
    """
    search = _Backtracking(Patterns(substitutions), roots, estimate, share, pinned)
    return search.near(graph)


class _Backtracking:
    """One search of `candidates`, with the same arguments."""

    def __init__(
        self,
        patterns: Patterns,
        roots: Sequence[str],
        estimate: StepEstimate,
        share: float,
        pinned: Collection[str],
    ) -> None:
        self._patterns = patterns
        self._roots = roots
        self._estimate = estimate
        self._pinned = pinned
        self._share = share
        self._first_moves: Iterator[Move] = iter(())
        self._seen: set[Hashable] = set()
        self._own_forms: dict[int, tuple[Operator, int]] = {}
        self._graphs = _GRAPHS
        self._operators = _OPERATORS

    def near(self, graph: Graph) -> list[RewrittenGraph]:
        """Return the result of `candidates`."""
        first_moves = moves(graph, self._patterns, self._roots, None, _is_over)
        first = next(first_moves, None)
        if first is None:
            return []  # without a bound of the graph's step, which takes longer than matching
        self._first_moves = chain([first], first_moves)
        start = RewrittenGraph((), graph, self._estimate(graph), 0)
        self._seen.add(self._form(graph))
        candidates: list[RewrittenGraph] = []
        number = count()
        most = self._share * start.nanoseconds
        waiting = [(start.nanoseconds, next(number), start)]
        while waiting and self._is_within_budget():
            _, _, parent = heapq.heappop(waiting)
            for child in self._children(parent):
                if child.nanoseconds <= most:
                    candidates.append(child)
                if self._continues(start, child):
                    heapq.heappush(waiting, (child.nanoseconds, next(number), child))
        return sorted(candidates, key=lambda graph: (graph.nanoseconds, graph.moves))

    def _continues(self, start: RewrittenGraph, child: RewrittenGraph) -> bool:
        """Whether the search continues from a graph: its moves have gained their part so far."""
        share = 1 - _GAIN * child.moves / _DEEPEST
        can_move = child.moves < _DEEPEST
        return can_move and child.nanoseconds <= share * start.nanoseconds

    def _children(self, parent: RewrittenGraph) -> Iterator[RewrittenGraph]:
        """Yield the graphs of one move, and of a slower move with a second one after it."""
        slower = []
        for child in self._after_move(parent, None):
            yield child
            if parent.nanoseconds < child.nanoseconds <= _ON_THE_WAY * parent.nanoseconds:
                slower.append(child)
        for child in sorted(slower, key=lambda graph: graph.nanoseconds):
            new = frozenset(child.graph.operators.keys() - parent.graph.operators.keys())
            for grandchild in self._after_move(child, new):
                if grandchild.nanoseconds < parent.nanoseconds:
                    yield replace(grandchild, moves=child.moves)

    def _after_move(
        self, parent: RewrittenGraph, touching: frozenset[str] | None
    ) -> Iterator[RewrittenGraph]:
        if not self._is_within_budget():
            return
        is_start = not parent.moves and touching is None
        of_parent = moves(parent.graph, self._patterns, self._roots, touching, _is_over)
        for move in self._first_moves if is_start else of_parent:
            self._operators -= len(move.graph)
            if not all(name in move.graph for name in self._pinned):
                continue
            form = self._form(move.graph)
            if form not in self._seen:
                self._seen.add(form)
                self._graphs -= 1
                rewrites = (*parent.rewrites, *move.rewrites)
                bound = self._estimate(move.graph)
                yield RewrittenGraph(rewrites, move.graph, bound, parent.moves + 1)
            if not self._is_within_budget():
                return

    def _is_within_budget(self) -> bool:
        return self._graphs > 0 and self._operators > 0 and not _is_over()

    def _form(self, graph: Graph) -> Hashable:
        """Return a key that is equal for graphs that differ in names of operators alone."""
        form: dict[str, int] = {}
        for name, operator in graph.operators.items():
            tag = operator.gradient
            own_form: Hashable
            if tag is None:
                own_form = self._own_form(operator)
            else:
                own_form = tag.call, tag.part, form[tag.x.operator]
            inputs = [(form[tensor.operator], tensor.index) for tensor in operator.inputs]
            if operator.type in ("Add", "AddV2", "Mul"):  # the order of inputs does not matter
                inputs.sort()
            controls = [form[control] for control in operator.control_inputs if control in form]
            form[name] = hash((own_form, *inputs, *sorted(controls)))
        return tuple(sorted(form[name] for name in self._roots if name in form)), len(graph)

    def _own_form(self, operator: Operator) -> int:
        """Return the form of an operator without its inputs. Graphs share operators."""
        known = self._own_forms.get(id(operator))
        if known is None:
            form: Hashable = operator.name
            if operator.is_constant:
                value = operator.outputs[0].value
                form = operator.name if value is None else (value.shape, value.tobytes())
            elif not (operator.is_variable or operator.is_placeholder):
                form = self._estimate.kind(operator)
            known = self._own_forms[id(operator)] = operator, hash(form)
        return known[1]


def _is_over() -> bool:
    return not seconds_left()
