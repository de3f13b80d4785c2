"""What a description says about one operator: its iteration space and what a split of it needs."""

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
        name: as the description's lambda calls it.
        extent: number of values that it takes.
        reducer: "sum", "max", "min" or "prod" for a reduction index, None for an output index.
        splittable: whether the same kernel, run on pieces of the inputs, gives pieces of the
            outputs (partial ones for a reduction index).
        reason: why it cannot be split; empty where it can.
        averaged: whether the kernel divides by the index's extent. On a piece it divides by the
            piece's, so its result times piece over extent is the partial sum.
        spelled_out: whether the kernel on a piece is not enough: a split of this index is emitted
            by a rule of its own, with collectives inside the operator.
        partial_outputs: of an index that is spelled out, the outputs that lack it and are partial
            sums when it is split. Its rule then needs no collectives: reading them does.
        partial_inputs: inputs of which each device has a share along the axes that split this
            index, and all of them together the sum, see `Derivation.on_shares`.
        along_all: whether all axes of a mesh split the index, or none.
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
        """Whether a split of it communicates inside the operator, but for halos, if any does."""
        return self.spelled_out and not self.partial_outputs


@dataclass(frozen=True, slots=True)
class InnerCollective:
    """A collective inside an operator whose emission is spelled out, for its price.

    Attributes:
        kind: MPI's name of it.
        elements: of the local tensor that it starts from.
        times: how often, forward and backward together.
        backward: of these, how often backward.
    """

    kind: str
    elements: int
    times: int = 1
    backward: int = 0


@dataclass(frozen=True, slots=True)
class Halo:
    """What a split along ``index`` reads of its neighbours' pieces of one input dimension.

    ``before`` and ``after`` count elements of that dimension, whatever the number of pieces.
    """

    index: int
    input: int
    dim: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Derivation:
    """All that the later stages know about an operator.

    Attributes:
        op_type: TensorFlow's operator type.
        indices: output indices in order, then reduction indices.
        inputs: per input and dimension the number of the index whose split splits it; None where
            the dimension is whole under every configuration.
        outputs: the same for the outputs.
        input_shapes: global shapes.
        output_shapes: global shapes.
        halos: what splits of overlapping windows read of their neighbours. Of a spelled-out index
            its rule exchanges them; any other index with a halo cannot be split.
        flops: arithmetic operations over the whole iteration space, forward; a multiply-add is 2.
        linear: the sets of inputs in which the outputs are linear, see
            `tensoropt.tdl.linear.linear_inputs`.
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
        """Whether splits leave an output as shares of an average, see `Index.partial_outputs`.

        What reads those of all layers is put off until all are there
        (`tensoropt.graph.ordering.statistics_last`): all that are only added up travel together.
        """
        return any(output in index.partial_outputs for index in self.indices)

    def on_shares(
        self, offered: Collection[tuple[int, ...]] | None = None, *, along_all: bool = False
    ) -> Derivation:
        """With an index more for each set of `linear`: its inputs may be partial sums.

        An axis that splits such an index divides no work. Every device runs the kernel on its
        shares of these inputs, and the outputs are partial sums, too.

        Args:
            offered: the sets whose index can be split; all of them if left out.
            along_all: whether by all axes of a mesh or none.
        """
        more = tuple(
            Index(
                f"partial({','.join(map(str, inputs))})",
                0,  # it falls into any number of pieces
                "sum",
                splittable := offered is None or inputs in offered,
                "" if splittable else "nothing that it reads is a partial sum",
                partial_inputs=inputs,
                along_all=along_all,
            )
            for inputs in self.linear
        )
        return replace(self, indices=(*self.indices, *more), linear=())

    def index(self, name: str) -> int:
        """Number of the index of that name.

        Raises:
            KeyError: if there is none.
        """
        for n, index in enumerate(self.indices):
            if index.name == name:
                return n
        raise KeyError(name)
