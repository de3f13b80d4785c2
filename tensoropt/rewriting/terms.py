"""Terms: small parallel computation graphs with one output, as substitutions have them.

A term is an operator applied to terms, or a named input. Written ``matmul(x, add(y, z))``; whole
numbers that an operator needs (a dimension, the number of an output) stand in brackets:
``concat[0](x, y)``, ``split[0,1](x)``, ``partition[1](x)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tensoropt.errors import GraphError

__all__ = ["INPUT", "Term", "parse"]

INPUT = "input"
"""The operator of a term that is an input."""

_TOKEN = re.compile(r"\s*([a-z_][a-z_0-9]*|-?\d+|[(),\[\]])")


@dataclass(frozen=True)
class Term:
    """An operator of terms, or an input.

    Attributes:
        operator: its name in `tensoropt.rewriting`; `INPUT` for an input.
        arguments: what it is applied to.
        parameters: whole numbers that it needs.
        name: of an input; empty otherwise.
    """

    operator: str
    arguments: tuple[Term, ...] = ()
    parameters: tuple[int, ...] = ()
    name: str = ""

    @classmethod
    def input(cls, name: str) -> Term:
        """A named input."""
        return cls(INPUT, name=name)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs, in the order in which they first occur."""
        if self.operator == INPUT:
            return (self.name,)
        return tuple(dict.fromkeys(n for each in self.arguments for n in each.inputs))

    @cached_property
    def size(self) -> int:
        """How many operators it has; what is the same is counted once."""
        return sum(term.operator != INPUT for term in self.subterms())

    def subterms(self) -> Iterator[Term]:
        """The different terms in it, each after those it is applied to, itself last."""
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


def parse(text: str) -> Term:
    """The inverse of ``str``.

    Raises:
        GraphError: if the text is no term.
    """
    tokens: list[str] = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+", "", text):
        raise _error(text)
    position = 0

    def take(expected: str = "") -> str:
        nonlocal position
        if position >= len(tokens) or (expected and tokens[position] != expected):
            raise _error(text)
        position += 1
        return tokens[position - 1]

    def following() -> str:
        return tokens[position] if position < len(tokens) else ""

    def term() -> Term:
        name = take()
        if not name[0].isalpha():
            raise _error(text)
        parameters: list[int] = []
        if following() == "[":
            while take() != "]":
                number = take()
                if not number.lstrip("-").isdigit() or following() not in (",", "]"):
                    raise _error(text)
                parameters.append(int(number))
        if following() != "(":
            if parameters:
                raise _error(text)
            return Term.input(name)
        take("(")
        arguments = [term()]
        while following() == ",":
            take()
            arguments.append(term())
        take(")")
        return Term(name, tuple(arguments), tuple(parameters))

    found = term()
    if following():
        raise _error(text)
    return found


def _error(text: str) -> GraphError:
    return GraphError(
        "a term is an input, or an operator of terms as in concat[0](x, relu(y)). Got "
        f"{text!r}. Write operators and inputs in lower case, whole numbers in brackets."
    )
