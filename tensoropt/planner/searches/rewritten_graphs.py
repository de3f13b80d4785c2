"""Rewritten graphs that may be worth a search: TASO's backtracking, by an estimate of a step.

The queue and the pruning are those of Jia et al., "TASO: optimizing deep learning computation with
automatic generation of graph substitutions" (2019), section 5, as Unity has them (section 5.1). A
step is estimated without communication, its work divided by the devices: what a graph takes when it
is parallelized is for `tensoropt.planner.searches.joint_search`. On the way to a faster graph
there may be slower ones (Unity, Figure 5): what makes a graph slower is looked at together with
what can be done with the result, as one move.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tensoropt.cost.model import CostModel
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of, redundant
from tensoropt.problem.operators.local_work import attributes_that_matter, operator_work
from tensoropt.rewriting.graphs.application import Rewrite
from tensoropt.rewriting.graphs.moves import moves
from tensoropt.rewriting.substitutions import Substitution

__all__ = ["Candidate", "JointLimits", "StepEstimate", "candidates"]


@dataclass(frozen=True, slots=True)
class JointLimits:
    """The budget of a joint search.

    Attributes:
        threshold: by what factor a step may be longer than the fastest so far, for its graph to be
            searched (Unity and TASO: 1.05).
        on_the_way: by what factor it may be longer on the way, within one move.
        graphs: how many rewritten graphs are estimated.
        searched: of how many the frontier is searched.
        deepest: moves one after another.
    """

    threshold: float = 1.05
    on_the_way: float = 2.0
    graphs: int = 128
    searched: int = 4
    deepest: int = 4


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A rewritten graph.

    Attributes:
        rewrites: from the script's graph to it, in their order.
        graph: after them.
        nanoseconds: an estimate of a step, without communication.
        moves: how many.
    """

    rewrites: tuple[Rewrite, ...]
    graph: Graph
    nanoseconds: int
    moves: int


class StepEstimate:
    """What graphs take on devices that communicate for nothing, each with its share.

    Args:
        cost: prices of work.
        devices: how many there are.
    """

    def __init__(self, cost: CostModel, devices: int) -> None:
        self._cost = cost
        self._devices = devices
        self._known: dict[Hashable, int] = {}

    def __call__(self, graph: Graph) -> int:
        """Nanoseconds of a step."""
        differentiated = differentiated_inputs(graph)
        return sum(
            self._of(operator, len(differentiated.get(operator.name, ()))) for operator in graph
        )

    def _of(self, operator: Operator, differentiated: int) -> int:
        key = (
            operator.type,
            tuple((spec.shape, spec.dtype) for spec in operator.input_specs),
            tuple((spec.shape, spec.dtype) for spec in operator.outputs),
            attributes_that_matter(operator),
            differentiated,
        )
        if key not in self._known:
            self._known[key] = self._priced(operator, differentiated)
        return self._known[key]

    def _priced(self, operator: Operator, differentiated: int) -> int:
        derivation = derivation_of(operator)
        whole = operator_work(operator, derivation, redundant(derivation), Mesh(()), differentiated)
        if whole is None:
            return 0
        time = self._cost.operator_nanoseconds(whole).total
        return time // self._devices if derivation.splittable else time


def candidates(
    graph: Graph,
    roots: Sequence[str],
    substitutions: Iterable[Substitution],
    estimate: StepEstimate,
    limits: JointLimits,
) -> list[Candidate]:
    """Rewritten graphs whose steps are estimated to take at most the threshold times the fastest
    one's, fastest first; without the graph itself."""
    substitutions = tuple(substitutions)
    search = _Backtracking(substitutions, roots, estimate, limits)
    return search.near(graph)


class _Backtracking:
    """One search of `candidates`, whose arguments it has."""

    def __init__(
        self,
        substitutions: Sequence[Substitution],
        roots: Sequence[str],
        estimate: StepEstimate,
        limits: JointLimits,
    ) -> None:
        self._substitutions = substitutions
        self._roots = roots
        self._estimate = estimate
        self._limits = limits
        self._seen: set[Hashable] = set()
        self._left = limits.graphs

    def near(self, graph: Graph) -> list[Candidate]:
        """See `candidates`."""
        start = Candidate((), graph, self._estimate(graph), 0)
        self._seen.add(_form(graph, self._roots))
        found: list[Candidate] = []
        fastest, number = start.nanoseconds, itertools.count()
        waiting = [(start.nanoseconds, next(number), start)]
        while waiting and self._left > 0:
            _, _, parent = heapq.heappop(waiting)
            for child in self._children(parent):
                # What is saved may be communication: as fast as the script's own will do.
                if child.nanoseconds > self._limits.threshold * start.nanoseconds:
                    continue
                found.append(child)
                fastest = min(fastest, child.nanoseconds)
                near = child.nanoseconds <= self._limits.threshold * fastest
                if near and child.moves < self._limits.deepest:
                    heapq.heappush(waiting, (child.nanoseconds, next(number), child))
        return sorted(found, key=lambda each: (each.nanoseconds, each.moves))

    def _children(self, parent: Candidate) -> Iterator[Candidate]:
        """The graphs of one move, and where that makes a slower one, of a second move with what the
        first has made."""
        for child in self._moved(parent, None):
            yield child
            slower = child.nanoseconds > parent.nanoseconds
            if slower and child.nanoseconds <= self._limits.on_the_way * parent.nanoseconds:
                new = frozenset(child.graph.operators.keys() - parent.graph.operators.keys())
                for further in self._moved(child, new):
                    if further.nanoseconds < parent.nanoseconds:
                        yield replace(further, moves=child.moves)

    def _moved(self, parent: Candidate, touching: frozenset[str] | None) -> Iterator[Candidate]:
        for move in moves(parent.graph, self._substitutions, self._roots, touching):
            form = _form(move.graph, self._roots)
            if form in self._seen:
                continue
            if not self._left:
                return
            self._seen.add(form)
            self._left -= 1
            rewrites = (*parent.rewrites, *move.rewrites)
            yield Candidate(rewrites, move.graph, self._estimate(move.graph), parent.moves + 1)


def _arguments(made: list[tuple[int, int]], type_: str) -> tuple[tuple[int, int], ...]:
    """What an operator reads; of a sum or product in any order."""
    return tuple(sorted(made) if type_ in ("Add", "AddV2", "Mul") else made)


def _form(graph: Graph, roots: Sequence[str]) -> Hashable:
    """Equal for graphs that compute the same in the same way, whatever the names."""
    form: dict[str, int] = {}
    for name, operator in graph.operators.items():
        own = name if operator.is_variable or operator.is_placeholder else ""
        tag = operator.gradient
        value = operator.outputs[0].value if operator.is_constant else None
        form[name] = hash(
            (
                own,
                operator.type,
                attributes_that_matter(operator) if tag is None else (tag.call, tag.part),
                _arguments([(form[t.operator], t.index) for t in operator.inputs], operator.type),
                None if tag is None else form[tag.x.operator],
                None if value is None else value.tobytes(),
                tuple(sorted(form[c] for c in operator.control_inputs if c in form)),
            )
        )
    return tuple(sorted(form[name] for name in roots if name in form)), len(graph)
