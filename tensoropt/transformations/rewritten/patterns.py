"""An index of substitutions, which tells those that can match in a graph without trying each.

The *structure* of a term is the term without the names of its inputs; hundreds of substitutions
share some structures. The *head* of a structure has the operator of the term and those of its
arguments. Few heads occur in a graph, so few structures are looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache

from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = ["Head", "Patterns", "outputs_of", "structure_of"]

Root = tuple[str, tuple[int, ...]]
"""An operator of terms and its parameters."""

Head = tuple[Root, tuple[Root | None, ...]]
"""The root of a structure, and those of its arguments; None for an input."""


def outputs_of(term: Term) -> tuple[Term, ...]:
    """The terms of the outputs; several for a `TUPLE`."""
    return term.arguments if term.operator == TUPLE else (term,)


@cache
def structure_of(term: Term) -> Term:
    """The term without the names of its inputs."""
    return Term(term.operator, tuple(map(structure_of, term.arguments)), term.parameters)


class Patterns:
    """Substitutions, indexed by the structures of their sources.

    Args:
        substitutions: the substitutions.

    Attributes:
        of_head: the structures of all outputs of sources, by their heads.
    """

    def __init__(self, substitutions: Iterable[Substitution]) -> None:
        self._substitutions = tuple(substitutions)
        self._structures = [
            frozenset(map(structure_of, outputs_of(each.source))) for each in self._substitutions
        ]
        of_head: dict[Head, list[Term]] = {}
        for structure in dict.fromkeys(each for own in self._structures for each in own):
            of_head.setdefault(_head(structure), []).append(structure)
        self.of_head: Mapping[Head, list[Term]] = of_head

    def among(self, structures: Collection[Term]) -> list[Substitution]:
        """The substitutions all of whose outputs have one of some structures, in their order."""
        return [
            substitution
            for substitution, own in zip(self._substitutions, self._structures, strict=True)
            if all(structure in structures for structure in own)
        ]


def _head(structure: Term) -> Head:
    roots = (
        None if argument.operator == INPUT else (argument.operator, argument.parameters)
        for argument in structure.arguments
    )
    return (structure.operator, structure.parameters), tuple(roots)
