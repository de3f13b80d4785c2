"""Substitutions: pairs of terms that are proven equal for all tensors, and their file.

The file has them by kind, each as its equation and the properties that prove it. The equation ends
with the rank of each input and, unless the input is `WHOLE`, its placement:
``matmul(combine[0](x), y) = combine[0](matmul(x, replicate(y))) at x:2,space=0 y:2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple

from annotated_types import Ge, Le

from tensoropt.converters import Form, Text, from_values, to_values
from tensoropt.errors import PlanError
from tensoropt.json_files import read_json, write_json
from tensoropt.rewriting.algebra.typing import WHOLE, Typing, infer
from tensoropt.rewriting.operators import PARALLEL
from tensoropt.rewriting.terms import Term, parse

__all__ = ["FILE", "KINDS", "Input", "Substitution", "kind_of", "read", "verified", "write"]

KINDS = ("algebraic", "parallel", "hybrid")
FILE = Path(str(resources.files("tensoropt.rewriting") / "substitutions.json"))
"""The package's substitutions, which ``python -m tools.rewriting.generate`` writes."""
_INPUT = re.compile(r"([a-z]\w*):([0-4])(?:,space=(-1|[0-3]))?(?:,time=([0-3]))?")


@dataclass(frozen=True)
class Input:
    """The tensors that an input of a substitution stands for: those of one rank and placement.

    Attributes:
        name: its name in the terms.
        rank: number of dimensions.
        space: placement on the mesh axis, see `tensoropt.rewriting.algebra.typing`: `WHOLE`,
            `COPIES` or the dimension of which each device has a shard.
        time: `WHOLE`, or the dimension that is computed a microbatch at a time.
    """

    name: str
    rank: int
    space: int = WHOLE
    time: int = WHOLE

    def __str__(self) -> str:
        space = "" if self.space == WHOLE else f",space={self.space}"
        time = "" if self.time == WHOLE else f",time={self.time}"
        return f"{self.name}:{self.rank}{space}{time}"


@dataclass(frozen=True)
class Substitution:
    """A term that may replace another term.

    Attributes:
        name: a stable, readable name.
        kind: "algebraic" without parallelization operators; "parallel" if both terms are the same
            without them; "hybrid" otherwise.
        source: the replaced term. Several outputs are a tuple, see `tensoropt.rewriting.terms`.
        target: the term that replaces it, with the same inputs.
        inputs: the inputs of the source, in its order.
        proof: names of the properties from which the equality follows.
    """

    name: str
    kind: str
    source: Term
    target: Term
    inputs: tuple[Input, ...]
    proof: tuple[str, ...]

    @cached_property
    def typing(self) -> Typing:
        """The most general types of inputs and all subterms for which both sides are defined.

        ``typing.input("x")`` has the dimensions of an input on one device.
        """
        ranks = {item.name: item.rank for item in self.inputs}
        placements = {item.name: (item.space, item.time) for item in self.inputs}
        return infer(self.source, self.target, ranks=ranks, placements=placements)

    @property
    def degree(self) -> int | None:
        """The number of devices on the axis for which it holds; None for any number."""
        terms = [*self.source.subterms(), *self.target.subterms()]
        return 2 if any(term.operator == "shards" for term in terms) else None

    def reversed(self) -> Substitution | None:
        """The other direction; None if the source has inputs that the target lacks."""
        if set(self.source.inputs) > set(self.target.inputs) or not self.target.arguments:
            return None
        name = self.name.removesuffix(_BACK) if self.name.endswith(_BACK) else self.name + _BACK
        inputs = tuple(sorted(self.inputs, key=lambda i: self.target.inputs.index(i.name)))
        return Substitution(name, self.kind, self.target, self.source, inputs, self.proof)

    def __str__(self) -> str:
        return f"{self.source} = {self.target}"


class _Equation(NamedTuple):
    """The terms of a substitution, and its inputs."""

    source: Term
    target: Term
    inputs: tuple[Input, ...]

    def __str__(self) -> str:
        return f"{self.source} = {self.target} at {' '.join(map(str, self.inputs))}"


def _equation(text: str) -> _Equation:
    """The inverse of ``str``.

    Raises:
        ValueError: if the text is no equation.
    """
    sides, _, placed = text.partition(" at ")
    source, _, target = sides.partition(" = ")
    inputs = []
    for each in placed.split(" "):
        found = _INPUT.fullmatch(each)
        if found is None:
            raise ValueError("source = target at x:2 is expected, with a rank from 0 to 4")
        name, *numbers = found.groups()
        inputs.append(Input(name, *(WHOLE if n is None else int(n) for n in numbers)))
    return _Equation(parse(source), parse(target), tuple(inputs))


