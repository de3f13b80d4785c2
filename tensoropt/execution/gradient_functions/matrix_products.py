"""Matrix products of the backward pass, by the kernels that are fastest on a CPU.

TensorFlow's oneDNN kernel of `MatMul` takes up to twice as long if the second factor is
transposed, as in the backward pass of a layer. `BatchMatMulV2` of the same matrices takes no
longer. If the steps of a recurrence share weights, TensorFlow computes a gradient as large as the
weights for each step, and adds them up; one product of the rows of all steps is the same sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradient_functions.custom_gradients import registered_gradient

__all__ = ["GRADIENTS", "matmul_gradient", "summed_as_one"]

GRADIENTS = {"MatMul": "TensorOptMatMul"}
"""For each operator type, the name under which our gradient is registered with TensorFlow."""

# Measured with float32 on one core and on two: with fewer rows or a smaller matrix, `MatMul` takes
# no longer than `BatchMatMulV2`; with more rows both take the same time.
_FEWEST_ROWS, _MOST_ROWS = 16, 1024
_LEAST_ELEMENTS = 1 << 16


@tf.RegisterGradient(GRADIENTS["MatMul"])  # type: ignore[untyped-decorator]
def matmul_gradient(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of a `MatMul` by its factors.

    They are TensorFlow's products; some are computed by a faster kernel.

    Args:
        operation: the product, or an object with its ``inputs`` and ``get_attr``.
        upstream: the gradient by the product.
    """
    if upstream.dtype != tf.float32:
        by_left, by_right = registered_gradient("MatMul")(operation, upstream)
        return by_left, by_right
    left, right = operation.inputs
    left_transposed, right_transposed = _transposed(operation)
    if left_transposed:
        by_left = _product(right, upstream, right_transposed, True)
    else:
        by_left = _product(upstream, right, False, not right_transposed)
    if right_transposed:
        by_right = _product(upstream, left, True, left_transposed)
    else:
        by_right = _product(left, upstream, not left_transposed, False)
    return by_left, by_right


def summed_as_one(gradient: Any) -> Any:
    """Return a gradient by a matrix, with some products of its sum joined into one.

    Products are joined if the joined product takes less time and memory.

    Args:
        gradient: a tensor, slices, or None.
    """
    if not isinstance(gradient, tf.Tensor) or gradient.op.type != "AddN":
        return gradient
    alike: dict[tuple[bool, bool], list[tf.Tensor]] = {}
    rest = []
    for term in gradient.op.inputs:
        if _can_be_joined(term, gradient):
            alike.setdefault(_transposed(term.op), []).append(term)
        else:
            rest.append(term)
    terms = []
    for turned, products in alike.items():
        copied = sum(_size(factor) for product in products for factor in product.op.inputs)
        # Joining copies the factors' elements; not joining adds up the products' elements.
        if copied <= (len(products) - 1) * _size(gradient):
            terms.append(_joined(products, turned))
        else:
            rest += products
    if not terms:
        return gradient
    return tf.add_n([*terms, *rest]) if len(terms) + len(rest) > 1 else terms[0]


def _can_be_joined(term: tf.Tensor, total: tf.Tensor) -> bool:
    """Whether a term is a product of known shapes that only the sum reads."""
    product = term.op
    return (
        product.type == "MatMul"
        and all(factor.shape.is_fully_defined() for factor in product.inputs)
        and not product.control_inputs
        and set(term.consumers()) == {total.op}
    )


def _joined(products: Sequence[tf.Tensor], turned: tuple[bool, bool]) -> tf.Tensor:
    """Return the sum of products as one product, over all their inner dimensions."""
    left, right = (
        tf.concat([each.op.inputs[number] for each in products], axis)
        for number, axis in ((0, 0 if turned[0] else 1), (1, 1 if turned[1] else 0))
    )
    return _product(left, right, *turned)


def _transposed(product: Any) -> tuple[bool, bool]:
    """Whether each factor of a `MatMul` is transposed."""
    return product.get_attr("transpose_a"), product.get_attr("transpose_b")


def _product(
    left: tf.Tensor, right: tf.Tensor, left_transposed: bool, right_transposed: bool
) -> tf.Tensor:
    if right_transposed and _is_slow_transposed(left, right, left_transposed):
        return tf.raw_ops.BatchMatMulV2(x=left, y=right, adj_x=left_transposed, adj_y=True)
    return tf.raw_ops.MatMul(
        a=left, b=right, transpose_a=left_transposed, transpose_b=right_transposed
    )


def _is_slow_transposed(left: tf.Tensor, right: tf.Tensor, left_transposed: bool) -> bool:
    """Whether `MatMul` takes longer than `BatchMatMulV2` with a transposed right factor."""
    if left.dtype != tf.float32:
        return False
    if not (left.shape.is_fully_defined() and right.shape.is_fully_defined()):
        return False
    rows = left.shape.as_list()[1 if left_transposed else 0]
    return _FEWEST_ROWS <= rows <= _MOST_ROWS and _size(right) >= _LEAST_ELEMENTS


def _size(tensor: tf.Tensor) -> int:
    return int(prod(tensor.shape.as_list()))
