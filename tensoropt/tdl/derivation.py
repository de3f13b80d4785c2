"""The iteration space of one operator, and the layouts that splits of its indices give."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

__all__ = ["Derivation", "Halo", "Index", "InnerCollective"]

Shape = tuple[int, ...]
IndexOfDim = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """One index of an iteration space.

    Attributes:
        name: its name in the description's lambda.
        extent: the number of its values.
        reducer: "sum", "max", "min" or "prod" for a reduction index, None for an output index.
        splittable: whether the same kernel, run on pieces of the inputs, gives pieces of the
            outputs (partial ones for a reduction index).
        reason: why it cannot be split; empty if it can.
        averaged: whether the kernel divides by the index's extent. On a piece it divides by the
            piece's extent; the partial sum is its result times piece over extent.
        spelled_out: whether the kernel cannot run on a piece: a lowering rule splits the
            index, with collectives inside the operator.
        partial_outputs: for a spelled-out index, the outputs that do not have this index. They are
            partial sums if it is split. The rule then needs no collectives; the outputs' readers
            do.
        partial_inputs: inputs that are partial sums along the axes that split this index, see
            `Derivation.on_shares`.
        along_all: whether the index is split by all axes of a mesh or by none.
    """

    name: str
    extent: int
    reducer: str | None
    splittable: bool
    reason: str = ""
    averaged: bool = False
    spelled_out: bool = False
    partial_outputs: tuple[int, ...] = ()
    partial_inputs: tuple[int, ...] = ()
    along_all: bool = False

    @property
    def has_inner_collectives(self) -> bool:
        """Whether a split of it communicates inside the operator, other than halos."""
        return self.spelled_out and not self.partial_outputs


@dataclass(frozen=True, slots=True)
class InnerCollective:
    """A collective that a lowering rule runs inside a split operator, as far as its price needs it.

    Attributes:
        kind: MPI's name of the collective.
        elements: the number of elements of a device's tensor.
        times: number of calls in the forward and the backward pass together.
        backward: number of these calls in the backward pass.
    """

    kind: str
    elements: int
    times: int = 1
    backward: int = 0


@dataclass(frozen=True, slots=True)
class Halo:
    """The elements of neighbours' pieces of an input dimension that a split along ``index`` reads.

    ``before`` and ``after`` count elements of that dimension, whatever the number of pieces.
    """

    index: int
    input: int
    dim: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Derivation:
    """The splits and costs of an operator at given shapes.

    Attributes:
        op_type: TensorFlow's operator type.
        indices: output indices in order, then reduction indices.
        inputs: per input and dimension the number of the index whose split splits it; None if no
            split of an index splits the dimension.
        outputs: the same for the outputs.
        input_shapes: global shapes.
        output_shapes: global shapes.
        halos: elements of neighbours' pieces that overlapping windows read. The rule of a
            spelled-out index exchanges them; any other index with a halo cannot be split.
        flops: arithmetic operations over the whole iteration space, forward; a multiply-add is 2.
        linear: the sets of inputs in which the outputs are linear, see
            `tensoropt.tdl.operator_type.linear_inputs`.
    """

    op_type: str
    indices: tuple[Index, ...]
    inputs: tuple[IndexOfDim, ...]
    outputs: tuple[IndexOfDim, ...]
    input_shapes: tuple[Shape, ...]
    output_shapes: tuple[Shape, ...]
    halos: tuple[Halo, ...] = ()
    flops: int = 0
    linear: tuple[tuple[int, ...], ...] = ()

    @property
    def splittable(self) -> tuple[int, ...]:
        """Numbers of the indices that can be split."""
        return tuple(n for n, index in enumerate(self.indices) if index.splittable)

    def is_averaged(self, output: int) -> bool:
        """Whether a split makes this output a partial sum, see `Index.partial_outputs`.

        All layers' readers of these outputs are moved to the end
        (`tensoropt.graph.ordering.statistics_last`), so that one collective adds up all of them.
        """
        return any(output in index.partial_outputs for index in self.indices)

    def on_shares(
        self, splittable_sets: Collection[tuple[int, ...]] | None = None, *, along_all: bool = False
    ) -> Derivation:
        """Return the derivation with a further index for each set of inputs in `linear`.

        Axes that split this index divide no work: the inputs of the set are partial sums along
        these axes, every device runs the kernel on its own, and the outputs are partial sums, too.

        Args:
            splittable_sets: the sets whose index can be split; all sets if None.
            along_all: see `Index.along_all`.
        """
        more = tuple(
            Index(
                f"partial({','.join(map(str, inputs))})",
                0,  # any number of pieces is possible
                "sum",
                splittable := splittable_sets is None or inputs in splittable_sets,
                "" if splittable else "none of its inputs is a partial sum",
                partial_inputs=inputs,
                along_all=along_all,
            )
            for inputs in self.linear
        )
        return replace(self, indices=(*self.indices, *more), linear=())

    def index(self, name: str) -> int:
        """Return the number of the index of a name.

        Raises:
            KeyError: if there is none.
        """
        for n, index in enumerate(self.indices):
            if index.name == name:
                return n
        raise KeyError(name)
