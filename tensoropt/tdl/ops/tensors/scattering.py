"""Scatter operators: dimensions of slices can be split, dimensions that indices address stay whole.

Rows of a variable are an exception and can be split: each device changes its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tensoropt.tdl.description import output_shape
from tensoropt.tdl.expression import (
    Element,
    Expression,
    Opaque,
    Operand,
    Sum,
    elementwise,
    equal,
)
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import WHOLE
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

where = elementwise("where")


def _everywhere(x: Operand) -> Element:
    return x[(WHOLE,) * x.rank]


def _added_once(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    """One addition per element. The description's operations would include a comparison of every
    element with every segment."""
    del outputs
    return inputs[0].elements


@describe("UnsortedSegmentSum", flops=_added_once)
def unsorted_segment_sum(data: Operand, segments: Operand, _count: Operand) -> Any:
    """Rows can be split: each device adds up its own rows into all segments."""

    def element(s: Expression, *rest: Expression) -> Expression:
        def part(*k: Expression) -> Expression:
            return where(equal(segments[k], s), data.at(*k, *rest), 0)

        return Sum(part, rank=segments.rank) if segments.rank else part()

    return element


@describe("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def unsorted_segment(data: Operand, segments: Operand, _count: Operand) -> Any:
    return _segments(data, segments)


@describe("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
def segment(data: Operand, segments: Operand) -> Any:
    """Rows stay whole: the number of segments follows from the last one."""
    return _segments(data, segments)


def _segments(data: Operand, segments: Operand) -> Any:
    def element(s: Expression, *rest: Expression) -> Expression:
        rows = data.at(*(WHOLE,) * segments.rank, *rest)
        return Opaque("Segment")(rows, _everywhere(segments))[s]

    return element


@describe("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
def sparse_segment(data: Operand, indices: Operand, segments: Operand) -> Any:
    def element(s: Expression, *rest: Expression) -> Expression:
        return Opaque("Segment")(data.at(WHOLE, *rest), indices[:], segments[:])[s]

    return element


@describe(
    "ScatterNd",
    local=output_shape(2),
    flops=lambda inputs, _: inputs[1].elements,
)
def scatter_nd(indices: Operand, updates: Operand, _shape: Operand) -> Any:
    """Updates can be split: each device adds up its updates."""
    depth, rank = indices.shape[-1], indices.rank - 1
    if rank < 1:
        return None

    def element(*i: Expression) -> Expression:
        def part(*k: Expression) -> Expression:
            value = Opaque("Scatter")(indices.at(*k, WHOLE), updates.at(*k, *i[depth:]))
            return value[i[:depth]] if depth else value

        return Sum(part, rank=rank)

    return element


@describe(
    *("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax"),
    *("TensorScatterMin", "ScatterNdNonAliasingAdd"),
)
def tensor_scatter(x: Operand, indices: Operand, updates: Operand) -> Any:
    return scattered(x, indices, updates, indices.shape[-1], indices.rank - 1)


def scattered(x: Operand, indices: Operand, updates: Operand, depth: int, update_rank: int) -> Any:
    """``x`` with changed places of its first ``depth`` dimensions; the others can be split."""

    def element(*i: Expression) -> Expression:
        rest = i[depth:]
        change = updates[(*(WHOLE,) * update_rank, *rest) if updates.rank else ()]
        old = x.at(*(WHOLE,) * depth, *rest)
        return Opaque("Scatter")(old, _everywhere(indices), change)[i[:depth]]

    return element


def _rows_changed(
    split: frozenset[str], inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> int:
    """Updates are read; the rows that they change are read and written."""
    del split, outputs
    rows = prod(n for n in inputs[1] if n >= 0)
    return 3 * rows * prod(inputs[0][1:])


_ROW_UPDATES = (
    *("ScatterUpdate", "ScatterAdd", "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterMax"),
    *("ScatterMin", "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub"),
    *("ResourceScatterMul", "ResourceScatterDiv", "ResourceScatterMax", "ResourceScatterMin"),
)
record(*_ROW_UPDATES, facts=OperatorType(rows=(2, 1), any_size_rule=True, uneven_rule=True))


@describe(
    *_ROW_UPDATES,
    mutates=(0,),
    spelled_out=("row",),
    flops=lambda inputs, _: inputs[2].elements,
    moved=_rows_changed,
    open_shapes=True,
)
def variable_scatter(variable: Operand, indices: Operand, updates: Operand) -> Any:
    """Rows of a variable; a scalar update goes to every row that the indices name."""

    def element(row: Expression, *rest: Expression) -> Expression:
        change = updates[(*(WHOLE,) * indices.rank, *rest) if updates.rank else ()]
        return Opaque("Scatter")(variable.at(row, *rest), _everywhere(indices), change)

    return element


@describe(
    *("ScatterNdUpdate", "ScatterNdAdd", "ScatterNdSub", "ScatterNdMax", "ScatterNdMin"),
    *("ResourceScatterNdUpdate", "ResourceScatterNdAdd", "ResourceScatterNdSub"),
    *("ResourceScatterNdMax", "ResourceScatterNdMin"),
    mutates=(0,),
)
def variable_scatter_nd(variable: Operand, indices: Operand, updates: Operand) -> Any:
    return scattered(variable, indices, updates, indices.shape[-1], indices.rank - 1)


@describe("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(*inputs: Operand) -> Any:
    """Rows of several tensors, each put at the place that its index names."""
    half = len(inputs) // 2
    indices, data = inputs[:half], inputs[half:]

    def element(s: Expression, *rest: Expression) -> Expression:
        rows = (x.at(*(WHOLE,) * (x.rank - len(rest)), *rest) for x in data)
        return Opaque("Stitch")(*map(_everywhere, indices), *rows)[s]

    return element


@describe("SparseTensorDenseMatMul")
def sparse_tensor_dense_matmul(
    indices: Operand, values: Operand, _shape: Operand, b: Operand, *, adjoint_b: bool = False
) -> Any:
    """Columns of the dense matrix are independent."""

    def element(m: Expression, n: Expression) -> Expression:
        column = b[n, WHOLE] if adjoint_b else b[WHOLE, n]
        return Opaque("SparseProduct")(_everywhere(indices), values[:], column)[m]

    return element
