"""Operators are linear in the inputs that their records name, by TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensoropt.tdl import described, operator_type
from tensoropt.tdl.operator_type import linear_inputs
from tensoropt.tensor_spec import TensorSpec

Shapes = Sequence[tuple[int, ...]]
raw = tf.raw_ops
MATRIX = (4, 6)
IMAGE = (2, 4, 4, 3)
ONES = [1, 1, 1, 1]

_BATCHED = ((2, 4, 6), (2, 6, 3))
_COLUMN = (MATRIX, (6, 1))
CASES: dict[str, tuple[Shapes, Callable[..., Any]]] = {
    "Add": ((MATRIX, MATRIX), lambda x, y: raw.Add(x=x, y=y)),
    "AddV2": ((MATRIX, MATRIX), lambda x, y: raw.AddV2(x=x, y=y)),
    "Sub": ((MATRIX, MATRIX), lambda x, y: raw.Sub(x=x, y=y)),
    "AddN": ((MATRIX,) * 3, lambda *xs: raw.AddN(inputs=list(xs))),
    "BiasAdd": ((MATRIX, (6,)), lambda x, y: raw.BiasAdd(value=x, bias=y)),
    "Pack": ((MATRIX, MATRIX), lambda *xs: raw.Pack(values=list(xs))),
    "ConcatV2": ((MATRIX, MATRIX), lambda *xs: raw.ConcatV2(values=list(xs), axis=1)),
    "Mul": ((MATRIX, MATRIX), lambda x, y: raw.Mul(x=x, y=y)),
    "MatMul": (_COLUMN, lambda x, y: raw.MatMul(a=x, b=y)),
    "BatchMatMul": (_BATCHED, lambda x, y: raw.BatchMatMul(x=x, y=y)),
    "BatchMatMulV2": (_BATCHED, lambda x, y: raw.BatchMatMulV2(x=x, y=y)),
    "BatchMatMulV3": (_BATCHED, lambda x, y: raw.BatchMatMulV3(x=x, y=y, Tout=x.dtype)),
    "Einsum": (_COLUMN, lambda x, y: raw.Einsum(inputs=[x, y], equation="ab,bc->ac")),
    "Conv2D": (
        (IMAGE, (3, 3, 3, 2)),
        lambda x, y: raw.Conv2D(input=x, filter=y, strides=ONES, padding="SAME"),
    ),
    "Conv3D": (
        ((2, *IMAGE), (1, 3, 3, 3, 2)),
        lambda x, y: raw.Conv3D(input=x, filter=y, strides=[1, *ONES], padding="SAME"),
    ),
    "DepthwiseConv2dNative": (
        (IMAGE, (3, 3, 3, 1)),
        lambda x, y: raw.DepthwiseConv2dNative(input=x, filter=y, strides=ONES, padding="SAME"),
    ),
    "Identity": ((MATRIX,), lambda x: raw.Identity(input=x)),
    "Snapshot": ((MATRIX,), lambda x: raw.Snapshot(input=x)),
    "StopGradient": ((MATRIX,), lambda x: raw.StopGradient(input=x)),
    "PreventGradient": ((MATRIX,), lambda x: raw.PreventGradient(input=x)),
    "Neg": ((MATRIX,), lambda x: raw.Neg(x=x)),
    "RealDiv": ((MATRIX, MATRIX), lambda x, y: raw.RealDiv(x=x, y=y)),
    "Div": ((MATRIX, MATRIX), lambda x, y: raw.Div(x=x, y=y)),
    "Reshape": ((MATRIX,), lambda x: raw.Reshape(tensor=x, shape=[24])),
    "Transpose": ((MATRIX,), lambda x: raw.Transpose(x=x, perm=[1, 0])),
    "ExpandDims": ((MATRIX,), lambda x: raw.ExpandDims(input=x, axis=1)),
    "Squeeze": (((4, 1),), lambda x: raw.Squeeze(input=x)),
    "BroadcastTo": (((6,),), lambda x: raw.BroadcastTo(input=x, shape=MATRIX)),
    "Tile": ((MATRIX,), lambda x: raw.Tile(input=x, multiples=[2, 1])),
    "Unpack": ((MATRIX,), lambda x: raw.Unpack(value=x, num=4)),
    "SplitV": (
        (MATRIX,),
        lambda x: raw.SplitV(value=x, size_splits=[2, 4], axis=1, num_split=2),
    ),
    "Split": ((MATRIX,), lambda x: raw.Split(axis=1, value=x, num_split=2)),
    "GatherV2": ((MATRIX,), lambda x: raw.GatherV2(params=x, indices=[3, 0, 3], axis=0)),
    "Slice": ((MATRIX,), lambda x: raw.Slice(input=x, begin=[1, 2], size=[2, 3])),
    "StridedSlice": (
        (MATRIX,),
        lambda x: raw.StridedSlice(input=x, begin=[0, 1], end=[4, 6], strides=[2, 1]),
    ),
    "Pad": ((MATRIX,), lambda x: raw.Pad(input=x, paddings=[[1, 0], [0, 2]])),
    "Sum": ((MATRIX,), lambda x: raw.Sum(input=x, axis=[1])),
    "Mean": ((MATRIX,), lambda x: raw.Mean(input=x, axis=[1])),
    "AvgPool": (
        (IMAGE,),
        lambda x: raw.AvgPool(value=x, ksize=[1, 3, 3, 1], strides=ONES, padding="SAME"),
    ),
    "Cumsum": ((MATRIX,), lambda x: raw.Cumsum(x=x, axis=1)),
}


def test_every_type_of_the_table_is_tried() -> None:
    linear = [each for each in described() if operator_type(each).linear is not None]
    assert sorted(CASES) == linear


@pytest.mark.parametrize("op_type", CASES)
def test_the_sum_of_shares_gives_the_sum_of_what_they_give(op_type: str) -> None:
    shapes, kernel = CASES[op_type]
    random = np.random.default_rng(0)

    whole = [random.normal(size=shape) for shape in shapes]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        def run(values: Sequence[Any]) -> list[Any]:
            found = session.run(kernel(*map(tf.constant, values)))
            return found if isinstance(found, list) else [found]

        outputs = [TensorSpec(each.shape, "float64") for each in run(whole)]
        axis = [TensorSpec((), "int32")] if op_type == "Split" else []
        specs = [*axis, *(TensorSpec(shape, "float64") for shape in shapes)]
        sets = linear_inputs(operator_type(op_type).linear, specs, outputs)
        assert sets
        for inputs in sets:
            varied = {number - len(axis) for number in inputs}
            one = [random.normal(size=x.shape) if n in varied else x for n, x in enumerate(whole)]
            other = [x - y if n in varied else x for n, (x, y) in _numbered(whole, one)]
            for all_, first, rest in zip(run(whole), run(one), run(other), strict=True):
                np.testing.assert_allclose(first + rest, all_, rtol=0, atol=1e-12)


def _numbered(left: Sequence[Any], right: Sequence[Any]) -> Any:
    return enumerate(zip(left, right, strict=True))


def test_whole_numbers_and_changes_of_type_are_not_linear() -> None:
    whole, half = TensorSpec((4,), "int32"), TensorSpec((4,), "float16")
    assert linear_inputs("terms", [whole, whole], [whole]) == ()
    assert linear_inputs("first", [TensorSpec((4,), "float32")], [half]) == ()
    assert linear_inputs(None, [half], [half]) == ()
