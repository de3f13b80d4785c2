"""Properties of operators: equations that hold for all tensors of types that fit both sides.

They are the axioms of all proofs, in first-order logic (TASO, section 5.1; Unity, section 4): the
inputs of both terms are universally quantified. A property is one sentence; where it speaks of a
dimension or of any function of each element it stands for an equation for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tensoropt.rewriting.algebra.typing import MOST_DIMS
from tensoropt.rewriting.terms import Term, parse

__all__ = ["DIMS", "PAIRS", "Equation", "Property", "permutations", "property_of", "transposed"]

DIMS = range(MOST_DIMS)
PAIRS = [(a, b) for a in DIMS for b in DIMS if a != b]


@dataclass(frozen=True)
class Equation:
    """Two terms that are equal.

    Attributes:
        left, right: the terms; their inputs stand for any terms.
        triggers: where one of these occurs the equation is worth trying (Z3's patterns).
        ranks: of inputs for which it holds, where not for all that have types.
    """

    left: Term
    right: Term
    triggers: tuple[Term, ...]
    ranks: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, left: Term, right: Term, ranks: Mapping[str, int]) -> Equation:
        """An equation that is tried wherever a match of one side says all of the other."""
        triggers = tuple(one for one, other in ((left, right), (right, left)) if _gives(one, other))
        return cls(left, right, triggers, tuple(ranks.items()))

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class Property:
    """A property of operators.

    Attributes:
        name: that proofs cite.
        sentence: what it says.
        equations: that it stands for.
        parallel: whether it speaks of parallelization operators.
    """

    name: str
    sentence: str
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
    """Whether a match of one side says all of the other."""
    return bool(one.arguments) and set(other.inputs) <= set(one.inputs)


def property_of(name: str, sentence: str, texts: Iterable[str], parallel: bool = False) -> Property:
    """A property from its equations.

    Args:
        name: see `Property`.
        sentence: likewise.
        texts: ``left = right``, then perhaps ``on`` and a trigger, any number of them, and ``at``
            and the rank of each input, ``x:3 y:1``.
        parallel: see `Property`.
    """
    equations = tuple(map(_equation, dict.fromkeys(texts)))
    return Property(name, sentence, equations, parallel)


def permutations() -> Iterator[tuple[int, ...]]:
    """Of two dimensions and of three, those that change something."""
    for rank in (2, 3):
        yield from list(itertools.permutations(range(rank)))[1:]


def transposed(permutation: tuple[int, ...]) -> str:
    """The operator ``transpose`` with its parameters."""
    return f"transpose[{','.join(map(str, permutation))}]"
