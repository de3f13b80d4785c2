"""The configuration of an operator: which mesh axes split which index of its iteration space.

A configuration determines the layouts of all inputs, outputs and their gradients. Along an axis
that splits no index all devices repeat the same computation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd

from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh, Units
from tensoropt.tdl.derivation import Derivation
from tensoropt.tdl.registry import operator_type

__all__ = [
    "KEPT",
    "Configuration",
    "configurations",
    "divisible",
    "fitted",
    "gradient_is_local",
    "input_slot",
    "largest_share",
    "may_split",
    "most_uneven",
    "output_slot",
    "piece_limits",
    "rescaling",
    "shares_of",
    "tied_extents",
]


KEPT = ("both", "before", "after", "recomputed")
"""The copies of an operator's outputs that are kept for the backward pass.

"before" keeps the output in the layout in which it is made, "after" keeps the copies in the layouts
of its readers, and "both" keeps all of them. The backward pass reshards again to obtain a copy that
is not kept (TensorOpt, section 4.2). "recomputed" keeps none: the operator is computed again."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The split of an operator's iteration space.

    Attributes:
        splits: for each index the mesh axes that split it, ascending.
        kept: the copies of its outputs that are kept for the backward pass, one of `KEPT`.
    """

    splits: tuple[tuple[int, ...], ...]
    kept: str = "both"

    def __post_init__(self) -> None:
        if self.kept not in KEPT:
            raise LayoutError(
                f"the kept copies of an operator's outputs are one of {', '.join(KEPT)}. "
                f"Got {self.kept!r}."
            )
        used = [axis for axes in self.splits for axis in axes]
        if len(set(used)) != len(used) or any(list(a) != sorted(a) for a in self.splits):
            raise LayoutError(
                f"a mesh axis splits one index at most, and an index names its axes in ascending "
                f"order. Got {self}."
            )

    def describe(self, derivation: Derivation, mesh: Mesh) -> str:
        """Return the configuration in words: ``m/2 k/4 redundant 2``; ``whole`` on one device."""
        words = [
            f"{index.name}/{mesh.pieces(axes)}"
            for index, axes in zip(derivation.indices, self.splits, strict=True)
            if axes
        ]
        used = [axis for axes in self.splits for axis in axes]
        if len(used) < len(mesh.axes):
            words.append(f"redundant {mesh.size // mesh.pieces(used)}")
        words = words or ["whole"]
        if self.kept != "both":
            words.append("recomputed" if self.kept == "recomputed" else f"kept {self.kept}")
        return " ".join(words)

    def __str__(self) -> str:
        splits = ",".join("".join(map(str, axes)) or "-" for axes in self.splits)
        return f"({splits})" if self.kept == "both" else f"({splits}) {self.kept}"


@lru_cache(maxsize=65536)
def configurations(
    derivation: Derivation, mesh: Mesh, offered: frozenset[int] = frozenset()
) -> tuple[Configuration, ...]:
    """Return every valid configuration in a fixed order, the fully redundant one first.

    Each axis splits one splittable index or none, which gives (indices + 1)^axes configurations.
    Those that divide every extent and every dimension of the inputs and outputs evenly are valid,
    and those that split an index into uneven pieces (`most_uneven`).

    Args:
        derivation: the derivation of an operator.
        mesh: the devices.
        offered: extents of indices that may be split into uneven pieces.
    """
    return tuple(Configuration(splits) for splits in _assignments(derivation, mesh, offered))


def _assignments(
    derivation: Derivation, mesh: Mesh, offered: Collection[int]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    limits = piece_limits(derivation, mesh, offered)
    along_all = [n for n, index in enumerate(derivation.indices) if index.along_all]

    def extend(
        axis: int, splits: tuple[tuple[int, ...], ...]
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        if axis == len(mesh.axes):
            if all(len(splits[n]) in (0, axis) for n in along_all):
                yield splits
            return
        yield from extend(axis + 1, splits)
        for n, (index, limit) in enumerate(zip(derivation.indices, limits, strict=True)):
            axes = (*splits[n], axis)
            if may_split(mesh, index.extent, axes, limit):
                yield from extend(axis + 1, (*splits[:n], axes, *splits[n + 1 :]))

    return extend(0, ((),) * len(derivation.indices))


def piece_limits(
    derivation: Derivation, mesh: Mesh, offered: Collection[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return, for each index, `divisible` and `most_uneven`, in blocks where extents have units.

    Nothing divides an index with a dimension that is cut in proportion to the speeds of devices.
    """
    units = mesh.units
    even, uneven = divisible(derivation, units), most_uneven(derivation, offered, units)
    limits = tuple(zip(even, uneven, strict=True))
    if mesh.shares is None:
        return limits
    shared = _indices_of_extents(derivation, mesh)
    return tuple(
        (1, most) if n in shared else (divided, most) for n, (divided, most) in enumerate(limits)
    )


