"""Every registered description against TensorFlow's own kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tensorflow.python.framework import op_def_registry

from tensoropt.tdl import described, lookup
from tensoropt.tdl.ops import elementwise, state

Array = npt.NDArray[Any]
GENERATOR = np.random.default_rng(20)


def real(*shape: int) -> Array:
    """Values from -2 to 2."""
    return GENERATOR.uniform(-2, 2, shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return GENERATOR.uniform(0.1, 0.9, shape).astype(np.float32)


def large(*shape: int) -> Array:
    return positive(*shape) + np.float32(1)


def whole(*shape: int) -> Array:
    return GENERATOR.integers(1, 9, shape).astype(np.int32)


def truth(*shape: int) -> Array:
    return GENERATOR.integers(0, 2, shape).astype(np.bool_)


def axis(*values: int) -> Array:
    return np.array(values, np.int32)


def scalar(value: int) -> Array:
    return np.array(value, np.int32)


# Where an elementwise function is defined, if not on all real numbers.
DOMAIN: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(["Acos", "Asin", "Atanh", "Erfinv", "Ndtri", "Digamma", "Lgamma"], positive),
    **dict.fromkeys(["Log", "Sqrt", "Rsqrt", "Xlogy", "Log1p", "Xlog1py", "Pow"], positive),
    **dict.fromkeys(["Inv", "Reciprocal", "InvGrad", "ReciprocalGrad", "RsqrtGrad"], positive),
    **dict.fromkeys(["SqrtGrad"], positive),
    **dict.fromkeys(["Acosh"], large),
    **dict.fromkeys(["LogicalNot", "LogicalAnd", "LogicalOr"], truth),
    **dict.fromkeys(["Invert", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift"], whole),
    **dict.fromkeys(["RightShift", "TruncateDiv", "TruncateMod", "Mod", "FloorMod"], whole),
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "CheckNumerics": {"message": "finite"},
    "CheckNumericsV2": {"message": "finite"},
    "Cast": {"DstT": np.float64},
}
WITHOUT_BROADCASTING = ["ApproximateEqual"]
NO_GRADIENT = ["PreventGradient", "Snapshot", "SoftsignGrad"]

# Per type: inputs, attributes, and the indices that must be splittable.
Row = tuple[list[Any], dict[str, Any], str]

CASES: dict[str, list[Row]] = {
    "ReadVariableOp": [([real(6, 12)], {"dtype": np.float32}, "i0 i1")],
    "MatMul": [
        ([real(6, 12), real(12, 18)], {}, "m n k"),
        ([real(12, 6), real(12, 18)], {"transpose_a": True}, "m n k"),
        ([real(6, 12), real(18, 12)], {"transpose_b": True}, "m n k"),
        ([real(12, 6), real(1, 12)], {"transpose_a": True, "transpose_b": True}, "m k"),
    ],
    "BatchMatMul": [
        ([real(6, 6, 12), real(6, 12, 6)], {}, "i0 i1 i2 k"),
        ([real(6, 12, 6), real(6, 6, 12)], {"adj_x": True, "adj_y": True}, "i0 i1 i2 k"),
    ],
    "BatchMatMulV2": [
        ([real(6, 1, 6, 12), real(6, 12, 6)], {}, "i0 i1 i2 i3 k"),
        ([real(6, 6, 12), real(6, 12)], {"adj_y": True}, "i0 i1 i2 k"),
        ([real(6, 1, 12, 6), real(1, 6, 12, 6)], {"adj_x": True}, "i0 i1 i2 i3 k"),
    ],
    "BatchMatMulV3": [([real(6, 6, 12), real(6, 12, 6)], {"Tout": np.float32}, "i0 i1 i2 k")],
    "BiasAdd": [
        ([real(6, 12), real(12)], {}, "i0 i1"),
        ([real(6, 6, 1, 6), real(6)], {"data_format": "NHWC"}, "i0 i1 i3"),
        ([real(6, 6, 1, 12), real(6)], {"data_format": "NCHW"}, "i0 i1 i3"),
    ],
    "BiasAddV1": [([real(6, 12), real(12)], {}, "i0 i1")],
    "BiasAddGrad": [
        ([real(6, 6, 12)], {}, "c k0 k1"),
        ([real(6, 6, 2, 3)], {"data_format": "NCHW"}, "c k0 k1 k2"),
    ],
    "AddN": [([[real(6, 12), real(6, 12), real(6, 12)]], {}, "i0 i1")],
    "IdentityN": [
        ([[real(6, 12), real(6, 12)]], {}, "i0 i1"),
        ([[real(6, 12), real(6)]], {}, ""),
    ],
    "Select": [
        ([truth(6, 12), real(6, 12), real(6, 12)], {}, "i0 i1"),
        ([truth(6), real(6, 12), real(6, 12)], {}, "i0 i1"),
        ([truth(), real(6, 12), real(6, 12)], {}, "i0 i1"),
    ],
    "SelectV2": [([truth(12), real(6, 1), real(6, 12)], {}, "i0 i1")],
    "ClipByValue": [
        ([real(6, 12), np.float32(-1), np.float32(1)], {}, "i0 i1"),
        ([real(6, 12), real(6, 12) - 1, real(6, 12) + 3], {}, "i0 i1"),
    ],
    "Mean": [
        ([real(6, 12), axis(0)], {}, "i0 k0"),
        ([real(6, 12, 6), axis(-1, 0)], {"keep_dims": True}, "i1 k0 k1"),
        ([real(6, 12), axis(0, 1)], {}, "k0 k1"),
        ([whole(6, 12), axis(1)], {}, "i0"),
    ],
    "EuclideanNorm": [([real(6, 12), axis(1)], {}, "i0")],
    "L2Loss": [([real(6, 12)], {}, "k0 k1"), ([real()], {}, "")],
    "ArgMax": [([real(6, 12, 6), scalar(1)], {}, "i0 i1")],
    "ArgMin": [([real(6, 12), scalar(-1)], {"output_type": np.int32}, "i0")],
    "Reshape": [
        ([real(6, 12), axis(72)], {}, "i0"),
        ([real(72), axis(6, 12)], {}, "i0"),
        ([real(12, 6), axis(6, 2, 6)], {}, "i0 i2"),
        ([real(6, 1, 12), axis(6, 12, 1)], {}, "i0 i1"),
        ([real(6, 4, 5, 3), axis(24, 15)], {}, "i0 i1"),
        ([real(12, 6), axis(6, 12)], {}, "i0"),
        ([real(2, 3, 4), axis(6, -1)], {}, "i0 i1"),
        ([real(1, 1), axis()], {}, ""),
    ],
    "Transpose": [([real(6, 12, 6), axis(2, 0, 1)], {}, "i0 i1 i2")],
    "ConjugateTranspose": [([real(6, 12), axis(1, 0)], {}, "i0 i1")],
    "ExpandDims": [
        ([real(6, 12), scalar(1)], {}, "i0 i2"),
        ([real(6, 12), scalar(-1)], {}, "i0 i1"),
    ],
    "Squeeze": [
        ([real(1, 6, 1, 12)], {}, "i0 i1"),
        ([real(1, 6, 1, 12)], {"squeeze_dims": [-2]}, "i1 i2"),
        ([real(2, 1, 3)], {}, "i0 i1"),
    ],
    "Softmax": [([real(6, 12)], {}, "i0"), ([real(6, 6, 12)], {}, "i0 i1")],
    "LogSoftmax": [([real(6, 12)], {}, "i0")],
    "SoftmaxCrossEntropyWithLogits": [
        ([real(6, 12), positive(6, 12)], {}, "b"),
        ([real(6, 12), positive(1, 12)], {}, "b"),
    ],
    "SparseSoftmaxCrossEntropyWithLogits": [([real(6, 12), whole(6)], {}, "b")],
}
for _type in ("Sum", "Max", "Min", "Prod", "All", "Any"):
    _values = truth if _type in ("All", "Any") else real
    CASES[_type] = [
        ([_values(6, 12), axis(1)], {}, "i0 k0"),
        ([_values(6, 12), scalar(-2)], {"keep_dims": True}, "i1 k0"),
        ([_values(6, 12, 6), axis(-1, 0)], {}, "i0 k0 k1"),
        ([_values(6, 12), axis()], {}, "i0 i1"),
    ]


def unary_rows(op_type: str) -> list[Row]:
    values = DOMAIN.get(op_type, real)
    attributes = ATTRIBUTES.get(op_type, {})
    return [([values(6, 12)], attributes, "i0 i1"), ([values()], attributes, "")]


def binary_rows(op_type: str) -> list[Row]:
    values = DOMAIN.get(op_type, real)
    if op_type in WITHOUT_BROADCASTING:
        return [([values(6, 12), values(6, 12)], {}, "i0 i1")]
    return [
        ([values(6, 12), values(6, 12)], {}, "i0 i1"),
        ([values(6, 1, 12), values(6, 1)], {}, "i0 i1 i2"),
        ([values(), values(6)], {}, "i0"),
    ]


HYPERPARAMETERS = {"lr_power": -0.5, "logbase": 1.1, "l1": 0.01, "l2": 0.02, "l2_shrinkage": 0.03}


def update_rows(op_type: str) -> list[Row]:
    names = [argument.name for argument in op_def_registry.get(op_type).input_arg]
    rows: list[Row] = []
    for shape, splits in (((6, 12), "i0 i1"), ((), "")):
        inputs: list[Array] = []
        for i, name in enumerate(names):
            if i in lookup(op_type).mutates or name in ("grad", "delta", "value", "resource"):
                inputs.append(positive(*shape))
            elif name == "global_step":
                inputs.append(np.array(3, np.int64))
            else:
                inputs.append(np.array(HYPERPARAMETERS.get(name, 0.4), np.float32))
        rows.append((inputs, {}, splits))
    return rows


FAMILIES: dict[str, Callable[[str], list[Row]]] = {
    f"{elementwise.__name__}.unary": unary_rows,
    f"{elementwise.__name__}.copy": unary_rows,
    f"{elementwise.__name__}.binary": binary_rows,
    f"{elementwise.__name__}.unary_gradient": lambda t: binary_rows(t)[:1],
    f"{state.__name__}": update_rows,
}


def rows(op_type: str) -> list[Row]:
    """The cases of one type: its own, else its family's."""
    function = lookup(op_type).function
    module = function.__module__
    family = FAMILIES.get(f"{module}.{function.__name__}") or FAMILIES.get(module)
    return CASES.get(op_type) or (family(op_type) if family else [])


def test_every_described_type_has_a_case() -> None:
    assert [op_type for op_type in described() if not rows(op_type)] == []
    assert set(CASES) <= set(described())


@pytest.mark.parametrize("op_type", described())
def test_pieces_make_the_whole(op_type: str, check_kernel: Any, make_case: Any) -> None:
    for inputs, attributes, splits in rows(op_type):
        spread = inputs[0] if isinstance(inputs[0], list) else inputs
        check_kernel(op_type, make_case(spread, attributes, splits, op_type not in NO_GRADIENT))
