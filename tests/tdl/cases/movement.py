"""Cases: joining, slicing, padding, repeating and rearranging."""

from __future__ import annotations

import numpy as np
from tdl_cases.values import Row, axis, real, scalar, truth

EDGES = np.array([[0, 0], [1, 2]], np.int32)
CROPS = np.array([[0, 1], [1, 0]], np.int32)

CASES: dict[str, list[Row]] = {
    "ConcatV2": [
        ([[real(6, 2, 6), real(6, 4, 6)], scalar(-2)], {}, "i0 i2"),
        ([[real(6, 12), real(2, 12), real(1, 12)], scalar(0)], {}, "i1"),
    ],
    "Concat": [([scalar(1), [real(6, 2), real(6, 4)]], {}, "i0")],
    "Pack": [
        ([[real(6, 12), real(6, 12)]], {"axis": 1}, "i0 i2"),
        ([[real(6), real(6), real(6)]], {"axis": -1}, "i0"),
    ],
    "Unpack": [
        ([real(6, 3, 12)], {"num": 3, "axis": 1}, "i0 i1"),
        ([real(6, 2)], {"num": 2, "axis": -1}, "i0"),
    ],
    "Split": [([scalar(1), real(6, 12, 6)], {"num_split": 3}, "i0 i2")],
    "SplitV": [([real(6, 12, 6), axis(3, 7, 2), scalar(-2)], {"num_split": 3}, "i0 i2")],
    "Slice": [
        ([real(6, 12, 6), axis(0, 2, 0), axis(6, 5, -1)], {}, "i0 i2"),
        ([real(6, 12), axis(0, 0), axis(6, 6)], {}, "i0"),
    ],
    "StridedSlice": [
        ([real(6, 12, 6), axis(0, 2, 0), axis(6, 8, 6), axis(1, 2, 1)], {}, "i0 i2"),
        (
            [real(6, 12), axis(9, 0), axis(2, 12), axis(1, 1)],
            {"begin_mask": 1, "end_mask": 1},
            "i0 i1",
        ),
        (
            [real(6, 12, 6), axis(0, -1), axis(0, 0), axis(1, 1)],
            {"ellipsis_mask": 1, "shrink_axis_mask": 2},
            "i0 i1",
        ),
        (
            [real(6, 12), axis(0, 0, 3), axis(0, 0, 4), axis(1, 1, 1)],
            {"new_axis_mask": 1, "begin_mask": 2, "end_mask": 2, "shrink_axis_mask": 4},
            "i1",
        ),
        (
            [real(6, 12), axis(0, 0, 1), axis(0, 0, 9), axis(1, 1, 1)],
            {"ellipsis_mask": 1, "new_axis_mask": 2},
            "i0",
        ),
        ([real(6, 12), axis(-1), axis(-7), axis(-1)], {}, "i1"),
        ([real(6, 12), axis(-6, -20), axis(6, 12), axis(1, 1)], {}, "i0 i1"),
    ],
    "StridedSliceGrad": [
        ([axis(6, 12, 6), axis(0, 2), axis(6, 8), axis(1, 2), real(6, 3, 6)], {}, "i0 i2"),
        ([axis(6, 12), axis(0, 3), axis(6, 4), axis(1, 1), real(6)], {"shrink_axis_mask": 2}, "i0"),
        (
            [axis(6, 12), axis(0, 0), axis(0, 0), axis(1, 1), real(1, 6, 12)],
            {"new_axis_mask": 1, "begin_mask": 2, "end_mask": 2},
            "i0 i1",
        ),
    ],
    "Pad": [([real(6, 12), EDGES], {}, "i0"), ([real(6, 2), EDGES * 0], {}, "i0 i1")],
    "PadV2": [
        ([real(6, 12), EDGES, np.float32(3)], {}, "i0"),
        ([real(6, 2), EDGES * 0, np.float32(3)], {}, "i0 i1"),
    ],
    "MirrorPad": [([real(6, 12), EDGES], {"mode": "REFLECT"}, "i0")],
    "MirrorPadGrad": [([real(6, 15), EDGES], {"mode": "REFLECT"}, "i0")],
    "Tile": [
        ([real(6, 1, 12), axis(1, 6, 1)], {}, "i0 i1 i2"),
        ([real(6, 4), axis(1, 3)], {}, "i0"),
        ([real(1, 4, 6), axis(6, 3, 1)], {}, "i0 i2"),
    ],
    "BroadcastTo": [
        ([real(6, 1, 12), axis(6, 6, 6, 12)], {}, "i0 i1 i2 i3"),
        ([real(), axis(6)], {}, "i0"),
    ],
    "Fill": [([axis(6, 12), np.float32(3)], {}, "_i0 _i1")],
    "ReverseV2": [
        ([real(6, 12, 6), axis(-2)], {}, "i0 i2"),
        ([real(6, 12), axis()], {}, "i0 i1"),
    ],
    "Reverse": [([real(6, 12), truth(2) | np.array([False, True])], {}, "")],
    "ReverseSequence": [
        ([real(6, 12, 6), axis(1, 2, 3, 4, 5, 12)], {"seq_dim": 1, "batch_dim": 0}, "i0 i2")
    ],
    "Roll": [
        ([real(6, 12), axis(2), axis(1)], {}, "i0"),
        ([real(6, 12), scalar(2), scalar(0)], {}, "i1"),
    ],
    "Cumsum": [([real(6, 12), scalar(1)], {"exclusive": True}, "i0")],
    "Cumprod": [([real(6, 12), scalar(-2)], {"reverse": True}, "i1")],
    "CumulativeLogsumexp": [([real(6, 12), scalar(1)], {}, "i0")],
    "EnsureShape": [([real(6, 12)], {"shape": [6, None]}, "i0 i1")],
    "Bitcast": [
        ([real(6, 12)], {"type": np.int32}, "i0 i1"),
        ([real(6, 12)], {"type": np.int16}, "i0 i1"),
        ([real(6, 12, 2)], {"type": np.float64}, "i0 i1"),
    ],
    "SpaceToDepth": [([real(6, 12, 12, 6)], {"block_size": 2}, "b i j")],
    "DepthToSpace": [([real(6, 6, 6, 12)], {"block_size": 2}, "b i j")],
    "SpaceToBatchND": [([real(6, 6, 4, 6), axis(2, 2), CROPS * 0], {}, "i3")],
    "BatchToSpaceND": [([real(8, 4, 4, 6), axis(2, 2), CROPS], {}, "i3")],
    "SpaceToBatch": [([real(6, 6, 4, 6), CROPS * 0], {"block_size": 2}, "i3")],
    "BatchToSpace": [([real(8, 4, 4, 6), CROPS], {"block_size": 2}, "i3")],
}
CASES["Reverse"] = [([real(6, 12), np.array([False, True])], {}, "i0")]
