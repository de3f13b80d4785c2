"""Dimensions as first-order terms, made equal by unification.

A dimension is a variable, or composed of other dimensions (`tensoropt.rewriting.operators.Dim`).
Two terms have a common type if the equations between their dimensions have a solution. The most
general solution gives the sizes for which a substitution holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensoropt.rewriting.operators import Dim

__all__ = ["Dimensions", "IllTyped", "size_of", "variables_of"]


class IllTyped(Exception):
    """A term has no type, or two terms have no common type."""


class Dimensions:
    """Variables for dimensions, and the dimensions that they are bound to."""

    def __init__(self) -> None:
        self._bound: dict[int, Dim] = {}
        self._variables = 0

    def new(self) -> int:
        """A new variable, which stands for any dimension."""
        self._variables += 1
        return self._variables - 1

    def fresh(self, dim: Dim, named: dict[int, int]) -> Dim:
        """A copy with new variables; ``named`` maps old ones to new ones, and is extended."""
        if isinstance(dim, int):
            if dim not in named:
                named[dim] = self.new()
            return named[dim]
        return (dim[0], *(self.fresh(part, named) for part in dim[1:]))

    def resolved(self, dim: Dim) -> Dim:
        """A dimension in terms of free variables.

        A device's share of a product is a share of its major factor: (d a) b = d (a b).
        """
        dim = self._head(dim)
        if isinstance(dim, int):
            return dim
        parts = tuple(self.resolved(part) for part in dim[1:])
        if dim[0] == "prod" and not isinstance(parts[0], int) and parts[0][0] in ("times", "micro"):
            kind, inner = parts[0]
            return (kind, self.resolved(("prod", inner, parts[1])))
        return (dim[0], *parts)

    def equal(self, a: Dim, b: Dim) -> None:
        """Bind variables so that two dimensions are equal.

        Raises:
            IllTyped: if they cannot be equal.
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
        """Make a dimension that is split over devices or microbatches equal to a product."""
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
    return set().union(*(variables_of(part) for part in dim[1:]))


def size_of(dim: Dim, sizes: Mapping[int, int], devices: int, microbatches: int) -> int:
    """The number of elements of a resolved dimension, for given sizes of its variables."""
    if isinstance(dim, int):
        return sizes[dim]
    parts = [size_of(part, sizes, devices, microbatches) for part in dim[1:]]
    match dim[0]:
        case "cat":
            return sum(parts)
        case "times":
            return devices * parts[0]
        case "micro":
            return microbatches * parts[0]
    return prod(parts)
