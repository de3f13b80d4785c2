"""Pins: dimensions of operators' work that a user divides over levels of the cluster by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array
from tensoropt.parallel.choices.fixed_dimension import FixedDimension
from tensoropt.parallel.mesh import Mesh, levels_of_axes
from tensoropt.tdl import Derivation

__all__ = ["MeshPins", "PinnedIndices", "Pins"]


@dataclass(frozen=True, slots=True)
class PinnedIndices:
    """The pieces of an index of an operator at each level of links.

    Attributes:
        indices: the numbers of the indices; together they have the pieces.
        pieces: the pieces at each level, the outermost first; None for one in each group.
    """

    indices: tuple[int, ...]
    pieces: tuple[int | None, ...]

    def wanted(self, counts: Sequence[int]) -> tuple[int, ...]:
        """The pieces at each level, for the groups of each level."""
        return tuple(
            count if pieces is None else pieces
            for count, pieces in zip(counts, self.pieces, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of a step.

    Attributes:
        words: the pins as a user gives them.
        of_operator: the pins of each operator, by name.
        by_word: the operators that each word pins.
        names_batch: whether a pin is about the batch.
    """

    words: tuple[FixedDimension, ...] = ()
    of_operator: Mapping[str, tuple[PinnedIndices, ...]] = field(default_factory=dict)
    by_word: tuple[frozenset[str], ...] = ()
    names_batch: bool = False

    @property
    def divides(self) -> bool:
        """Whether a pin divides a dimension."""
        return any(word.levels for word in self.words)

    def on(self, mesh: Mesh, counts: Sequence[int]) -> MeshPins:
        """Return the pins on a mesh.

        Args:
            mesh: the devices.
            counts: their groups at each level, the outermost first.
        """
        return MeshPins(self.of_operator, mesh, tuple(counts))


@dataclass(frozen=True, slots=True, eq=False)
class MeshPins:
    """Pins on a mesh.

    Attributes:
        of_operator: the pins of each operator, by name.
        mesh: the devices.
        counts: their groups at each level, the outermost first.
    """

    of_operator: Mapping[str, tuple[PinnedIndices, ...]]
    mesh: Mesh
    counts: tuple[int, ...]

    def of(self, names: Sequence[str]) -> tuple[tuple[PinnedIndices, ...], ...]:
        """Return the pins of each of some operators."""
        return tuple(self.of_operator.get(name, ()) for name in names)

    def allows(self, name: str, assigned: Int8Array) -> BoolArray:
        """Return bool[K]: whether each configuration of an operator keeps its pins.

        Args:
            name: the operator.
            assigned: int8[K, axes], the index that every axis splits under each configuration.
        """
        levels = np.array(levels_of_axes(self.mesh.axes, self.counts))
        sizes, allowed = np.array(self.mesh.axes), np.ones(len(assigned), dtype=bool)
        for pin in self.of_operator[name]:
            chosen = np.isin(assigned, pin.indices)
            for level, wanted in enumerate(pin.wanted(self.counts)):
                pieces = np.where(chosen & (levels == level), sizes, 1).prod(axis=1)
                allowed &= pieces == wanted
        return allowed

    def uneven_extents(self, derivations: Mapping[str, Derivation]) -> frozenset[int]:
        """Return the extents of pinned indices that their pieces do not divide."""
        return frozenset(
            extent
            for name in self.of_operator.keys() & derivations.keys()
            for pin in self.of_operator[name]
            for n in pin.indices
            if self.mesh.blocks(extent := derivations[name].indices[n].extent)
            % int(np.prod(pin.wanted(self.counts)))
        )