def may_split(mesh: Mesh, extent: int, axes: Sequence[int], limit: tuple[int, int]) -> bool:
    """Whether axes may split an index of an extent, by its limit of `piece_limits`."""
    divided, most = limit
    pieces = mesh.pieces(axes)
    if divided % pieces == 0:
        return True
    return pieces <= most and not mesh.has_empty(extent, axes)


@lru_cache(maxsize=4096)
def _indices_of_extents(derivation: Derivation, mesh: Mesh) -> frozenset[int]:
    """Return the indices that are cut in proportion, or lie along a dimension that is."""
    extents = tied_extents(derivation)
    return frozenset(n for n, of in enumerate(extents) if any(map(mesh.is_shared, of)))


@lru_cache(maxsize=65536)
def tied_extents(derivation: Derivation) -> tuple[frozenset[int], ...]:
    """Return, for each index, its extent and those of the dimensions that lie along it."""
    extents = [{index.extent} for index in derivation.indices]
    for numbers, shape in _tensors(derivation):
        for n, size in zip(numbers, shape, strict=True):
            if n is not None:
                extents[n].add(size)
    return tuple(map(frozenset, extents))


def _tensors(
    derivation: Derivation,
) -> Iterator[tuple[tuple[int | None, ...], tuple[int, ...]]]:
    """Yield the indices along the dimensions of each input and output, and its shape."""
    yield from zip(derivation.inputs, derivation.input_shapes, strict=True)
    yield from zip(derivation.outputs, derivation.output_shapes, strict=True)