def _properties(text: str) -> tuple[str, ...]:
    if not all(names := tuple(text.split("; "))):
        raise ValueError("a name is missing")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A substitution in a file; its name is that of its two terms if the file has no other."""

    name: str = ""
    equation: Annotated[_Equation, Form(Text, _equation, str)]
    proof: Annotated[tuple[str, ...], Form(Text, _properties, "; ".join)]

    def substitution(self, kind: str) -> Substitution:
        """The substitution."""
        source, target, inputs = self.equation
        return Substitution(
            self.name or f"{source} = {target}", kind, source, target, inputs, self.proof
        )


@dataclass(frozen=True, slots=True)
class _File:
    """A file of substitutions: those of each kind."""

    schema: Annotated[int, Ge(2), Le(2)]
    algebraic: tuple[_Entry, ...] = ()
    parallel: tuple[_Entry, ...] = ()
    hybrid: tuple[_Entry, ...] = ()


_BACK = ", reversed"


def kind_of(source: Term, target: Term) -> str:
    """The kind of a substitution, one of `KINDS`."""
    if (source.operators | target.operators).isdisjoint(PARALLEL):
        return "algebraic"
    return "parallel" if _erased(source) == _erased(target) else "hybrid"


def _erased(term: Term) -> Term:
    """The term on one device, without operators that change placements."""
    arguments = tuple(map(_erased, term.arguments))
    if term.operator in PARALLEL and term.operator != "shards":
        return arguments[0]
    return Term(term.operator, arguments, term.parameters, term.name)


@cache
def verified(kinds: tuple[str, ...] = KINDS) -> tuple[Substitution, ...]:
    """The proven substitutions of the package's file, in both directions if both are proven.

    Args:
        kinds: the kinds of substitutions; to read fewer takes less time.
    """
    forward = read(FILE, kinds)
    backward = (substitution.reversed() for substitution in forward)
    return (*forward, *(substitution for substitution in backward if substitution is not None))


def read(path: Path, kinds: Sequence[str] = KINDS) -> tuple[Substitution, ...]:
    """The substitutions of a file, in its order.

    Args:
        path: the file.
        kinds: the kinds of substitutions that are read and checked.

    Raises:
        PlanError: if the file is not a valid file of substitutions.
    """
    remedy = "Install TensorOpt again, or write the file anew: python -m tools.rewriting.generate."
    rule = "a file of substitutions is JSON that the generator wrote"
    values = read_json(path, rule, remedy)
    if isinstance(values, dict):
        values = {name: of for name, of in values.items() if name not in set(KINDS) - set(kinds)}
    file = from_values(_File, values, f"{rule}. Got {str(path)!r}", remedy, ("name", *KINDS))
    substitutions = tuple(each.substitution(k) for k in KINDS for each in getattr(file, k))
    for substitution in substitutions:
        if substitution.kind != kind_of(substitution.source, substitution.target):
            raise PlanError(
                f"{rule}. Got {substitution.name!r}, which is not {substitution.kind}. {remedy}"
            )
        if substitution.source.inputs != tuple(i.name for i in substitution.inputs):
            raise PlanError(f"{rule}. Got {substitution.name!r}, whose inputs are others. {remedy}")
        if not set(substitution.target.inputs) <= set(substitution.source.inputs):
            raise PlanError(
                f"{rule}. Got {substitution.name!r}, whose target has other inputs. {remedy}"
            )
    if len({substitution.name for substitution in substitutions}) != len(substitutions):
        raise PlanError(f"{rule}. Got {str(path)!r}: two have one name. {remedy}")
    return substitutions


def write(path: Path, substitutions: Iterable[Substitution]) -> None:
    """Write a file of substitutions."""
    file: dict[str, list[_Entry]] = {}
    for each in substitutions:
        equation = _Equation(each.source, each.target, each.inputs)
        name = "" if each.name == str(each) else each.name
        file.setdefault(each.kind, []).append(
            _Entry(name=name, equation=equation, proof=each.proof)
        )
    values = to_values(_File(2, **{kind: tuple(entries) for kind, entries in file.items()}))
    for kind in KINDS:
        for entry in values[kind]:
            if not entry["name"]:
                del entry["name"]
        if not values[kind]:
            del values[kind]
    write_json(path, values, indent=1)
