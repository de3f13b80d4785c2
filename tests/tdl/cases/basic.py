"""Cases: products, reductions, reshapes, losses, and elementwise operators of several inputs."""

from __future__ import annotations

import numpy as np
from tdl_cases.values import Row, axis, positive, real, scalar, truth, whole

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
