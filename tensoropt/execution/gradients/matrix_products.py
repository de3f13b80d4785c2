"""Matrix products of the backward pass, by the kernels that take least time on a CPU.

TensorFlow's oneDNN kernel of `MatMul` takes up to twice as long with a transposed second factor,
which is how a gradient goes back through a layer; `BatchMatMulV2` of the same two matrices does
not. And where steps of a recurrence share weights, TensorFlow makes a gradient as large as the
weights for each step and adds them up; one product of all steps' rows is the same sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradients.custom_gradients import registered_gradient

__all__ = ["GRADIENTS", "matmul_gradient", "summed_as_one"]

GRADIENTS = {"MatMul": "TensorOptMatMul"}
"""Types of operators, and under which name TensorFlow knows the gradient that ranks take."""

# Measured with float32 on one core and on two: with fewer rows or a smaller matrix `MatMul` takes
# as long or less, with more rows as long.
_FEWEST_ROWS, _MOST_ROWS = 16, 1024
_LEAST_ELEMENTS = 1 << 16


@tf.RegisterGradient(GRADIENTS["MatMul"])  # type: ignore[untyped-decorator]
def matmul_gradient(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradients of a `MatMul` by its factors: TensorFlow's, of the same factors.

    Args:
        operation: the product, or what has its inputs and attributes.
        upstream: the gradient by what it made.
    """
    if upstream.dtype != tf.float32:
        by_left, by_right = registered_gradient("MatMul")(operation, upstream)
        return by_left, by_right
    left, right = operation.inputs
    left_turned, right_turned = _turned(operation)
    if left_turned:
        by_left = _product(right, upstream, right_turned, True)
    else:
        by_left = _product(upstream, right, False, not right_turned)
    if right_turned:
        by_right = _product(upstream, left, True, left_turned)
    else:
        by_right = _product(left, upstream, not left_turned, False)
    return by_left, by_right


def summed_as_one(gradient: Any) -> Any:
    """A gradient by a matrix; where it is a sum of products that take less time and memory as one
    product, the sum of that and the rest.

    Args:
        gradient: a tensor, slices, or None.
    """
    if not isinstance(gradient, tf.Tensor) or gradient.op.type != "AddN":
        return gradient
    alike: dict[tuple[bool, bool], list[tf.Tensor]] = {}
    rest = []
    for term in gradient.op.inputs:
        if _can_be_joined(term, gradient):
            alike.setdefault(_turned(term.op), []).append(term)
        else:
            rest.append(term)
    terms = []
    for turned, products in alike.items():
        factors = sum(_size(factor) for each in products for factor in each.op.inputs)
        # The elements copied to join factors, against the elements of the products to add up.
        if factors <= (len(products) - 1) * _size(gradient):
            terms.append(_joined(products, turned))
        else:
            rest += products
    if not terms:
        return gradient
    return tf.add_n([*terms, *rest]) if len(terms) + len(rest) > 1 else terms[0]


def _can_be_joined(term: tf.Tensor, total: tf.Tensor) -> bool:
    """Whether a term of a sum is a product of known shapes that nobody else reads."""
    product = term.op
    return (
        product.type == "MatMul"
        and all(factor.shape.is_fully_defined() for factor in product.inputs)
        and not product.control_inputs
        and set(term.consumers()) == {total.op}
    )


def _joined(products: Sequence[tf.Tensor], turned: tuple[bool, bool]) -> tf.Tensor:
    """The sum of products as one, over all their inner dimensions."""
    left, right = (
        tf.concat([each.op.inputs[number] for each in products], axis)
        for number, axis in ((0, 0 if turned[0] else 1), (1, 1 if turned[1] else 0))
    )
    return _product(left, right, *turned)


def _turned(product: Any) -> tuple[bool, bool]:
    """Whether each factor of a `MatMul` is transposed."""
    return product.get_attr("transpose_a"), product.get_attr("transpose_b")


def _product(left: tf.Tensor, right: tf.Tensor, left_turned: bool, right_turned: bool) -> tf.Tensor:
    if right_turned and _is_slow_turned(left, right, left_turned):
        return tf.raw_ops.BatchMatMulV2(x=left, y=right, adj_x=left_turned, adj_y=True)
    return tf.raw_ops.MatMul(a=left, b=right, transpose_a=left_turned, transpose_b=right_turned)


def _is_slow_turned(left: tf.Tensor, right: tf.Tensor, left_turned: bool) -> bool:
    """Whether `MatMul` takes longer than it need for a right factor that is transposed."""
    if left.dtype != tf.float32:
        return False
    if not (left.shape.is_fully_defined() and right.shape.is_fully_defined()):
        return False
    rows = left.shape.as_list()[1 if left_turned else 0]
    return _FEWEST_ROWS <= rows <= _MOST_ROWS and _size(right) >= _LEAST_ELEMENTS


def _size(tensor: tf.Tensor) -> int:
    return int(prod(tensor.shape.as_list()))
