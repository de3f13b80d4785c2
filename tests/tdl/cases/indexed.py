"""Cases: reading and writing at places that data decide."""

from __future__ import annotations

import numpy as np
from tdl_cases.values import Array, Row, alike, axis, positive, real, scalar, whole


def pairs() -> Array:
    """Six places in a matrix of 5 rows and 4 columns, all different."""
    return np.array([[0, 1], [4, 3], [2, 2], [1, 0], [3, 3], [0, 2]], np.int32)


ROWS = axis(4, 0, 2)
SEGMENTS = axis(0, 0, 1, 1, 1, 3)
STITCHED = [
    [axis(0, 2), np.array([[4], [1]], np.int32), scalar(3)],
    [real(2, 6), real(2, 1, 6), real(6)],
]

CASES: dict[str, list[Row]] = {
    "GatherV2": [
        ([real(5, 12), axis(4, 0, 2, 2, 1, 0), scalar(0)], {}, "i0 i1"),
        ([real(6, 5, 12), np.tile(axis(4, 0), (6, 3)), scalar(-2)], {}, "i0 i1 i2 i3"),
        ([real(6, 5, 12), np.tile(axis(4, 0), (6, 3)), scalar(1)], {"batch_dims": 1}, "i0 i1 i2"),
        ([real(6, 5), scalar(3), scalar(1)], {}, "i0"),
    ],
    "Gather": [([real(5, 12), axis(4, 0, 2, 2, 1, 0)], {}, "i0 i1")],
    "ResourceGather": [
        ([real(5, 12), axis(4, 0, 2, 2, 1, 0)], {"dtype": np.float32}, "i0 i1"),
        (
            [real(6, 5, 4), np.tile(axis(4, 0), (6, 1))],
            {"dtype": np.float32, "batch_dims": 1},
            "i0 i1 i2",
        ),
    ],
    "GatherNd": [([real(5, 4, 12), pairs()], {}, "i0 i1"), ([real(5, 4), pairs()], {}, "i0")],
    "ResourceGatherNd": [([real(5, 4, 12), pairs()], {"dtype": np.float32}, "i0 i1")],
    "OneHot": [
        ([whole(6, 12), scalar(9), np.float32(2), np.float32(-1)], {}, "i0 i1"),
        ([whole(6, 12), scalar(9), np.float32(2), np.float32(-1)], {"axis": 1}, "i0 i2"),
    ],
    "TopKV2": [([real(6, 2, 12), scalar(3)], {}, "i0 i1")],
    "NthElement": [([real(6, 12), scalar(3)], {}, "i0")],
    "InTopK": [([real(6, 9), whole(6) - 1], {"k": 3}, "b")],
    "InTopKV2": [([real(6, 9), whole(6) - 1, scalar(3)], {}, "b")],
    "LowerBound": [([np.sort(real(6, 8)), real(6, 12)], {}, "b n")],
    "UpperBound": [([np.sort(real(6, 8)), real(6, 12)], {}, "b n")],
    "UnravelIndex": [([whole(12), axis(3, 4)], {}, "n0")],
    "DenseBincount": [
        ([whole(6, 12), scalar(9), real(6, 12)], {}, "b"),
        ([whole(6, 12), scalar(9), real(0)], {"binary_output": True}, "b"),
    ],
    "UnsortedSegmentSum": [
        ([real(6, 12), axis(2, 0, 2, 4, 1, 0), scalar(5)], {}, "rest0 k0"),
        ([real(6, 2, 4), np.array([[1, 0], [2, 2]] * 3, np.int32), scalar(3)], {}, "rest0 k0 k1"),
    ],
    **alike(
        ("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"),
        ([real(6, 12), axis(2, 0, 2, 4, 1, 0), scalar(5)], {}, "rest0"),
    ),
    **alike(
        ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"),
        ([real(6, 12), SEGMENTS], {}, "rest0"),
    ),
    **alike(
        ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"),
        ([real(5, 12), axis(4, 0, 2, 2, 1, 0), SEGMENTS], {}, "rest0"),
    ),
    "ScatterNd": [
        ([pairs(), real(6, 12), axis(5, 4, 12)], {}, "i2 k0"),
        ([axis(4, 0, 2)[:, None], real(3), axis(5)], {}, "k0"),
    ],
    **alike(
        (
            *("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub"),
            *("TensorScatterMax", "TensorScatterMin", "ScatterNdNonAliasingAdd"),
        ),
        ([real(5, 4, 12), pairs(), real(6, 12)], {}, "i2"),
    ),
    "DynamicStitch": [(STITCHED, {}, "rest0")],
    "ParallelDynamicStitch": [(STITCHED, {}, "rest0")],
    "SparseTensorDenseMatMul": [
        ([pairs().astype(np.int64), real(6), np.array([5, 4]), real(4, 12)], {}, "n"),
        (
            [pairs().astype(np.int64), real(6), np.array([5, 4]), real(12, 4)],
            {"adjoint_b": True},
            "n",
        ),
    ],
}
for _prefix in ("Scatter", "ResourceScatter"):
    for _change in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min"):
        CASES[_prefix + _change] = [
            ([positive(5, 12), ROWS, positive(3, 12)], {}, "rest0"),
            ([positive(5, 12), ROWS, np.float32(0.5)], {}, "rest0"),
        ]
    for _change in ("Update", "Add", "Sub", "Max", "Min"):
        CASES[f"{_prefix}Nd{_change}"] = [([real(5, 4, 12), pairs(), real(6, 12)], {}, "i2")]
