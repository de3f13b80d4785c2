"""Dimensions as first-order terms, made equal by unification.

A dimension is a variable, or made of others (`tensoropt.rewriting.operators.Dim`). Two terms have
a type in common where the equations between their dimensions have a solution; the most general
one is the sizes at which a substitution holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensoropt.rewriting.operators import Dim

__all__ = ["Dimensions", "IllTyped", "size_of", "variables_of"]


class IllTyped(Exception):
    """A term has no type, or two have none in common."""


class Dimensions:
    """Variables for dimensions, and what they are bound to."""

    def __init__(self) -> None:
        self._bound: dict[int, Dim] = {}
        self._variables = 0

    def new(self) -> int:
        """A variable that stands for any dimension."""
        self._variables += 1
        return self._variables - 1

    def fresh(self, dim: Dim, named: dict[int, int]) -> Dim:
        """A copy with new variables; ``named`` says which, and is added to."""
        if isinstance(dim, int):
            if dim not in named:
                named[dim] = self.new()
            return named[dim]
        return (dim[0], *(self.fresh(each, named) for each in dim[1:]))

    def resolved(self, dim: Dim) -> Dim:
        """What a dimension has become, in free variables.

        So many devices' shares of a product are shares of its major factor, (d a) b = d (a b).
        """
        dim = self._head(dim)
        if isinstance(dim, int):
            return dim
        parts = tuple(self.resolved(each) for each in dim[1:])
        if dim[0] == "prod" and not isinstance(parts[0], int) and parts[0][0] in ("times", "micro"):
            kind, inner = parts[0]
            return (kind, self.resolved(("prod", inner, parts[1])))
        return (dim[0], *parts)

    def equal(self, a: Dim, b: Dim) -> None:
        """Bind variables so that the two are equal.

        Raises:
            IllTyped: if they cannot be.
        """
        a, b = self.resolved(a), self.resolved(b)
        if a == b:
            return
        if not isinstance(a, int) and (isinstance(b, int) or a[0] == "prod"):
            a, b = b, a
        if isinstance(a, int):
            if a in variables_of(b):
                raise IllTyped
            self._bound[a] = b
        elif isinstance(b, int) or len(a) != len(b):
            self._share(a, b)
        elif a[0] == b[0]:
            for x, y in zip(a[1:], b[1:], strict=True):
                self.equal(x, y)
        else:
            raise IllTyped

    def _share(self, a: Dim, b: Dim) -> None:
        """Make a multiple of the devices or microbatches equal to a product."""
        if isinstance(a, int) or isinstance(b, int):
            raise IllTyped
        if a[0] not in ("times", "micro") or b[0] != "prod" or not isinstance(b[1], int):
            raise IllTyped
        factor = self.new()
        self._bound[b[1]] = (a[0], factor)
        self.equal(a[1], ("prod", factor, b[2]))

    def _head(self, dim: Dim) -> Dim:
        while isinstance(dim, int) and dim in self._bound:
            dim = self._bound[dim]
        return dim


def variables_of(dim: Dim) -> set[int]:
    """The variables in a resolved dimension."""
    if isinstance(dim, int):
        return {dim}
    return set().union(*(variables_of(each) for each in dim[1:]))


def size_of(dim: Dim, sizes: Mapping[int, int], devices: int, microbatches: int) -> int:
    """How many elements a resolved dimension has, at sizes of its variables."""
    if isinstance(dim, int):
        return sizes[dim]
    parts = [size_of(each, sizes, devices, microbatches) for each in dim[1:]]
    match dim[0]:
        case "cat":
            return sum(parts)
        case "times":
            return devices * parts[0]
        case "micro":
            return microbatches * parts[0]
    return prod(parts)
