"""How one tensor lies on a mesh: which axes split each dimension, which hold partial values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tensoropt.errors import LayoutError
from tensoropt.parallel.mesh import Mesh

__all__ = ["REDUCERS", "Layout", "Slot"]

REDUCERS = ("sum", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one tensor.

    Attributes:
        dims: for each dimension the ordered mesh axes that split it, the major one first.
        partial: the axes over which the true tensor is a reduction of the devices' values, sorted.
        reducer: that reduction: "sum", "max", "min" or "prod"; "sum" where nothing is partial.

    An axis that is named nowhere replicates the tensor.
    """

    dims: tuple[tuple[int, ...], ...]
    partial: tuple[int, ...] = ()
    reducer: str = "sum"

    def __post_init__(self) -> None:
        used = [axis for axes in self.dims for axis in axes] + list(self.partial)
        if len(set(used)) != len(used):
            raise LayoutError(f"a mesh axis splits one dimension at most. Got {self._terse()}.")
        if self.reducer not in REDUCERS:
            raise LayoutError(f"a reducer is one of {', '.join(REDUCERS)}. Got {self.reducer!r}.")
        if tuple(sorted(self.partial)) != self.partial:
            object.__setattr__(self, "partial", tuple(sorted(self.partial)))
        if not self.partial:
            object.__setattr__(self, "reducer", "sum")

    @classmethod
    def replicated(cls, rank: int) -> Layout:
        """The layout of a tensor of ``rank`` dimensions that every device holds whole."""
        return cls(((),) * rank)

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the whole, true tensor."""
        return not self.partial and not any(self.dims)

    @property
    def axes(self) -> tuple[int, ...]:
        """All axes in use, split and partial, sorted."""
        return tuple(sorted([a for axes in self.dims for a in axes] + list(self.partial)))

    def fits(self, shape: Sequence[int], mesh: Mesh) -> bool:
        """Whether every dimension divides evenly and every axis exists."""
        return (
            len(shape) == len(self.dims)
            and all(axis < len(mesh.axes) for axis in self.axes)
            and all(n % mesh.pieces(axes) == 0 for n, axes in zip(shape, self.dims, strict=True))
        )

    def local_shape(self, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        """Shape of one device's piece.

        Raises:
            LayoutError: if a dimension does not divide by the devices that split it.
        """
        if not self.fits(shape, mesh):
            raise LayoutError(
                f"a dimension is split only where it divides evenly. Got shape {tuple(shape)} "
                f"with layout {self._terse()} on mesh {mesh}."
            )
        return tuple(n // mesh.pieces(axes) for n, axes in zip(shape, self.dims, strict=True))

    def local_elements(self, shape: Sequence[int], mesh: Mesh) -> int:
        """Number of elements of one device's piece."""
        return prod(self.local_shape(shape, mesh))

    def region(self, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[slice, ...]:
        """Which part of the tensor the device holds."""
        local = self.local_shape(shape, mesh)
        starts = (mesh.piece(rank, axes) * n for axes, n in zip(self.dims, local, strict=True))
        return tuple(slice(s, s + n) for s, n in zip(starts, local, strict=True))

    def mesh_and_map(self, mesh: Mesh) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The paper's device mesh and tensor map (section 2.1, Figure 1).

        Axes that split the same dimension are merged into one mesh dimension; so are the axes
        that no dimension uses. Where merged axes are not adjacent the mesh is a permutation of
        the devices. The map gives per tensor dimension its mesh dimension, -1 for none.
        """
        blocks = sorted((axes for axes in self.dims if axes), key=lambda axes: axes)
        rest = tuple(a for a in range(len(mesh.axes)) if all(a not in axes for axes in blocks))
        order = sorted([*blocks, *([rest] if rest else [])])
        sizes = tuple(mesh.pieces(axes) for axes in order)
        return sizes or (1,), tuple(order.index(a) if a else -1 for a in self.dims)

    @classmethod
    def from_mesh_and_map(
        cls, mesh: Mesh, sizes: Sequence[int], tensor_map: Sequence[int]
    ) -> Layout:
        """The layout that a device mesh in row-major order and a tensor map stand for.

        Raises:
            LayoutError: if the mesh dimensions do not cut the axes, in order, into blocks, or a
                mesh dimension is named twice.
        """
        blocks: list[tuple[int, ...]] = []
        axis = 0
        for size in sizes:
            start = axis
            while mesh.pieces(range(start, axis)) < size and axis < len(mesh.axes):
                axis += 1
            if mesh.pieces(range(start, axis)) != size:
                raise LayoutError(
                    f"a mesh dimension is a product of consecutive mesh axes. Got mesh "
                    f"{list(sizes)} over axes {mesh}."
                )
            blocks.append(tuple(range(start, axis)))
        if axis != len(mesh.axes):
            raise LayoutError(f"mesh {list(sizes)} does not cover the {mesh.size} devices {mesh}.")
        if any(not -1 <= entry < len(blocks) for entry in tensor_map):
            raise LayoutError(
                f"a tensor map names mesh dimensions 0 to {len(blocks) - 1}, or -1 for none. "
                f"Got {list(tensor_map)}."
            )
        return cls(tuple(blocks[entry] if entry >= 0 else () for entry in tensor_map))

    def describe(self, mesh: Mesh) -> str:
        """The layout as the paper writes it: ``[2,2] map [0,-1]``, partial axes after it."""
        sizes, tensor_map = self.mesh_and_map(mesh)
        text = f"[{','.join(map(str, sizes))}] map [{','.join(map(str, tensor_map))}]"
        if self.partial:
            text += f" partial {self.reducer} over {mesh.pieces(self.partial)}"
        return text

    def _terse(self) -> str:
        text = "(" + ",".join("".join(map(str, axes)) or "-" for axes in self.dims) + ")"
        return text + (f"+{self.reducer}{list(self.partial)}" if self.partial else "")

    def __str__(self) -> str:
        return self._terse()


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor meets an operator: its layout there, and its gradient's layout there."""

    forward: Layout
    gradient: Layout
