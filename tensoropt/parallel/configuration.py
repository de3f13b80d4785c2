"""How one operator is split: which mesh axes split which index of its iteration space.

A configuration determines the layout of every input and output, forward and backward. An axis
that splits no index is redundant computation: the devices along it do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd

from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.derivation import Derivation

__all__ = [
    "KEPT",
    "Configuration",
    "configurations",
    "divisible",
    "fitted",
    "gradient_is_local",
    "input_slot",
    "is_redundant",
    "output_slot",
    "reduces",
    "rescaling",
    "working_axes",
]


KEPT = ("both", "before", "after", "recomputed")
"""What the backward pass finds of an operator's outputs: the tensor as it is made and its copies
in other layouts; one of the two, the other being resharded again (TensorOpt, section 4.2); or
neither, the operator being computed again."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Per index of the iteration space the mesh axes that split it, ascending.

    Attributes:
        splits: these axes.
        kept: which copies of its outputs are kept for the backward pass, of `KEPT`.
    """

    splits: tuple[tuple[int, ...], ...]
    kept: str = "both"

    def __post_init__(self) -> None:
        if self.kept not in KEPT:
            raise LayoutError(
                f"of an operator's outputs are kept {', '.join(KEPT)}. Got {self.kept!r}."
            )
        used = [axis for axes in self.splits for axis in axes]
        if len(set(used)) != len(used) or any(list(a) != sorted(a) for a in self.splits):
            raise LayoutError(
                f"a mesh axis splits one index at most, and an index names its axes in ascending "
                f"order. Got {self}."
            )

    def describe(self, derivation: Derivation, mesh: Mesh) -> str:
        """The configuration in words: ``m/2 k/4 redundant 2``; ``whole`` on one device."""
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
def configurations(derivation: Derivation, mesh: Mesh) -> tuple[Configuration, ...]:
    """Every valid configuration, the fully redundant one first, in a fixed order.

    Each axis splits one splittable index or none, (indices + 1)^axes choices, of which those are
    valid that divide every extent and every input and output dimension evenly.
    """
    return tuple(Configuration(splits) for splits in _assignments(derivation, mesh))


def _assignments(derivation: Derivation, mesh: Mesh) -> Iterator[tuple[tuple[int, ...], ...]]:
    limits = divisible(derivation)
    along_all = [n for n, index in enumerate(derivation.indices) if index.along_all]

    def extend(
        axis: int, splits: tuple[tuple[int, ...], ...]
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        if axis == len(mesh.axes):
            if all(len(splits[n]) in (0, axis) for n in along_all):
                yield splits
            return
        yield from extend(axis + 1, splits)
        for n, limit in enumerate(limits):
            axes = (*splits[n], axis)
            if limit % mesh.pieces(axes) == 0:
                yield from extend(axis + 1, (*splits[:n], axes, *splits[n + 1 :]))

    return extend(0, ((),) * len(derivation.indices))


@lru_cache(maxsize=65536)
def divisible(derivation: Derivation) -> tuple[int, ...]:
    """Per index what its pieces must divide: the common divisor of its extent and dimensions."""
    limits = [index.extent if index.splittable else 1 for index in derivation.indices]  # 0 by any
    for dims, shapes in (
        (derivation.inputs, derivation.input_shapes),
        (derivation.outputs, derivation.output_shapes),
    ):
        for numbers, shape in zip(dims, shapes, strict=True):
            for n, size in zip(numbers, shape, strict=True):
                if n is not None:
                    limits[n] = gcd(limits[n], size)
    return tuple(limits)


def _dims(
    configuration: Configuration, numbers: tuple[int | None, ...]
) -> tuple[tuple[int, ...], ...]:
    """The axes that split each dimension of a tensor."""
    return tuple(() if n is None else configuration.splits[n] for n in numbers)


def input_slot(derivation: Derivation, configuration: Configuration, i: int) -> Slot:
    """Layouts of input ``i`` and of its gradient.

    The gradient is a partial sum over the axes that split an index this input lacks: each device
    has the share of its part of that index. Over axes of redundant computation it is replicated.
    An input of which each device has a share (``Index.partial_inputs``) is partial itself, and its
    gradient is not: each share's is that of their sum.
    """
    numbers = derivation.inputs[i]
    dims = _dims(configuration, numbers)
    partial: list[int] = []
    lacking: list[int] = []
    for n, axes in enumerate(configuration.splits):
        if axes and i in derivation.indices[n].partial_inputs:
            partial += axes
        elif n not in numbers:
            lacking += axes
    return Slot(Layout(dims, tuple(partial)), Layout(dims, tuple(lacking)))


def output_slot(derivation: Derivation, configuration: Configuration, o: int) -> Slot:
    """Layouts of output ``o``, partial over the axes of reduction indices, and of its gradient.

    It is partial, too, where the split of an index leaves it so (``Index.partial_outputs``).

    Over axes that split an index which only other outputs have, every device holds the output and
    its gradient is partial: each device's share of it goes back through that device's piece.

    Raises:
        LayoutError: if indices with different reducers are split.
    """
    numbers = derivation.outputs[o]
    dims = _dims(configuration, numbers)
    lacking = [
        axis
        for n, (index, axes) in enumerate(
            zip(derivation.indices, configuration.splits, strict=True)
        )
        if n not in numbers and index.reducer is None and not index.spelled_out
        for axis in axes
    ]
    gradient = Layout(dims, tuple(lacking))
    split = [
        (index.reducer or "sum", axes)
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if axes and (index.reducer is not None or o in index.partial_outputs)
    ]
    reducers = sorted({reducer for reducer, _ in split})
    if len(reducers) > 1:
        raise LayoutError(
            f"one reducer brings an output's pieces together. Got {' and '.join(reducers)} for "
            f"{derivation.op_type} under {configuration}."
        )
    partial = tuple(axis for _, axes in split for axis in axes)
    return Slot(Layout(dims, partial, reducers[0] if reducers else "sum"), gradient)


def fitted(configuration: Configuration, derivation: Derivation, mesh: Mesh) -> Configuration:
    """The configuration for the same operator at other shapes, indices matched by position.

    Axes are dropped, the last first, where a dimension does not divide or an index cannot be
    split there: they become redundant computation.
    """
    splits = []
    for n, limit in enumerate(divisible(derivation)):
        axes = configuration.splits[n] if n < len(configuration.splits) else ()
        while limit % mesh.pieces(axes):
            axes = axes[:-1]
        splits.append(axes)
    return Configuration(tuple(splits), configuration.kept)


def reduces(configuration: Configuration, derivation: Derivation) -> bool:
    """Whether a reduction index is split, so that outputs are partial."""
    return any(
        axes and index.reducer is not None
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    )


def working_axes(derivation: Derivation, configuration: Configuration) -> tuple[int, ...]:
    """The axes that divide an operator's work, which shares of a partial sum do not."""
    return tuple(
        axis
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if not index.partial_inputs
        for axis in axes
    )


