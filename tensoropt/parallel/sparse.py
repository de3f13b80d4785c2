"""Sparse gradients (slices of a table and their row numbers) between layouts.

What execution moves and the search prices: the slices, laid out as a tensor of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.graph.operator import Operator
from tensoropt.parallel.layout import Layout

__all__ = ["known_shape", "looks_up_rows", "slice_layouts", "travels_sparse"]


def known_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape for planning, in which a dimension that only a run decides is 1: it is not split."""
    return tuple(1 if extent < 0 else extent for extent in shape)


def looks_up_rows(operator: Operator, number: int) -> bool:
    """Whether an input is a table of which rows are looked up, so that its gradient is sparse."""
    if number != 0 or operator.type not in ("Gather", "GatherV2"):
        return False
    if operator.type == "Gather":
        return True
    axis = operator.input_specs[2].value
    batch_dims = operator.attributes.get("batch_dims", 0)
    return axis is not None and int(axis.reshape(())) == 0 and batch_dims == 0


def slice_layouts(source: Layout, target: Layout) -> tuple[Layout, Layout]:
    """The layouts of the slices for two layouts of the dense gradient.

    Rows are in place of the table's first dimension: split over the axes along which shares of
    the gradient come together, whole over those that split the table's rows.
    """
    gathered = tuple(axis for axis in source.partial if axis not in target.partial)
    kept = tuple(axis for axis in source.partial if axis in target.partial)
    return (
        Layout((gathered, *source.dims[1:]), kept),
        Layout(((), *target.dims[1:]), target.partial),
    )


def travels_sparse(count: int, shape: Sequence[int], target: Layout) -> bool:
    """Whether a gradient that ends dense travels as slices: where these are no more than rows.

    Args:
        count: number of slices on all ranks together; -1 if unknown.
        shape: of the table.
        target: the dense gradient's layout at the producer.
    """
    return 0 <= count <= shape[0] and not target.partial