@lru_cache(maxsize=65536)
def divisible(derivation: Derivation, units: Units = ()) -> tuple[int, ...]:
    """Return, for each index, the number that its count of pieces must divide.

    This is the greatest common divisor of the extent and of all dimensions that lie along the
    index, each counted in units (`Mesh.blocks`). It is 0 for an empty index, which any number
    divides.
    """
    unit = dict(units)
    return tuple(
        gcd(*(extent // unit.get(extent, 1) for extent in extents), 0 if index.splittable else 1)
        for index, extents in zip(derivation.indices, tied_extents(derivation), strict=True)
    )


def most_uneven(
    derivation: Derivation, offered: Collection[int] | None = None, units: Units = ()
) -> tuple[int, ...]:
    """Return, for each index, the most uneven pieces that it may be split into; 0 if its pieces
    have to be equal.

    Pieces may be uneven if every dimension along the index has its extent, or as many units, and
    the kernel computes them, or a rule that holds for uneven pieces does. Then a device's piece of
    the index is the same elements in every tensor. There is no reason to split an index into more
    pieces than it has values or units.

    Args:
        derivation: the derivation of an operator.
        offered: the extents that may be split so; all if None.
        units: `Mesh.units`.
    """
    limits = _most_uneven(derivation, units)
    if offered is None or not any(limits):
        return limits
    pairs = zip(derivation.indices, limits, strict=True)
    return tuple([most if index.extent in offered else 0 for index, most in pairs])


@lru_cache(maxsize=65536)
def _most_uneven(derivation: Derivation, units: Units) -> tuple[int, ...]:
    has_rule, unit = operator_type(derivation.op_type).uneven_rule, dict(units)
    limits = []
    for index, extents in zip(derivation.indices, tied_extents(derivation), strict=True):
        is_computed = index.splittable and (has_rule or not index.spelled_out)
        blocks = {extent // unit.get(extent, 1) for extent in extents}
        limits.append(max(*blocks, 0) if is_computed and len(blocks) == 1 else 0)
    return tuple(limits)


def largest_share(derivation: Derivation, pieces: Collection[int], mesh: Mesh) -> Fraction:
    """Return the share of the iteration space that a device with the largest pieces computes.

    Args:
        derivation: the derivation of an operator.
        pieces: the number of pieces of each of its indices.
        mesh: the devices.
    """
    largest = whole = 1
    for index, count in zip(derivation.indices, pieces, strict=True):
        blocks = mesh.blocks(index.extent)
        if blocks % count:
            largest *= -(-blocks // count)
            whole *= blocks
        else:
            whole *= count
    return Fraction(largest, whole)


def shares_of(
    derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> tuple[list[int], int]:
    """Return the share of the iteration space that each device computes, and their denominator."""
    shares, whole = [1] * mesh.size, 1
    for index, axes in zip(derivation.indices, configuration.splits, strict=True):
        if not axes or index.partial_inputs:
            continue
        if mesh.divides(index.extent, axes):
            whole *= mesh.pieces(axes)
        else:
            whole *= index.extent
            extents = mesh.extents(index.extent, axes)
            shares = [share * own for share, own in zip(shares, extents, strict=True)]
    return shares, whole


def _dims(
    configuration: Configuration, numbers: tuple[int | None, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return the axes that split each dimension of a tensor."""
    return tuple(() if n is None else configuration.splits[n] for n in numbers)


def input_slot(derivation: Derivation, configuration: Configuration, i: int) -> Slot:
    """Return the layouts of input ``i`` and of its gradient.

    The gradient is partial over the axes that split an index which this input lacks: each device
    has the contribution of its piece of that index. Axes that split no index replicate it.

    Over the axes that split an index with this input in ``Index.partial_inputs``, the input itself
    is a partial sum. Its gradient is replicated there: the gradient of each share is that of the
    sum.
    """
    numbers = derivation.inputs[i]
    dims = _dims(configuration, numbers)
    partial: list[int] = []
    absent: list[int] = []
    for n, axes in enumerate(configuration.splits):
        if axes and i in derivation.indices[n].partial_inputs:
            partial += axes
        elif n not in numbers:
            absent += axes
    return Slot(Layout(dims, tuple(partial)), Layout(dims, tuple(absent)))


def output_slot(derivation: Derivation, configuration: Configuration, o: int) -> Slot:
    """Return the layouts of output ``o`` and of its gradient.

    The output is partial over the axes that split a reduction index, and over the axes that split
    an index with this output in ``Index.partial_outputs``.

    The gradient is partial over the axes that split an index which only other outputs have. All
    devices along these axes hold the output, and each passes its share of the gradient back through
    its piece.

    Raises:
        LayoutError: if indices with different reducers are split.
    """
    numbers = derivation.outputs[o]
    dims = _dims(configuration, numbers)
    absent = [
        axis
        for n, (index, axes) in enumerate(
            zip(derivation.indices, configuration.splits, strict=True)
        )
        if n not in numbers and index.reducer is None and not index.spelled_out
        for axis in axes
    ]
    gradient = Layout(dims, tuple(absent))
    split = [
        (index.reducer or "sum", axes)
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if axes and (index.reducer is not None or o in index.partial_outputs)
    ]
    reducers = sorted({reducer for reducer, _ in split})
    if len(reducers) > 1:
        raise LayoutError(
            f"all split indices of an output have one reducer. Got {' and '.join(reducers)} for "
            f"{derivation.op_type} under {configuration}."
        )
    partial = tuple(axis for _, axes in split for axis in axes)
    return Slot(Layout(dims, partial, reducers[0] if reducers else "sum"), gradient)


def fitted(configuration: Configuration, derivation: Derivation, mesh: Mesh) -> Configuration:
    """Return the configuration for the same operator at other shapes, with indices matched by
    position.

    Where an index cannot be split into as many pieces, equal or not, axes are dropped, the last one
    first. The devices along a dropped axis repeat the same computation.
    """
    splits = []
    limits = piece_limits(derivation, mesh)
    for n, (index, limit) in enumerate(zip(derivation.indices, limits, strict=True)):
        axes = configuration.splits[n] if n < len(configuration.splits) else ()
        while not may_split(mesh, index.extent, axes, limit):
            axes = axes[:-1]
        splits.append(axes)
    return Configuration(tuple(splits), configuration.kept)


def gradient_is_local(derivation: Derivation, configuration: Configuration) -> bool:
    """Whether TensorFlow's gradient function, run on pieces, gives the gradients of `input_slot`.

    It does not if a maximum, minimum or product is split: no device knows by itself which element
    is the largest, or the product of the other elements.
    """
    return not any(
        axes and index.reducer in ("max", "min", "prod")
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    )


def rescaling(
    derivation: Derivation, configuration: Configuration, mesh: Mesh, rank: int = 0
) -> Fraction:
    """Return the factor that turns the kernel's outputs on a device's piece into partial sums.

    It is 1 except for averages: a kernel that averages divides by the extent of its piece, and the
    partial sum needs the extent of the whole index.
    """
    share = Fraction(1)
    for index, axes in zip(derivation.indices, configuration.splits, strict=True):
        if index.averaged and not mesh.divides(index.extent, axes):
            start, end = mesh.bounds(index.extent, axes, rank)
            share *= Fraction(end - start, index.extent)
        elif index.averaged:
            share /= mesh.pieces(axes)
    return share
