"""Moves of a search over rewritten graphs: a substitution at all similar places at once.

Similar layers are rewritten alike. Separate choices for each of them would give as many graphs as
there are subsets of layers. All products that share a factor are merged, two by two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from tensoropt.graph.operator import Graph, TensorName
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tensoropt.transformations.rewritten.application import (
    Rewrite,
    apply,
    named_in_tags,
    rewrite_of,
)
from tensoropt.transformations.rewritten.matching import Match, Matcher
from tensoropt.transformations.rewritten.parts import operator_of
from tensoropt.transformations.rewritten.patterns import Patterns
from tensoropt.transformations.rewritten.term_builder import VIEWED
from tensoropt.transformations.rewritten.together import AtPlaces
from tensoropt.transformations.rewritten.views import COMMUTATIVE

__all__ = ["Move", "applicable", "moves"]


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A graph after a substitution at similar places.

    Attributes:
        rewrites: the rewrites in their order.
        graph: the graph after them.
    """

    rewrites: tuple[Rewrite, ...]
    graph: Graph


def applicable(substitutions: Iterable[Substitution]) -> tuple[Substitution, ...]:
    """The substitutions whose terms can be built in logical graphs.

    Parallelization operators are excluded, because the search of each graph chooses them, and so
    are substitutions whose source is only an input.
    """
    return tuple(
        substitution
        for substitution in substitutions
        if substitution.source.operators | substitution.target.operators <= VIEWED
        and not substitution.source.operators <= {INPUT, TUPLE}
        and not _differ_in_order(substitution)
    )


def _differ_in_order(substitution: Substitution) -> bool:
    """Whether the sides differ in the order of the arguments of sums and products alone."""
    source, target = substitution.source, substitution.target
    return source.operators == target.operators and _ordered(source) == _ordered(target)


def _ordered(term: Term) -> Term:
    """The term with the arguments of sums and products in one order."""
    arguments = tuple(map(_ordered, term.arguments))
    if term.operator in COMMUTATIVE:
        arguments = tuple(sorted(arguments, key=str))
    return Term(term.operator, arguments, term.parameters, term.name)


def moves(
    graph: Graph,
    patterns: Patterns,
    roots: Collection[str],
    touching: frozenset[str] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[Move]:
    """All moves from a graph.

    Args:
        graph: the graph of a step.
        patterns: the `applicable` substitutions.
        roots: the operators that are run or fetched.
        touching: names of operators; only places with one of them. None for all places.
        is_over: whether time is over; asked before each place is rewritten. Then the moves end.
    """
    matcher, tagged = Matcher(graph), named_in_tags(graph)
    behind = None if touching is None else _Behind(graph, touching)
    for substitution in matcher.fitting(patterns):
        places: dict[Hashable, list[Match]] = {}
        among = None if behind is None else behind.within(substitution.source.depth)
        for match in matcher.matches(substitution, among):
            if touching is not None and touching.isdisjoint(match.operators):
                continue
            if not any(tensor.operator in tagged for tensor in match.outputs):
                places.setdefault(_likeness(graph, substitution, match), []).append(match)
        for alike in places.values():
            move = _move(graph, substitution, alike, roots, is_over)
            if is_over():
                return
            if move is not None:
                yield move


class _Behind:
    """The operators behind some operators, by the number of reads between them.

    An output of a match that has one of the operators is among them, since each level of a term
    goes back by at most one read.
    """

    def __init__(self, graph: Graph, names: Collection[str]) -> None:
        self._readers: dict[str, list[str]] = {}
        for operator in graph:
            for tensor in operator.inputs:
                self._readers.setdefault(tensor.operator, []).append(operator.name)
        self._within = [frozenset(names)]

    def within(self, reads: int) -> frozenset[str]:
        """The operators, and those that are at most some reads behind one of them."""
        while len(self._within) <= reads:
            last = self._within[-1]
            readers = chain.from_iterable(self._readers.get(name, ()) for name in last)
            self._within.append(last.union(readers))
        return self._within[reads]


def _likeness(graph: Graph, substitution: Substitution, match: Match) -> Hashable:
    """A key of a place; places with equal keys are rewritten together.

    It has kinds of operators and shapes. For merged operators it has those of the shared tensors,
    so that any number of operators can share them.
    """
    kinds = tuple(
        (operator.type, tuple((spec.shape, spec.dtype) for spec in operator.outputs))
        for operator in (graph[tensor.operator] for tensor in match.outputs)
    )
    inputs = tuple(
        (name, _kind(graph, tensor))
        for name, tensor in match.inputs
        if substitution.source.operator != TUPLE or _is_shared(substitution, name)
    )
    if substitution.source.operator == TUPLE:
        return kinds[0][0], inputs
    return kinds, inputs


def _is_shared(substitution: Substitution, name: str) -> bool:
    return all(name in output.inputs for output in substitution.source.arguments)


def _kind(graph: Graph, tensor: TensorName) -> Hashable:
    operator = operator_of(graph, tensor.operator)
    assert operator is not None, "matches read only tensors that exist or can be added"
    spec = operator.outputs[tensor.index]
    # The last value tells whether the tensor is a weight: the value of a variable.
    return spec.shape, spec.dtype, operator.type in ("ReadVariableOp", "Identity")


def _move(
    graph: Graph,
    substitution: Substitution,
    places: list[Match],
    roots: Collection[str],
    is_over: Callable[[], bool],
) -> Move | None:
    before, at_places = graph, AtPlaces(graph, substitution, roots, is_over)
    at_places.apply(places)
    graph, rewrites = at_places.graph, at_places.rewrites
    if substitution.source.operator == TUPLE and rewrites:
        names = set(graph.operators.keys() - before.operators.keys())
        graph, rewrites = _merged_further(graph, substitution, rewrites, names, roots, is_over)
    return Move(tuple(rewrites), graph) if rewrites else None


def _merged_further(
    graph: Graph,
    substitution: Substitution,
    rewrites: list[Rewrite],
    names: set[str],
    roots: Collection[str],
    is_over: Callable[[], bool],
) -> tuple[Graph, list[Rewrite]]:
    """Merge merged operators with further operators that share the same tensor."""
    while not is_over():
        for match in Matcher(graph).matches(substitution, names):
            rewrite = rewrite_of(substitution, match)
            after = apply(graph, rewrite, substitution, roots)
            if after is not None:
                names |= after.operators.keys() - graph.operators.keys()
                graph, rewrites = after, [*rewrites, rewrite]
                break
        else:
            break
    return graph, rewrites
