"""Properties of operators: equations that hold for all tensors of types that fit both sides.

They are the axioms of all proofs, in first-order logic (TASO, section 5.1; Unity, section 4): the
inputs of both terms are universally quantified. A property about any dimension, or about any
function of elements, has one equation for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tensoropt.rewriting.algebra.typing import MOST_DIMS
from tensoropt.rewriting.terms import Term, parse

__all__ = [
    "DIMS",
    "PAIRS",
    "Equation",
    "Property",
    "expanded",
    "permutations",
    "properties_of",
    "property_of",
    "transposed",
]

DIMS = range(MOST_DIMS)
PAIRS = [(a, b) for a in DIMS for b in DIMS if a != b]


@dataclass(frozen=True)
class Equation:
    """Two terms that are equal.

    Attributes:
        left, right: the terms; their inputs stand for any terms.
        triggers: terms whose occurrence makes the equation worth trying (Z3's patterns).
        ranks: the ranks of inputs, if the equation does not hold for all ranks.
    """

    left: Term
    right: Term
    triggers: tuple[Term, ...]
    ranks: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, left: Term, right: Term, ranks: Mapping[str, int]) -> Equation:
        """An equation that is tried where a match of one side determines the other side."""
        triggers = tuple(one for one, other in ((left, right), (right, left)) if _gives(one, other))
        return cls(left, right, triggers, tuple(ranks.items()))

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class Property:
    """A property of operators.

    Attributes:
        name: the name that proofs cite.
        equations: the equations of the property.
        parallel: whether it is about parallelization operators.
    """

    name: str
    equations: tuple[Equation, ...]
    parallel: bool


def _equation(text: str) -> Equation:
    text, _, at = text.partition(" at ")
    equation, *triggers = text.split(" on ")
    left, right = map(parse, equation.split(" = "))
    ranks = {name: int(number) for name, number in (word.split(":") for word in at.split())}
    found = Equation.of(left, right, ranks)
    return replace(found, triggers=tuple(map(parse, triggers))) if triggers else found


def _gives(one: Term, other: Term) -> bool:
    """Whether a match of one side determines the other side."""
    return bool(one.arguments) and set(other.inputs) <= set(one.inputs)


def property_of(name: str, texts: Iterable[str], parallel: bool = False) -> Property:
    """A property from the texts of its equations.

    Args:
        name: see `Property`.
        texts: each is ``left = right``, followed by any number of ``on`` with a trigger, and
            perhaps by ``at`` and the rank of each input, as in ``x:3 y:1``.
        parallel: see `Property`.
    """
    return Property(name, tuple(map(_equation, dict.fromkeys(texts))), parallel)


def properties_of(
    texts_by_name: Mapping[str, str | Iterable[str]], parallel: bool = False
) -> Iterator[Property]:
    """Properties by their names; a property with one equation may have its text alone."""
    for name, texts in texts_by_name.items():
        yield property_of(name, [texts] if isinstance(texts, str) else texts, parallel)


def expanded(template: str, **values: Iterable[object]) -> list[str]:
    """A text for each combination of the values of the names in ``template``'s braces."""
    combinations = itertools.product(*values.values())
    return [template.format(**dict(zip(values, each, strict=True))) for each in combinations]


def permutations() -> Iterator[tuple[int, ...]]:
    """The permutations of two and of three dimensions without the identities."""
    for rank in (2, 3):
        yield from list(itertools.permutations(range(rank)))[1:]


def transposed(permutation: tuple[int, ...]) -> str:
    """The operator ``transpose`` with its parameters."""
    return f"transpose[{','.join(map(str, permutation))}]"
