"""Check whether a computation treats the rows of its inputs one by one.

The computation is imported with a number of rows that differs from all other extents, so that this
extent marks the dimension of rows. The operators' descriptions then tell whether each operator can
be split along that dimension without a collective.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.graph.from_tensorflow import OWN_GRADIENT, fed_operator, import_graph
from tensoropt.graph.operator import Operator
from tensoropt.tdl import derive, types_with

__all__ = ["is_by_rows"]

_ROWS = 10007
"""Least number of rows to import with: a prime above the usual widths of layers."""

_SHAPES = types_with(role="reads shapes") - {"Rank"}
"""Types of the operators with which a computation can read its number of rows."""


def is_by_rows(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> bool:
    """Whether row i of each output depends only on row i of each input.

    An operator that draws, holds a state, has a gradient of its own, calls a function, or reads a
    number of rows counts as an operator that mixes rows.

    Args:
        inputs: results of operators with one output; only their first extent may be unknown.
        outputs: tensors of the same graph. Further tensors that they depend on have no rows.
    """
    between = _between(inputs, outputs)
    if any(_is_opaque(operation) for operation in between):
        return False
    tensors = [*inputs, *outputs, *(tensor for op in between for tensor in op.outputs)]
    extents = {size for tensor in tensors if tensor.shape.rank for size in tensor.shape.as_list()}
    rows = next(n for n in range(_ROWS, _ROWS + len(extents) + 1) if n not in extents)
    fed = {fed_operator(tensor): [rows, *tensor.shape.as_list()[1:]] for tensor in inputs}
    try:
        graph = import_graph(outputs[0].graph, [output.op.name for output in outputs], fed)
    except GraphError:  # a shape that is valid only for one number of rows
        return False
    shapes = [graph[output.op.name].outputs[output.value_index].shape for output in outputs]
    has_rows = all(_places([shape], rows) == [(0, 0)] for shape in shapes)
    return has_rows and all(_keeps_rows(operator, rows) for operator in graph)


def _between(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """The operators that outputs depend on, without those of the inputs."""
    ends = {tensor.op for tensor in inputs}
    operators: set[tf.Operation] = set()
    waiting = [output.op for output in outputs]
    while waiting:
        operation = waiting.pop()
        if operation not in operators and operation not in ends:
            operators.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
            waiting += operation.control_inputs
    return operators


def _is_opaque(operation: tf.Operation) -> bool:
    """Whether an operator's description does not tell its whole computation or its gradient."""
    is_shape = operation.type in _SHAPES and not operation.inputs[0].shape.is_fully_defined()
    is_list = any(tensor.dtype in (tf.resource, tf.variant) for tensor in operation.outputs)
    has_gradient = OWN_GRADIENT in operation.node_def.attr
    return bool(is_shape or is_list or has_gradient or operation.op_def.is_stateful)


def _keeps_rows(operator: Operator, rows: int) -> bool:
    """Whether row i of an operator's outputs depends only on row i of its inputs."""
    if operator.is_placeholder:
        return True
    read = _places([spec.shape for spec in operator.input_specs], rows)
    written = _places([spec.shape for spec in operator.outputs], rows)
    if not read:
        return not written
    if [n for n, _ in written] != list(range(len(operator.outputs))):
        return False
    if len({n for n, _ in read}) < len(read):
        return False
    derivation = derive(operator.type, operator.input_specs, operator.outputs, operator.attributes)
    split = {derivation.inputs[n][d] for n, d in read}
    split |= {derivation.outputs[n][d] for n, d in written}
    if len(split) > 1 or None in split:
        return False
    (number,) = split
    index = next(index for n, index in enumerate(derivation.indices) if n == number)
    other_indices = {
        dim
        for n, dims in enumerate(derivation.inputs)
        for d, dim in enumerate(dims)
        if (n, d) not in read
    }
    has_halo = any(halo.index == number for halo in derivation.halos)
    plain = index.reducer is None and not index.spelled_out and not has_halo
    return plain and number not in other_indices


def _places(shapes: Sequence[tuple[int, ...]], rows: int) -> list[tuple[int, int]]:
    """The dimensions of rows, as (number of the tensor, number of the dimension)."""
    return [
        (n, d) for n, shape in enumerate(shapes) for d, size in enumerate(shape) if size == rows
    ]
