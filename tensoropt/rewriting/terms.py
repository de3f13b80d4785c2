"""Terms: small parallel computation graphs, from which substitutions are made.

A term is an operator applied to terms, or a named input. It is written ``matmul(x, add(y, z))``.
Whole numbers that an operator needs (a dimension, the number of an output) are in brackets:
``concat[0](x, y)``, ``split[0,1](x)``, ``partition[1](x)``. Equal subterms are one operator.

Several outputs are a `TUPLE` at the root, and nowhere else:
``tuple(matmul(x, y), matmul(x, z))``; the two sides of a substitution have them in the same order.

A concatenation joins two tensors; more tensors are joined by nested ones. ``split[a,i](x)`` is part
``i``, 0 or 1, of ``x`` along dimension ``a``, cut where the last concatenation along that dimension
joined it. Dimensions keep their cuts through operators, as TASO's split trees do: in
``split[1,0](matmul(x, concat[1](y, z)))`` the cut is between the columns of ``y`` and ``z``. An
input may be cut anywhere.

The parallelization operators concern one mesh axis with any number of devices, or any number of
microbatches. Neither number is part of the term:

=================== ======================================================================
``partition[a](x)`` a whole tensor becomes shards of dimension ``a``, one on each device
``combine[a](x)``   the inverse of ``partition[a]``
``replicate(x)``    a whole tensor becomes a copy on each device
``reduce(x)``       the sum of the devices' tensors, as a whole tensor
``pipeline[a](x)``  dimension ``a`` is computed a microbatch at a time
``batch[a](x)``     the inverse of ``pipeline[a]``
``shards(x, y)``    two whole tensors become the tensors of the two devices of an axis (Unity's
                    Concat of a replica dimension, Figure 11b)
=================== ======================================================================

Operators apply to shards as to whole tensors: ``matmul(partition[1](x), partition[0](y))`` is a
product on each device, and ``reduce`` of it is their sum. The operators that compute are
`tensoropt.rewriting.operators.OPERATORS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from tensoropt.errors import GraphError

__all__ = ["INPUT", "TUPLE", "Term", "parse"]

INPUT = "input"
"""The operator of a term that is an input."""

TUPLE = "tuple"
"""The operator of several outputs, at the root of a term; it computes nothing."""

_TOKEN = re.compile(r"\s*([a-z_][a-z_0-9]*|-?\d+|[(),\[\]])")


@dataclass(frozen=True)
class Term:
    """An operator of terms, or an input.

    Attributes:
        operator: its name in `tensoropt.rewriting`; `INPUT` for an input.
        arguments: the terms that it is applied to.
        parameters: the whole numbers that it needs.
        name: the name of an input; empty otherwise.
    """

    operator: str
    arguments: tuple[Term, ...] = ()
    parameters: tuple[int, ...] = ()
    name: str = ""

    @staticmethod
    def input(name: str) -> Term:
        """A named input."""
        return _input(name)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs, in the order in which they first occur."""
        if self.operator == INPUT:
            return (self.name,)
        return tuple(dict.fromkeys(n for argument in self.arguments for n in argument.inputs))

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators of all its subterms, `INPUT` and `TUPLE` among them."""
        return frozenset((self.operator,)).union(*[term.operators for term in self.arguments])

    @cached_property
    def depth(self) -> int:
        """The most operators on a path from the term to an input; a `TUPLE` counts as one."""
        return 1 + max((argument.depth for argument in self.arguments), default=-1)

    @cached_property
    def size(self) -> int:
        """The number of operators; equal ones, and the two parts of a split, count once."""
        return len(
            {
                (term.operator, term.parameters[:1], term.arguments)
                if term.operator == "split"
                else term
                for term in self.subterms()
                if term.operator not in (INPUT, TUPLE)
            }
        )

    def replaced(self, by: Mapping[Term, Term]) -> Term:
        """The term with some subterms replaced."""
        if self in by:
            return by[self]
        if self.operator == INPUT:
            return self
        arguments = tuple(argument.replaced(by) for argument in self.arguments)
        return Term(self.operator, arguments, self.parameters)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        """The fields without cached values: the hash of a string differs in another process."""
        return Term, (self.operator, self.arguments, self.parameters, self.name)

    @cached_property
    def _hash(self) -> int:
        return hash((self.operator, self.arguments, self.parameters, self.name))

    def subterms(self) -> Iterator[Term]:
        """The distinct subterms, each after its arguments, with the term itself last."""
        seen: set[Term] = set()

        def walk(term: Term) -> Iterator[Term]:
            if term in seen:
                return
            seen.add(term)
            for argument in term.arguments:
                yield from walk(argument)
            yield term

        yield from walk(self)

    def __str__(self) -> str:
        if self.operator == INPUT:
            return self.name
        numbers = f"[{','.join(map(str, self.parameters))}]" if self.parameters else ""
        return f"{self.operator}{numbers}({', '.join(map(str, self.arguments))})"


@cache
def _input(name: str) -> Term:
    """The input with a name; one object, as most terms have the same few inputs."""
    return Term(INPUT, name=name)


def parse(text: str) -> Term:
    """The inverse of ``str``.

    Raises:
        GraphError: if the text is not a term.
    """
    tokens: list[str] = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        raise _error(text)
    try:
        result, end = _term(tokens, 0)
    except (IndexError, ValueError):
        raise _error(text) from None
    if end < len(tokens):
        raise _error(text)
    return result


def _term(tokens: Sequence[str], place: int) -> tuple[Term, int]:
    """The term that begins at a place of some tokens, and the place behind it.

    Raises:
        IndexError: if the tokens end too early.
        ValueError: if they are not a term.
    """
    name, place = tokens[place], place + 1
    if not name[0].isalpha():
        raise ValueError(name)
    parameters: list[int] = []
    if tokens[place : place + 1] == ["["]:
        while tokens[place] != "]":
            parameters.append(int(tokens[place + 1]))
            place += 2
            if tokens[place] not in (",", "]"):
                raise ValueError(tokens[place])
        place += 1
    if tokens[place : place + 1] != ["("]:
        if parameters:
            raise ValueError(name)
        return Term.input(name), place
    arguments: list[Term] = []
    while tokens[place] != ")":
        argument, place = _term(tokens, place + 1)
        arguments.append(argument)
        if tokens[place] not in (",", ")"):
            raise ValueError(tokens[place])
    return Term(name, tuple(arguments), tuple(parameters)), place + 1


def _error(text: str) -> GraphError:
    return GraphError(
        "a term is an input, or an operator of terms as in concat[0](x, relu(y)). Got "
        f"{text!r}. Write operators and inputs in lower case, whole numbers in brackets."
    )
