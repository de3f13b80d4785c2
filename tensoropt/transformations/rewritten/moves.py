"""Moves of a search over rewritten graphs: a substitution in all like places at once.

Layers that are alike are rewritten alike; each by itself would be a choice more, and as many graphs
as there are subsets of layers. Of several products that share a factor all are merged, two by two.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

from tensoropt.graph.operator import Graph, TensorName
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import TUPLE, Term
from tensoropt.transformations.rewritten.application import (
    Rewrite,
    apply,
    named_in_tags,
    rewrite_of,
)
from tensoropt.transformations.rewritten.growing import VIEWED
from tensoropt.transformations.rewritten.matching import Match, Matcher
from tensoropt.transformations.rewritten.parts import operator_of
from tensoropt.transformations.rewritten.views import COMMUTATIVE

__all__ = ["Move", "applicable", "moves"]


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A graph after a substitution in like places.

    Attributes:
        rewrites: in their order.
        graph: after them.
    """

    rewrites: tuple[Rewrite, ...]
    graph: Graph


def applicable(substitutions: Iterable[Substitution]) -> tuple[Substitution, ...]:
    """Those whose terms logical graphs can have: without parallelization operators, which are
    choices of the search for each graph, and such that the source is not an input alone."""
    return tuple(
        each
        for each in substitutions
        if all(
            term.operator in VIEWED
            for side in (each.source, each.target)
            for term in side.subterms()
        )
        and any(term.operator not in ("input", TUPLE) for term in each.source.subterms())
        and _ordered(each.source) != _ordered(each.target)
    )


def _ordered(term: Term) -> Term:
    """The term with the arguments of sums and products in one order."""
    arguments = tuple(map(_ordered, term.arguments))
    if term.operator in COMMUTATIVE:
        arguments = tuple(sorted(arguments, key=str))
    return Term(term.operator, arguments, term.parameters, term.name)


def moves(
    graph: Graph,
    substitutions: Iterable[Substitution],
    roots: Collection[str],
    touching: frozenset[str] | None = None,
) -> Iterator[Move]:
    """All moves from a graph.

    Args:
        graph: of a step.
        substitutions: that are `applicable`.
        roots: the operators that are run or fetched.
        touching: names of operators of which a place has some; any place if None.
    """
    matcher, tagged = Matcher(graph), named_in_tags(graph)
    for substitution in substitutions:
        places: dict[Hashable, list[Match]] = {}
        for match in matcher.matches(substitution):
            if touching is not None and touching.isdisjoint(match.operators):
                continue
            if not any(tensor.operator in tagged for tensor in match.outputs):
                places.setdefault(_likeness(graph, substitution, match), []).append(match)
        for alike in places.values():
            move = _move(graph, substitution, alike, roots)
            if move is not None:
                yield move


def _likeness(graph: Graph, substitution: Substitution, match: Match) -> Hashable:
    """Equal for places that are rewritten together: kinds of operators and shapes; of merged
    operators those of what they share, however many share it."""
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
    assert operator is not None, "a match reads what can be made"
    spec = operator.outputs[tensor.index]
    # Whether it is a weight: what is read of a variable.
    return spec.shape, spec.dtype, operator.type in ("ReadVariableOp", "Identity")


def _move(
    graph: Graph, substitution: Substitution, places: list[Match], roots: Collection[str]
) -> Move | None:
    found: list[Rewrite] = []
    names: set[str] = set()
    for match in places:
        rewrite = rewrite_of(substitution, match)
        after = apply(graph, rewrite, substitution, roots)
        if after is None or len(after) > 2 * len(graph) + 64:
            continue
        names |= after.operators.keys() - graph.operators.keys()
        graph, found = after, [*found, rewrite]
    if substitution.source.operator == TUPLE and found:
        graph, found = _merged_further(graph, substitution, found, names, roots)
    return Move(tuple(found), graph) if found else None


def _merged_further(
    graph: Graph,
    substitution: Substitution,
    found: list[Rewrite],
    names: set[str],
    roots: Collection[str],
) -> tuple[Graph, list[Rewrite]]:
    """Merge what was merged with others that share the same."""
    while True:
        for match in Matcher(graph).matches(substitution, names):
            rewrite = rewrite_of(substitution, match)
            after = apply(graph, rewrite, substitution, roots)
            if after is not None:
                names |= after.operators.keys() - graph.operators.keys()
                graph, found = after, [*found, rewrite]
                break
        else:
            return graph, found
