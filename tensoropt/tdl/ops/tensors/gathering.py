"""Reads at places that depend on data.

A gather looks up rows of a table by number. The rows can be split: a device looks up the rows that
it has, with zeros for other rows, and the output is the sum over the devices. Other operators need
the dimension that they look up whole. All further dimensions are independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Opaque, Operand, Sum, elementwise, equal
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import WHOLE
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]

where = elementwise("where")


_Shapes = Sequence[tuple[int, ...]]


def _gather(table: Operand, indices: Operand, axis: int, batch_dims: int) -> Any:
    """The output has the indices' dimensions, but the batch, in place of the table's ``axis``.

    Each element is a sum over all rows, of which one term is not zero.
    """
    own = indices.rank - batch_dims

    def element(*i: Expression) -> Expression:
        middle, after = i[axis : axis + own], i[axis + own :]
        number = indices.at(*i[:batch_dims], *middle)
        return Sum(lambda row: where(equal(number, row), table.at(*i[:axis], row, *after), 0))

    return element


def _row_of_numbers(attributes: Mapping[str, object]) -> tuple[str, ...]:
    """Rows can be split if rows and zeros can be added: not for strings and truth values."""
    dtype = str(attributes.get("Tparams", "float32"))
    return ("row",) if dtype.startswith(("float", "bfloat", "int", "uint", "complex")) else ()


def _copied(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    """Each output element is copied from one place; the description adds up all places."""
    del inputs
    return outputs[0].elements


def _rows_moved(split: frozenset[str], inputs: _Shapes, outputs: _Shapes) -> int:
    """Rows are read and written. If they are split they are also masked: read and written again."""
    number = prod(n for n in inputs[1] if n >= 0)
    each = 4 if "row" in split else 2
    return number + each * prod(n for n in outputs[0] if n >= 0)


@describe(
    "GatherV2",
    constant_operands=(2,),
    spelled_out=_row_of_numbers,
    flops=_copied,
    moved=_rows_moved,
    open_shapes=True,
    any_size=by_index,
)
def gather_v2(
    table: Operand, indices: Operand, axis: Operand, *, Tparams: str = "", batch_dims: int = 0
) -> Any:
    del Tparams
    batch = batch_dims % indices.rank if batch_dims < 0 else batch_dims
    return _gather(table, indices, int(axis.value.reshape(())) % table.rank, batch)


@describe(
    "Gather",
    spelled_out=_row_of_numbers,
    flops=_copied,
    moved=_rows_moved,
    open_shapes=True,
    any_size=by_index,
)
def gather(table: Operand, indices: Operand, *, Tparams: str = "") -> Any:
    del Tparams
    return _gather(table, indices, 0, 0)


@describe("ResourceGather", flops=_copied, moved=_rows_moved)
def resource_gather(variable: Operand, indices: Operand, *, batch_dims: int = 0) -> Any:
    """It occurs in functions only; elsewhere the import makes it a read and a `gather_v2`."""
    return _gather(variable, indices, batch_dims, batch_dims)


@describe("GatherNd", "ResourceGatherNd", any_size=by_index)
def gather_nd(table: Operand, indices: Operand) -> Any:
    depth = indices.shape[-1]
    batch = indices.rank - 1

    def element(*i: Expression) -> Expression:
        slices = table.at(*(WHOLE,) * depth, *i[batch:])
        return Opaque("GatherNd")(slices, indices.at(*i[:batch], WHOLE))

    return element


@describe("OneHot", any_size=by_index)
def one_hot(indices: Operand, _depth: Operand, on: Operand, off: Operand, *, axis: int = -1) -> Any:
    dim = axis % (indices.rank + 1)

    def element(*i: Expression) -> Expression:
        return where(equal(indices[i[:dim] + i[dim + 1 :]], i[dim]), on[()], off[()])

    return element


@describe("TopKV2", any_size=by_index)
def top_k(x: Operand, _k: Operand) -> Any:
    def element(*i: Expression) -> Expression:
        return Opaque("TopK")(x.at(*i[:-1], WHOLE))[i[-1]]

    return element, element


@describe("NthElement")
def nth_element(x: Operand, n: Operand) -> Any:
    return lambda *i: Opaque("NthElement")(x.at(*i, WHOLE), n[()])


@describe("InTopK", "InTopKV2", any_size=by_index)
def in_top_k(predictions: Operand, targets: Operand, *_k: Operand) -> Any:
    return lambda b: Opaque("InTopK")(predictions[b, :], targets[b])


@describe("LowerBound", "UpperBound")
def bound(ordered: Operand, values: Operand) -> Any:
    return lambda b, n: Opaque("Bound")(ordered[b, :], values[b, n])


@describe("UnravelIndex")
def unravel_index(indices: Operand, dims: Operand) -> Any:
    return lambda d, *n: Opaque("UnravelIndex")(indices[n], dims[:])[d]


@describe("DenseBincount")
def dense_bincount(x: Operand, _size: Operand, weights: Operand) -> Any:
    """Counts per row; a vector is counted whole."""
    if x.rank != 2:
        return None
    per_row = weights.rank == 2
    return lambda b, v: Opaque("Bincount")(x[b, :], weights[b, :] if per_row else weights[:])[v]


record("Gather", facts=OperatorType(rule="gather", any_size_rule=True, uneven_rule=True))
record(
    "GatherV2",
    facts=OperatorType(linear="first", rule="gather", any_size_rule=True, uneven_rule=True),
)
record("ResourceGather", "ResourceGatherNd", facts=OperatorType(reads_variable=True))
