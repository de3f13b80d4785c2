"""The layout of a tensor on a mesh: the axes that split each dimension, and the partial axes.

The mesh cuts a dimension into pieces (`tensoropt.parallel.mesh`), which may differ in extent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tensoropt.errors import LayoutError
from tensoropt.parallel.mesh import Mesh

__all__ = ["REDUCERS", "Layout", "Slot"]

REDUCERS = ("sum", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one tensor. An axis that it does not name replicates the tensor.

    Attributes:
        dims: for each dimension the mesh axes that split it, in order, the major one first.
        partial: the axes over which the tensor is the reduction of the devices' values, sorted.
        reducer: that reduction: "sum", "max", "min" or "prod"; "sum" where nothing is partial.
    """

    dims: tuple[tuple[int, ...], ...]
    partial: tuple[int, ...] = ()
    reducer: str = "sum"

    def __post_init__(self) -> None:
        used = [axis for axes in self.dims for axis in axes]
        used += self.partial
        if used and min(used) < 0:
            raise LayoutError(f"mesh axes are counted from 0. Got {self._terse()}.")
        if len(set(used)) != len(used):
            raise LayoutError(f"a mesh axis splits one dimension at most. Got {self._terse()}.")
        if self.reducer not in REDUCERS:
            raise LayoutError(f"a reducer is one of {', '.join(REDUCERS)}. Got {self.reducer!r}.")
        if self.partial and tuple(sorted(self.partial)) != self.partial:
            object.__setattr__(self, "partial", tuple(sorted(self.partial)))
        if not self.partial and self.reducer != "sum":
            object.__setattr__(self, "reducer", "sum")

    @classmethod
    def replicated(cls, rank: int) -> Layout:
        """Return the layout of a tensor of ``rank`` dimensions that every device holds whole."""
        return cls(((),) * rank)

    @property
    def axes(self) -> tuple[int, ...]:
        """All axes that split a dimension or are partial, sorted."""
        return tuple(sorted([a for axes in self.dims for a in axes] + list(self.partial)))

    def fits(self, shape: Sequence[int], mesh: Mesh) -> bool:
        """Whether the mesh has every axis, and no dimension that is not empty has an empty
        piece."""
        return _local_shape(self, tuple(shape), mesh) is not None

    def uneven_dims(self, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        """Return the dimensions that fall into pieces of different extents."""
        return tuple(
            dim
            for dim, (n, axes) in enumerate(zip(shape, self.dims, strict=True))
            if axes and not mesh.divides(n, axes)
        )

    def local_shape(self, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        """Return the shape of the largest piece; device 0 has it if the pieces are cut evenly.

        Raises:
            LayoutError: if a dimension has fewer elements than devices that split it.
        """
        local = _local_shape(self, tuple(shape), mesh)
        if local is None:
            raise LayoutError(
                "a dimension has an element for each device that splits it. Got shape "
                f"{tuple(shape)} with layout {self._terse()} on mesh {mesh}."
            )
        return local

    def shape_on(self, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[int, ...]:
        """Return the shape of the piece that a device holds."""
        if not self.uneven_dims(shape, mesh):
            return self.local_shape(shape, mesh)
        return tuple(part.stop - part.start for part in self.region(shape, mesh, rank))

    def local_elements(self, shape: Sequence[int], mesh: Mesh) -> int:
        """Number of elements of the largest piece."""
        return prod(self.local_shape(shape, mesh))

    def region(self, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """Return the part of the tensor that a device holds."""
        self.local_shape(shape, mesh)
        return tuple(
            slice(*mesh.bounds(n, axes, rank)) for n, axes in zip(shape, self.dims, strict=True)
        )

    def mesh_and_map(self, mesh: Mesh) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the paper's device mesh and tensor map (section 2.1, Figure 1).

        Each dimension of the device mesh is a block of axes: the axes that split one tensor
        dimension (the major axis first), or a run of neighbouring axes that are all partial or all
        replicate. The blocks are sorted by their axes. The tensor map has, for each tensor
        dimension, the dimension of the device mesh that splits it, or -1.

        The devices fill the device mesh in the row-major order of `permutation`. That order is 0,
        1, 2, ... unless the axes of a tensor dimension are not neighbours or not ascending. The
        device at position (p0, p1, ...) of the device mesh holds piece p[tensor_map[d]] of
        dimension d. Device mesh, tensor map, permutation and `partial_map` determine the layout.

        Raises:
            LayoutError: if the mesh lacks one of the layout's axes.
        """
        blocks = self._blocks(mesh)
        sizes = tuple(mesh.pieces(axes) for axes in blocks) or (1,)
        return sizes, tuple(blocks.index(axes) if axes else -1 for axes in self.dims)

    def partial_map(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the dimensions of the device mesh over which values are partial."""
        blocks = self._blocks(mesh)
        return tuple(i for i, axes in enumerate(blocks) if set(axes) <= set(self.partial))

    def permutation(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the devices in the row-major order of the device mesh."""
        return mesh.group(0, self._axis_order(mesh))

    def describe(self, mesh: Mesh) -> str:
        """Return the layout in the notation of the paper: ``[2,2] map [0,-1]``.

        If values are partial, the partial dimensions of the device mesh follow: ``partial sum
        [1]``. If the devices are permuted, the order of the mesh axes follows: ``axes [0,2,1]``.
        """
        sizes, tensor_map = self.mesh_and_map(mesh)
        text = f"{_bracketed(sizes)} map {_bracketed(tensor_map)}"
        if self.partial:
            text += f" partial {self.reducer} {_bracketed(self.partial_map(mesh))}"
        order = self._axis_order(mesh)
        return text if order == tuple(sorted(order)) else f"{text} axes {_bracketed(order)}"

    def _blocks(self, mesh: Mesh) -> tuple[tuple[int, ...], ...]:
        """Return the axes of every dimension of the device mesh."""
        if any(axis >= len(mesh.axes) for axis in self.axes):
            raise LayoutError(
                f"a layout uses axes 0 to {len(mesh.axes) - 1} of mesh {mesh}. Got {self}."
            )
        split = {axis for axes in self.dims for axis in axes}
        blocks = [axes for axes in self.dims if axes]
        rest = (axis for axis in range(len(mesh.axes)) if axis not in split)
        # Neighbouring axes have equal differences from a running count.
        for _, run in itertools.groupby(
            enumerate(rest), key=lambda item: (item[1] - item[0], item[1] in self.partial)
        ):
            blocks.append(tuple(axis for _, axis in run))
        return tuple(sorted(blocks))

    def _axis_order(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the mesh axes in the order of the device mesh, the slowest first."""
        return tuple(axis for axes in self._blocks(mesh) for axis in axes)

    def _terse(self) -> str:
        text = "(" + ",".join("".join(map(str, axes)) or "-" for axes in self.dims) + ")"
        return text + (f"+{self.reducer}{list(self.partial)}" if self.partial else "")

    def __str__(self) -> str:
        return self._terse()


@lru_cache(maxsize=65536)
def _local_shape(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> tuple[int, ...] | None:
    """Return the shape of the largest piece, None if it is not valid for all devices."""
    if len(shape) != len(layout.dims) or any(axis >= len(mesh.axes) for axis in layout.axes):
        return None
    dims = list(zip(shape, layout.dims, strict=True))
    if any(mesh.has_empty(n, axes) for n, axes in dims):
        return None
    return tuple(mesh.largest(n, axes) for n, axes in dims)


def _bracketed(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"


@dataclass(frozen=True, slots=True)
class Slot:
    """The layouts of a tensor and of its gradient at one input or output of an operator."""

    forward: Layout
    gradient: Layout
