"""Ranks of terms, derived from the ranks of operators in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensoropt.rewriting.algebra.dimensions import IllTyped
from tensoropt.rewriting.operators import OPERATORS, PARALLEL
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = ["ranks_of"]


def ranks_of(*terms: Term, ranks: Mapping[str, int], default: int) -> dict[Term, int]:
    """The rank of each subterm.

    Args:
        terms: terms that all have one rank.
        ranks: known ranks of inputs.
        default: the rank of a tensor whose rank the operators leave open.

    Raises:
        IllTyped: if no ranks fit.
    """
    every = list(dict.fromkeys(subterm for term in terms for subterm in term.subterms()))
    known_ranks: dict[Term, int] = {Term.input(name): rank for name, rank in ranks.items()}

    def put(term: Term, rank: int) -> None:
        if known_ranks.setdefault(term, rank) != rank or rank < 0:
            raise IllTyped

    def propagate() -> None:
        before = -1
        while before != len(known_ranks):
            before = len(known_ranks)
            known = {known_ranks[t] for t in terms if t in known_ranks and t.operator != TUPLE}
            for term in terms:
                if known and term.operator != TUPLE:
                    put(term, min(known))
            for term in every:
                _put_ranks(term, known_ranks, put)

    propagate()
    for term in every:
        if term not in known_ranks and term.operator != TUPLE:
            put(term, default)
            propagate()
    return known_ranks


def _put_ranks(term: Term, ranks: dict[Term, int], put: Callable[[Term, int], None]) -> None:
    if term.operator in (INPUT, TUPLE):
        return
    if term.operator in PARALLEL:
        sides = [("r", 0)] * (len(term.arguments) + 1)
    else:
        operator = OPERATORS.get(term.operator)
        if operator is None or operator.arity != len(term.arguments):
            raise IllTyped
        sides = list(operator.ranks)
        if operator.parameters == -1:
            put(term, len(term.parameters))
        elif operator.parameters != len(term.parameters):
            raise IllTyped
    both = list(zip(sides, (*term.arguments, term), strict=True))
    free = {ranks[t] - number for (kind, number), t in both if kind and t in ranks}
    if len(free) > 1:
        raise IllTyped
    for (kind, number), side in both:
        if not kind:
            put(side, number)
        elif free:
            put(side, min(free) + number)
