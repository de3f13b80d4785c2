"""Substitutions: pairs of terms that are proven equal for all tensors, and their file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le, Len

from tensoropt.converters import Form, Text, from_values, one_of, to_values
from tensoropt.errors import PlanError
from tensoropt.json_files import read_json, write_json
from tensoropt.rewriting.algebra.typing import COPIES, WHOLE, Typing, infer
from tensoropt.rewriting.operators import PARALLEL
from tensoropt.rewriting.terms import Term, parse

__all__ = ["FILE", "KINDS", "Input", "Substitution", "kind_of", "read", "verified", "write"]

KINDS = ("algebraic", "parallel", "hybrid")
FILE = Path(str(resources.files("tensoropt.rewriting") / "substitutions.json"))
"""The package's substitutions, which ``python -m tools.rewriting.generate`` writes."""
_PLACEMENT = ("space", "time")
"""Names of an input's fields that a file lacks if they are `WHOLE`."""
_TermInFile = Annotated[Term, Form(Text, parse, str)]


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

    name: Text
    rank: Annotated[int, Ge(0), Le(4)]
    space: Annotated[int, Ge(COPIES), Le(3)] = WHOLE
    time: Annotated[int, Ge(0), Le(3)] = WHOLE


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

    name: Text
    kind: Annotated[str, one_of(KINDS)]
    source: _TermInFile
    target: _TermInFile
    inputs: tuple[Input, ...]
    proof: Annotated[tuple[Text, ...], Len(1)]

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
class _File:
    """A file of substitutions."""

    schema: Annotated[int, Ge(1), Le(1)]
    substitutions: tuple[Substitution, ...]


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
    if set(kinds) != set(KINDS):
        entries = [entry for entry in values["substitutions"] if entry["kind"] in kinds]
        values = {**values, "substitutions": entries}
    file = from_values(_File, values, f"{rule}. Got {str(path)!r}", remedy, _PLACEMENT)
    substitutions = file.substitutions
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
    values = to_values(_File(1, tuple(substitutions)))
    for entry in values["substitutions"]:
        for item in entry["inputs"]:
            for name in _PLACEMENT:
                if item[name] == WHOLE:
                    del item[name]
    write_json(path, values, indent=1)
