"""Rewritten graphs that may be worth a search: TASO's backtracking, by a bound of a step.

The queue and the pruning are those of Jia et al., "TASO: optimizing deep learning computation with
automatic generation of graph substitutions" (2019), section 5, as Unity has them (section 5.1). A
step is estimated with its communication (`tensoropt.planner.searches.step_estimate`). On the way to
a graph that is faster there may be slower ones (Unity, Figure 5): a move that makes a graph slower
is looked at together with moves of the new operators, as one.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tensoropt.graph.operator import Graph
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.transformations.rewritten.application import Rewrite
from tensoropt.transformations.rewritten.moves import moves

__all__ = ["Candidate", "JointLimits", "candidates"]


@dataclass(frozen=True, slots=True)
class JointLimits:
    """The budget of a joint search.

    Attributes:
        threshold: by what factor a step may be longer than that of the script's graph, for a graph
            to be a candidate, and than the fastest so far, for it to be searched (Unity and TASO:
            1.05).
        on_the_way: by what factor it may be longer on the way, within one move.
        graphs: how many rewritten graphs are estimated.
        operators: how many operators these graphs have together, at most.
        searched: of how many the frontier is searched.
        deepest: moves one after another.
        gain: share of a step that all moves gain together, at least; one that gains less than its
            part of it is not followed.
    """

    threshold: float = 1.05
    on_the_way: float = 2.0
    graphs: int = 128
    operators: int = 80_000
    searched: int = 4
    deepest: int = 4
    gain: float = 0.03


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A rewritten graph.

    Attributes:
        rewrites: from the script's graph to it, in their order.
        graph: after them.
        nanoseconds: a bound of a step.
        moves: how many.
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
    limits: JointLimits,
    share: float | None = None,
) -> list[Candidate]:
    """Rewritten graphs that may be faster, fastest first; without the graph itself.

    Args:
        graph: the script's.
        roots: the operators that the step runs.
        substitutions: that are looked for.
        estimate: bounds of steps.
        limits: the budget.
        share: of the bound of the script's graph, which a candidate's is at most;
            `JointLimits.threshold` if None.
    """
    search = _Backtracking(tuple(substitutions), roots, estimate, limits, share)
    return search.near(graph)


class _Backtracking:
    """One search of `candidates`, whose arguments it has."""

    def __init__(
        self,
        substitutions: Sequence[Substitution],
        roots: Sequence[str],
        estimate: StepEstimate,
        limits: JointLimits,
        share: float | None,
    ) -> None:
        self._substitutions = substitutions
        self._roots = roots
        self._estimate = estimate
        self._limits = limits
        self._share = limits.threshold if share is None else share
        self._seen: set[Hashable] = set()
        self._graphs = limits.graphs
        self._operators = limits.operators

    def near(self, graph: Graph) -> list[Candidate]:
        """See `candidates`."""
        start = Candidate((), graph, self._estimate(graph), 0)
        self._seen.add(self._form(graph))
        found: list[Candidate] = []
        number = itertools.count()
        most = self._share * start.nanoseconds
        waiting = [(start.nanoseconds, next(number), start)]
        while waiting and self._is_within_budget():
            _, _, parent = heapq.heappop(waiting)
            for child in self._children(parent):
                if child.nanoseconds <= most:
                    found.append(child)
                if self._is_on_its_way(start, child):
                    heapq.heappush(waiting, (child.nanoseconds, next(number), child))
        return sorted(found, key=lambda each: (each.nanoseconds, each.moves))

    def _is_on_its_way(self, start: Candidate, child: Candidate) -> bool:
        """Whether a graph's moves have gained their part, and some are left."""
        wanted = 1 - self._limits.gain * child.moves / self._limits.deepest
        is_left = child.moves < self._limits.deepest
        return is_left and child.nanoseconds <= wanted * start.nanoseconds

    def _children(self, parent: Candidate) -> Iterator[Candidate]:
        """The graphs of one move, and where that makes a slower one, of a second move with what the
        first has made."""
        slower = []
        for child in self._moved(parent, None):
            yield child
            if (
                parent.nanoseconds
                < child.nanoseconds
                <= self._limits.on_the_way * parent.nanoseconds
            ):
                slower.append(child)
        for child in sorted(slower, key=lambda each: each.nanoseconds):
            new = frozenset(child.graph.operators.keys() - parent.graph.operators.keys())
            for further in self._moved(child, new):
                if further.nanoseconds < parent.nanoseconds:
                    yield replace(further, moves=child.moves)

    def _moved(self, parent: Candidate, touching: frozenset[str] | None) -> Iterator[Candidate]:
        if not self._is_within_budget():
            return
        for move in moves(parent.graph, self._substitutions, self._roots, touching):
            self._operators -= len(move.graph)
            form = self._form(move.graph)
            if form not in self._seen:
                self._seen.add(form)
                self._graphs -= 1
                rewrites = (*parent.rewrites, *move.rewrites)
                bound = self._estimate(move.graph)
                yield Candidate(rewrites, move.graph, bound, parent.moves + 1)
            if not self._is_within_budget():
                return

    def _is_within_budget(self) -> bool:
        return self._graphs > 0 and self._operators > 0

    def _form(self, graph: Graph) -> Hashable:
        """Equal for graphs that compute the same in the same way, whatever the names."""
        form: dict[str, int] = {}
        for name, operator in graph.operators.items():
            tag = operator.gradient
            what: Hashable = name
            if tag is not None:
                what = tag.call, tag.part, form[tag.x.operator]
            elif operator.is_constant:
                value = operator.outputs[0].value
                what = name if value is None else (value.shape, value.tobytes())
            elif not (operator.is_variable or operator.is_placeholder):
                what = self._estimate.kind(operator)
            read = [(form[t.operator], t.index) for t in operator.inputs]
            if operator.type in ("Add", "AddV2", "Mul"):  # in any order
                read.sort()
            controls = tuple(sorted([form[c] for c in operator.control_inputs if c in form]))
            form[name] = hash((what, tuple(read), controls))
        return tuple(sorted(form[name] for name in self._roots if name in form)), len(graph)
