"""Exact values of terms: integers modulo a prime, one array for each device and microbatch.

Every operator is applied to the arrays of each device at each microbatch, by the kernels of
`tensoropt.rewriting.operators`. Fingerprints hash the arrays with the degrees of the dimensions
(Unity, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.rewriting.algebra.dimensions import IllTyped, variables_of
from tensoropt.rewriting.algebra.typing import (
    WHOLE,
    Placement,
    Typing,
    placement_after,
    split_index,
)
from tensoropt.rewriting.operators import OPERATORS, PRIME, Dim, Signature
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = ["Value", "World", "apply", "random_input", "random_sizes", "values_of"]

Array = npt.NDArray[Any]
Extent = int | tuple[Any, ...]
"""The size of a dimension and its cuts: a number, or ``("cat" or "prod", one, other)``."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in pieces.

    Attributes:
        pieces: by device (one if the tensor is whole) and microbatch, arrays of one shape.
        extents: the dimensions of a piece.
        placement: its placement, see `tensoropt.rewriting.algebra.typing`.
    """

    pieces: tuple[tuple[Array, ...], ...]
    extents: tuple[Extent, ...]
    placement: Placement

    def fingerprint(self) -> tuple[object, ...]:
        """A hash of the degrees and arrays, equal for equal tensors with equal placements."""
        arrays = tuple(piece.tobytes() for row in self.pieces for piece in row)
        return self.placement, tuple(map(_size, self.extents)), hash(arrays)


@dataclass(frozen=True)
class World:
    """Evaluates terms exactly, by the kernels of `tensoropt.rewriting.operators`.

    Attributes:
        devices: number of devices of the mesh axis.
        microbatches: number of microbatches.
    """

    devices: int = 2
    microbatches: int = 2

    def draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Array:
        """A tensor of random numbers."""
        return random.integers(0, PRIME, shape, dtype=np.int64)

    def compute(
        self, term: Term, arrays: Sequence[Array], shape: tuple[int, ...], piece: tuple[int, ...]
    ) -> Array:
        """Apply the operator at a term's root to the arrays of one device at one microbatch.

        Args:
            term: the term.
            arrays: inputs of the operator.
            shape: shape of its output.
            piece: for a table with divided rows, the number of the piece and the number of pieces.
        """
        kernel = OPERATORS[term.operator].kernel
        return np.ascontiguousarray(kernel(arrays, piece or term.parameters, shape))

    def total(self, arrays: Sequence[Array]) -> Array:
        """The sum of arrays."""
        return np.asarray(sum(arrays) % PRIME)

    def same(self, one: Value, other: Value) -> bool:
        """Whether two tensors are equal and have the same placement."""
        return one.fingerprint() == other.fingerprint()


def _size(extent: Extent) -> int:
    if isinstance(extent, int):
        return extent
    one, other = _size(extent[1]), _size(extent[2])
    return one + other if extent[0] == "cat" else one * other


def _joined(one: Extent, other: Extent) -> Extent:
    """One dimension of two tensors; a cut that one of them lacks is taken from the other.

    Raises:
        IllTyped: if sizes or cuts differ.
    """
    if one == other:
        return one
    if _size(one) == _size(other):
        if isinstance(one, int):
            return other
        if isinstance(other, int):
            return one
        if one[0] == other[0]:
            return (one[0], _joined(one[1], other[1]), _joined(one[2], other[2]))
    raise IllTyped


def apply(
    term: Term, arguments: Sequence[Value], signature: Signature | None, world: World
) -> Value:
    """Apply the operator at the root of a term to values.

    Raises:
        IllTyped: if it cannot be applied to them.
    """
    placement = placement_after(
        term, [each.placement for each in arguments], signature, len(arguments[0].extents)
    )
    if signature is None:
        return _laid(term, arguments, placement, world)
    known: dict[int, Extent] = {}
    for argument, dims in zip(arguments, signature.inputs, strict=True):
        for extent, dim in zip(argument.extents, dims, strict=True):
            _bind(dim, extent, known)
    extents = tuple(_extent(dim, known) for dim in signature.output)
    shape = tuple(map(_size, extents))
    rows = (
        OPERATORS[term.operator].rows
        and split_index([a.placement[0] for a in arguments], signature) == signature.inputs[0][0]
    )
    pieces = []
    for s in range(max(len(each.pieces) for each in arguments)):
        row = []
        for t in range(max(len(each.pieces[0]) for each in arguments)):
            own = [
                a.pieces[s if len(a.pieces) > 1 else 0][t if len(a.pieces[0]) > 1 else 0]
                for a in arguments
            ]
            row.append(world.compute(term, own, shape, (s, world.devices) if rows else ()))
        pieces.append(tuple(row))
    return Value(tuple(pieces), extents, placement)


def _bind(dim: Dim, extent: Extent, known: dict[int, Extent]) -> None:
    if isinstance(dim, int):
        known[dim] = _joined(known.get(dim, extent), extent)
        return
    kind, one, other = dim
    if isinstance(extent, int):
        if extent % 2:
            raise IllTyped
        extent = (kind, extent // 2, extent // 2 if kind == "cat" else 2)
    if extent[0] != kind:
        raise IllTyped
    _bind(one, extent[1], known)
    _bind(other, extent[2], known)


def _extent(dim: Dim, known: Mapping[int, Extent]) -> Extent:
    if isinstance(dim, int):
        return known[dim]
    return (dim[0], _extent(dim[1], known), _extent(dim[2], known))


def _laid(term: Term, arguments: Sequence[Value], placement: Placement, world: World) -> Value:
    """The result of an operator that changes a placement."""
    value = arguments[0]
    rows, extents = value.pieces, list(value.extents)
    dim = term.parameters[0] if term.parameters else 0
    match term.operator:
        case "partition":
            extents[dim] = _share(extents[dim], world.devices)
            rows = tuple(
                tuple(np.split(piece, world.devices, dim)[s] for piece in rows[0])
                for s in range(world.devices)
            )
        case "combine":
            extents[dim] = _multiple(extents[dim], world.devices)
            rows = (tuple(np.concatenate(column, dim) for column in zip(*rows, strict=True)),)
        case "replicate":
            rows = rows * world.devices
        case "reduce":
            rows = (tuple(world.total(column) for column in zip(*rows, strict=True)),)
        case "pipeline":
            extents[dim] = _share(extents[dim], world.microbatches)
            rows = tuple(tuple(np.split(row[0], world.microbatches, dim)) for row in rows)
        case "batch":
            extents[dim] = _multiple(extents[dim], world.microbatches)
            rows = tuple((np.concatenate(row, dim),) for row in rows)
        case "shards":
            if world.devices != 2 or len(extents) != len(arguments[1].extents):
                raise IllTyped
            both = zip(value.extents, arguments[1].extents, strict=True)
            extents = [_joined(one, other) for one, other in both]
            rows = (*rows, *arguments[1].pieces)
    return Value(
        tuple(tuple(map(np.ascontiguousarray, row)) for row in rows), tuple(extents), placement
    )


def _share(extent: Extent, pieces: int) -> Extent:
    """A piece of a dimension; of a product, a piece of its major factor."""
    if not isinstance(extent, int):
        if extent[0] == "prod":
            return ("prod", _share(extent[1], pieces), extent[2])
        raise IllTyped
    if extent % pieces:
        raise IllTyped
    return extent // pieces


def _multiple(extent: Extent, pieces: int) -> Extent:
    """The dimension of which ``extent`` is a piece; the inverse of `_share`."""
    if isinstance(extent, tuple) and extent[0] == "prod":
        return ("prod", _multiple(extent[1], pieces), extent[2])
    return _size(extent) * pieces


def random_sizes(typing: Typing, draw: np.random.Generator, least: int = 2) -> dict[int, int]:
    """A size for each variable in the types of a term."""
    free = {v for found in typing.types.values() for dim in found.dims for v in variables_of(dim)}
    return {v: int(draw.integers(least, least + 3)) for v in sorted(free)}


def random_input(
    dims: Sequence[Dim],
    placement: Placement,
    sizes: Mapping[int, int],
    world: World,
    draw: np.random.Generator,
) -> Value:
    """Random numbers of a type, for given sizes of its variables."""
    extents = tuple(_sized(dim, sizes, world) for dim in dims)
    devices = 1 if placement[0] == WHOLE else world.devices
    steps = 1 if placement[1] == WHOLE else world.microbatches
    shape = tuple(map(_size, extents))
    pieces = tuple(tuple(world.draw(shape, draw) for _ in range(steps)) for _ in range(devices))
    return Value(pieces, extents, placement)


def _sized(dim: Dim, sizes: Mapping[int, int], world: World) -> Extent:
    if isinstance(dim, int):
        return sizes[dim]
    if dim[0] in ("times", "micro"):
        inner = _sized(dim[1], sizes, world)
        return _multiple(inner, world.devices if dim[0] == "times" else world.microbatches)
    return (dim[0], _sized(dim[1], sizes, world), _sized(dim[2], sizes, world))


def values_of(
    terms: Sequence[Term],
    inputs: Mapping[str, Value],
    signatures: Mapping[Term, Signature | None],
    world: World,
) -> list[tuple[Value, ...]]:
    """The outputs of terms with the same inputs.

    Args:
        terms: the terms.
        inputs: values of their inputs.
        signatures: signatures of all subterms but inputs.
        world: evaluates the terms.
    """
    known: dict[Term, Value] = {}
    for term in terms:
        for each in term.subterms():
            if each in known or each.operator == TUPLE:
                continue
            if each.operator == INPUT:
                known[each] = inputs[each.name]
            else:
                arguments = [known[a] for a in each.arguments]
                known[each] = apply(each, arguments, signatures[each], world)
    return [
        tuple(known[a] for a in (term.arguments if term.operator == TUPLE else (term,)))
        for term in terms
    ]
