"""Substitutions: pairs of terms that are proven equal for all tensors, and their file.

The file has them by kind, each as its equation and the properties that prove it. An equation begins
with its name, if it has one, and ends with the rank of each input and, unless that is `WHOLE`, its
placement: ``matmul of partial sums: matmul(reduce(x), y) = ... at x:2,space=-1 y:2``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from tensoropt.converters import Form, Text, from_values, to_values
from tensoropt.errors import PlanError
from tensoropt.json_files import read_json, write_json
from tensoropt.rewriting.algebra.typing import WHOLE, Typing, infer
from tensoropt.rewriting.operators import PARALLEL
from tensoropt.rewriting.terms import Term, parse

__all__ = ["FILE", "KINDS", "Input", "Substitution", "kind_of", "proven", "read", "write"]

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

    @classmethod
    def parse(cls, text: str) -> Input:
        """The inverse of ``str``.

        Raises:
            ValueError: if the text is no input.
        """
        found = _INPUT.fullmatch(text)
        if found is None:
            raise ValueError("an input as in x:2,space=0 is expected, with a rank from 0 to 4")
        name, *numbers = found.groups()
        return cls(name, *(WHOLE if number is None else int(number) for number in numbers))


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """A substitution as it is written: the names of properties are parted by "; "."""

    equation: Text
    proof: Text

    @classmethod
    def of(cls, each: Substitution) -> _Entry:
        """The inverse of `substitution`."""
        name = "" if each.name == str(each) else f"{each.name}: "
        inputs = " ".join(map(str, each.inputs))
        return cls(f"{name}{each} at {inputs}", "; ".join(each.proof))

    def substitution(self) -> Substitution:
        """The substitution.

        Raises:
            ValueError: if the text is no equation, or its inputs are others.
        """
        name, _, equation = self.equation.rpartition(": ")
        sides, _, inputs = equation.partition(" at ")
        left, _, right = sides.partition(" = ")
        source, target = parse(left), parse(right)
        placed = tuple(map(Input.parse, inputs.split(" ")))
        if source.inputs != tuple(each.name for each in placed):
            raise ValueError("the inputs of the source are expected, in its order")
        if not set(target.inputs) <= set(source.inputs):
            raise ValueError("a target without other inputs is expected")
        proof = tuple(self.proof.split("; "))
        if not all(proof):
            raise ValueError("a name of each property is expected")
        return Substitution(name or sides, kind_of(source, target), source, target, placed, proof)


_InFile = Annotated[Substitution, Form(_Entry, _Entry.substitution, _Entry.of)]


@dataclass(frozen=True, slots=True)
class _File:
    """A file of substitutions: those of each kind."""

    schema: Annotated[int, Ge(2), Le(2)]
    algebraic: tuple[_InFile, ...]
    parallel: tuple[_InFile, ...]
    hybrid: tuple[_InFile, ...]


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
def proven(kinds: tuple[str, ...] = KINDS) -> tuple[Substitution, ...]:
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
        values |= {kind: [] for kind in KINDS if kind not in kinds}
    file = from_values(_File, values, f"{rule}. Got {str(path)!r}", remedy)
    for kind in KINDS:
        for each in getattr(file, kind):
            if each.kind != kind:
                raise PlanError(f"{rule}. Got {each.name!r}, which is not {kind}. {remedy}")
    substitutions = (*file.algebraic, *file.parallel, *file.hybrid)
    if len({substitution.name for substitution in substitutions}) != len(substitutions):
        raise PlanError(f"{rule}. Got {str(path)!r}: two have one name. {remedy}")
    return substitutions


def write(path: Path, substitutions: Sequence[Substitution]) -> None:
    """Write a file of substitutions."""
    by_kind = {kind: [each for each in substitutions if each.kind == kind] for kind in KINDS}
    file = _File(2, *(tuple(each) for each in by_kind.values()))
    write_json(path, to_values(file), indent=1)
