"""Cases: images, quantisation and fused recurrent cells."""

from __future__ import annotations

import numpy as np
from tdl_cases.values import Row, alike, axis, positive, real, scalar

SIZE = axis(5, 3)
BOXES = np.array([[0.1, 0.2, 0.8, 0.9]] * 6, np.float32)
TRANSFORM = np.array([[1, 0.1, 0, 0, 0.9, 1, 0, 0]], np.float32)
TURN = {"interpolation": "BILINEAR"}
LIMITS = [np.float32(-1), np.float32(1.5)]
GIVEN = {"range_given": True}
LSTM = [real(12, 3), real(12, 3), real(3), real(3), real(3)]

CASES: dict[str, list[Row]] = {
    **alike(
        ("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"),
        ([real(6, 4, 4, 6), SIZE], {}, "b c"),
    ),
    "ResizeNearestNeighborGrad": [([real(6, 5, 3, 6), axis(4, 4)], {}, "b c")],
    "ResizeBilinearGrad": [([real(6, 5, 3, 6), real(6, 4, 4, 6)], {}, "b c")],
    "ResizeBicubicGrad": [([real(6, 5, 3, 6), real(6, 4, 4, 6)], {}, "b c")],
    "ScaleAndTranslate": [([real(6, 4, 4, 6), SIZE, positive(2) + 1, positive(2)], {}, "b c")],
    "ImageProjectiveTransformV2": [([real(6, 4, 4, 6), TRANSFORM, axis(4, 4)], TURN, "b c")],
    "ImageProjectiveTransformV3": [
        (
            [real(6, 4, 4, 6), TRANSFORM, axis(4, 4), np.float32(0)],
            {**TURN, "fill_mode": "WRAP"},
            "b c",
        ),
        (
            [real(6, 4, 4, 6), np.tile(TRANSFORM, (6, 1)), axis(4, 4), np.float32(0)],
            {**TURN, "fill_mode": "WRAP"},
            "b c",
        ),
    ],
    "CropAndResize": [([real(2, 6, 6, 6), BOXES, axis(0, 1, 0, 1, 1, 0), SIZE], {}, "n c")],
    "ExtractImagePatches": [
        (
            [real(6, 4, 4, 3)],
            {"ksizes": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "rates": [1] * 4, "padding": "SAME"},
            "b0",
        )
    ],
    "ExtractVolumePatches": [
        (
            [real(6, 2, 4, 4, 2)],
            {"ksizes": [1, 2, 2, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": "VALID"},
            "b0",
        )
    ],
    "DrawBoundingBoxes": [([positive(6, 4, 4, 3), BOXES[:, None]], {}, "b")],
    "DrawBoundingBoxesV2": [([positive(6, 4, 4, 3), BOXES[:, None], real(1, 3)], {}, "b")],
    "AdjustContrastv2": [([real(6, 2, 4, 4, 6), np.float32(1.5)], {}, "i0 i1 i4")],
    "AdjustHue": [([positive(6, 2, 2, 3), np.float32(0.2)], {}, "i0 i1 i2")],
    "AdjustSaturation": [([positive(6, 2, 2, 3), np.float32(1.5)], {}, "i0 i1 i2")],
    "RGBToHSV": [([positive(6, 12, 3)], {}, "i0 i1")],
    "HSVToRGB": [([positive(6, 12, 3)], {}, "i0 i1")],
    "FakeQuantWithMinMaxArgs": [([real(6, 12)], {"min": -1, "max": 1.5}, "i0 i1")],
    "Bucketize": [([real(6, 12)], {"boundaries": [-1, 0, 1]}, "i0 i1")],
    "FakeQuantWithMinMaxArgsGradient": [
        ([real(6, 12), real(6, 12)], {"min": -1, "max": 1.5}, "i0 i1")
    ],
    "FakeQuantWithMinMaxVars": [([real(6, 12), *LIMITS], {}, "i0 i1")],
    "FakeQuantWithMinMaxVarsPerChannel": [
        ([real(6, 12), -positive(12), positive(12)], {}, "i0 i1"),
    ],
    "QuantizeAndDequantizeV2": [([real(6, 12), *LIMITS], GIVEN, "i0 i1")],
    "QuantizeAndDequantizeV3": [([real(6, 12), *LIMITS, scalar(8)], GIVEN, "i0 i1")],
    "QuantizeAndDequantizeV4": [([real(6, 12), *LIMITS], GIVEN, "i0 i1")],
    "LSTMBlockCell": [
        ([real(6, 2), real(6, 3), real(6, 3), real(5, 12), *LSTM[2:], real(12)], {}, "b")
    ],
    "GRUBlockCell": [([real(6, 2), real(6, 3), real(5, 6), real(5, 3), real(6), real(3)], {}, "b")],
    **alike(
        ("BlockLSTM", "BlockLSTMV2"),
        (
            [
                np.array(4),
                real(4, 6, 2),
                real(6, 3),
                real(6, 3),
                real(5, 12),
                *LSTM[2:],
                real(12),
            ],
            {},
            "b",
        ),
    ),
}
