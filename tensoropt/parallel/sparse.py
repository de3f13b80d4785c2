"""Layouts of sparse gradients. A sparse gradient has slices of a table and their row numbers.

Execution reshards the slices, and the search prices it, as a tensor with a layout of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.layout import Layout

__all__ = ["known_shape", "looks_up_rows", "lookups_of_tables", "slice_layouts", "travels_sparse"]


def known_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape for planning: an open extent counts as 1, which cannot be split."""
    return tuple(1 if extent < 0 else extent for extent in shape)


def looks_up_rows(operator: Operator, number: int) -> bool:
    """Whether an operator looks up rows of this input, so that the input's gradient is sparse."""
    if number != 0 or operator.type not in ("Gather", "GatherV2"):
        return False
    if operator.type == "Gather":
        return True
    axis = operator.input_specs[2].value
    batch_dims = operator.attributes.get("batch_dims", 0)
    return axis is not None and int(axis.reshape(())) == 0 and batch_dims == 0


def lookups_of_tables(graph: Graph) -> Counter[TensorName]:
    """Return how many operators look up rows of each tensor."""
    return Counter(operator.inputs[0] for operator in graph if looks_up_rows(operator, 0))


def slice_layouts(source: Layout, target: Layout) -> tuple[Layout, Layout]:
    """Return the layouts of the slices for two layouts of the dense gradient.

    The slices have a dimension of rows in place of the table's first dimension. At the source it is
    split over the axes whose partial values are reduced on the way; at the target it is whole. Axes
    that split the rows of the table replicate the slices.
    """
    gathered = tuple(axis for axis in source.partial if axis not in target.partial)
    kept = tuple(axis for axis in source.partial if axis in target.partial)
    return (
        Layout((gathered, *source.dims[1:]), kept),
        Layout(((), *target.dims[1:]), target.partial),
    )


def travels_sparse(count: int, shape: Sequence[int], target: Layout) -> bool:
    """Whether a gradient that is dense at its producer is sent as slices: if there are no more
    slices than rows of the table.

    Args:
        count: number of slices of all devices together, -1 if unknown.
        shape: shape of the table.
        target: layout of the dense gradient at the producer.
    """
    return 0 <= count <= shape[0] and not target.partial