def is_redundant(configuration: Configuration, derivation: Derivation, mesh: Mesh) -> bool:
    """Whether some devices do the same work; ``derivation`` names what is split."""
    if len(configuration.splits) != len(derivation.indices):
        raise LayoutError(
            f"a configuration has an entry per index. Got {configuration} for "
            f"{derivation.op_type} with {len(derivation.indices)} indices."
        )
    return sum(map(len, configuration.splits)) < len(mesh.axes)


def gradient_is_local(derivation: Derivation, configuration: Configuration) -> bool:
    """Whether the kernel's registered gradient, on pieces, gives the gradients of `input_slot`.

    It does not where a maximum, minimum or product is split: which element is the largest, or
    what the others multiply to, no device knows alone.
    """
    return not any(
        axes and index.reducer in ("max", "min", "prod")
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    )


def rescaling(derivation: Derivation, configuration: Configuration, mesh: Mesh) -> Fraction:
    """By what a device multiplies its outputs to have partial sums: 1 but for averages.

    A kernel that divides by an index's extent divides by its piece's extent when that is split.
    """
    pieces = 1
    for index, axes in zip(derivation.indices, configuration.splits, strict=True):
        if index.averaged:
            pieces *= mesh.pieces(axes)
    return Fraction(1, pieces)
