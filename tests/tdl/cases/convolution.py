"""Cases: convolutions, pooling and what goes with windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tdl_cases.values import Array, Row, axis, real

SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}
VALID = {"strides": [1, 1, 1, 1], "padding": "VALID"}
STRIDED = {"strides": [1, 2, 2, 1], "padding": "SAME"}
PATCHES = {"strides": [1, 2, 2, 1], "padding": "VALID"}
DILATED = {**SAME, "dilations": [1, 2, 2, 1]}
CHANNELS_FIRST = {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"}
EXPLICIT = {
    "strides": [1, 1, 1, 1],
    "padding": "EXPLICIT",
    "explicit_paddings": [0, 0, 1, 0, 2, 1, 0, 0],
}
VOLUME = {"strides": [1, 1, 2, 1, 1], "padding": "SAME"}

POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
OVERLAPPING = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
POOL_FIRST = {
    "ksize": [1, 1, 3, 3],
    "strides": [1, 1, 2, 2],
    "padding": "SAME",
    "data_format": "NCHW",
}
POOL_VOLUME = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
EVERYWHERE = {"ksize": [1, 6, 6, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}


def max_pooled(data: Array, size: int, stride: int, after: int) -> Array:
    """What the gradient operators want to see of the forward pass."""
    spatial = tuple(range(1, data.ndim - 1))
    edges = [(0, after if d in spatial else 0) for d in range(data.ndim)]
    padded = np.pad(data, edges, constant_values=-np.inf)
    view: Any = sliding_window_view  # its annotation knows one axis only
    windows = view(padded, (size,) * len(spatial), spatial)
    steps = tuple(slice(None, None, stride if d in spatial else 1) for d in range(data.ndim))
    made: Array = windows[steps].max(axis=tuple(range(data.ndim, windows.ndim)))
    return made


IMAGES = real(6, 6, 6, 6)
VOLUMES = real(6, 4, 4, 4, 6)
FLAT = [IMAGES, max_pooled(IMAGES, 3, 2, after=1), real(6, 3, 3, 6)]
DEEP = [VOLUMES, max_pooled(VOLUMES, 2, 2, after=0), real(6, 2, 2, 2, 6)]
SIZES = [np.array(OVERLAPPING[key], np.int32) for key in ("ksize", "strides")]
REST = {"padding": "SAME"}

CASES: dict[str, list[Row]] = {
    "Conv2D": [
        ([real(6, 5, 5, 6), real(3, 3, 6, 12)], SAME, "b co ci"),
        ([real(6, 6, 6, 6), real(3, 2, 6, 6)], VALID, "b co ci"),
        ([real(6, 7, 8, 6), real(3, 3, 6, 6)], STRIDED, "b co ci"),
        ([real(6, 7, 7, 6), real(3, 3, 6, 6)], DILATED, "b co ci"),
        ([real(6, 4, 5, 6), real(2, 3, 6, 6)], EXPLICIT, "b co ci"),
        ([real(6, 6, 5, 6), real(3, 3, 6, 6)], CHANNELS_FIRST, "b co ci"),
        ([real(6, 6, 12, 6), real(1, 1, 6, 6)], SAME, "b y x co ci"),
        ([real(2, 12, 12, 3), real(2, 2, 3, 6)], PATCHES, "b y x co ci"),
        ([real(2, 6, 6, 4), real(6, 6, 4, 2)], VALID, "b co ci dy dx"),
        ([real(6, 5, 5, 6), real(3, 3, 2, 6)], SAME, "b"),
        ([real(6, 5, 5, 6), real(1, 1, 6, 6)], STRIDED, "b co ci"),
    ],
    "Conv3D": [
        ([real(6, 3, 4, 3, 6), real(2, 3, 2, 6, 6)], VOLUME, "b co ci"),
        (
            [real(2, 6, 4, 6, 2), real(1, 2, 1, 2, 2)],
            {**VOLUME, "padding": "VALID"},
            "b z y x co ci",
        ),
    ],
    "Conv2DBackpropInput": [
        ([axis(6, 6, 7, 12), real(3, 3, 12, 6), real(6, 6, 7, 6)], SAME, "b ci co"),
        ([axis(6, 8, 8, 6), real(3, 3, 6, 6), real(6, 4, 4, 6)], STRIDED, "b ci co"),
        ([axis(6, 7, 8, 6), real(2, 3, 6, 6), real(6, 3, 3, 6)], PATCHES, "b ci co"),
        ([axis(6, 6, 8, 8), real(3, 3, 6, 6), real(6, 6, 4, 4)], CHANNELS_FIRST, "b ci co"),
        ([axis(6, 6, 6, 6), real(1, 1, 6, 6), real(6, 6, 6, 6)], SAME, "b y x ci co"),
    ],
    "Conv3DBackpropInputV2": [
        ([axis(6, 3, 4, 3, 6), real(2, 3, 2, 6, 6), real(6, 3, 2, 3, 6)], VOLUME, "b ci co"),
    ],
    "Conv2DBackpropFilter": [
        ([real(6, 5, 5, 12), axis(3, 3, 12, 6), real(6, 5, 5, 6)], SAME, "ci co b"),
        ([real(6, 7, 8, 6), axis(3, 3, 6, 6), real(6, 4, 4, 6)], STRIDED, "ci co b"),
        ([real(6, 6, 6, 6), axis(1, 1, 6, 6), real(6, 6, 6, 6)], SAME, "ci co b y x"),
    ],
    "Conv3DBackpropFilterV2": [
        ([real(6, 3, 4, 3, 6), axis(2, 3, 2, 6, 6), real(6, 3, 2, 3, 6)], VOLUME, "ci co b"),
    ],
    "DepthwiseConv2dNative": [
        ([real(6, 5, 5, 6), real(3, 3, 6, 2)], SAME, "b co"),
        ([real(6, 6, 6, 6), real(3, 2, 6, 1)], STRIDED, "b x co"),
        ([real(6, 6, 6, 6), real(3, 3, 6, 1)], CHANNELS_FIRST, "b co"),
    ],
    "DepthwiseConv2dNativeBackpropInput": [
        ([axis(6, 5, 5, 6), real(3, 3, 6, 2), real(6, 5, 5, 12)], SAME, "b c"),
        ([axis(6, 6, 6, 6), real(3, 3, 6, 1), real(6, 3, 3, 6)], STRIDED, "b c"),
    ],
    "DepthwiseConv2dNativeBackpropFilter": [
        ([real(6, 5, 5, 6), axis(3, 3, 6, 2), real(6, 5, 5, 12)], SAME, "c b"),
        ([real(6, 6, 6, 6), axis(3, 3, 6, 1), real(6, 3, 3, 6)], STRIDED, "c b"),
    ],
    "Dilation2D": [
        (
            [real(6, 6, 6, 6), real(2, 3, 6)],
            {"strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"},
            "b y c",
        ),
    ],
    "MaxPool": [
        ([real(6, 6, 6, 6)], OVERLAPPING, "b c"),
        ([real(6, 12, 12, 6)], POOL, "b y x c"),
        ([real(6, 6, 6, 6)], EVERYWHERE, "b c"),
    ],
    "MaxPoolV2": [([real(6, 6, 6, 6), *SIZES], REST, "b c")],
    "MaxPool3D": [([real(6, 4, 4, 4, 6)], POOL_VOLUME, "b z y x c")],
    "AvgPool": [
        ([real(6, 6, 6, 6)], OVERLAPPING, "b c"),
        ([real(6, 12, 12, 6)], POOL, "b y x c"),
        ([real(6, 6, 6, 6)], EVERYWHERE, "b c"),
        ([real(6, 6, 7, 7)], POOL_FIRST, "b c"),
    ],
    "AvgPool3D": [([real(6, 4, 4, 4, 6)], POOL_VOLUME, "b z y x c")],
    "MaxPoolGrad": [(FLAT, OVERLAPPING, "i0 i3")],
    "MaxPoolGradV2": [([*FLAT, *SIZES], REST, "i0 i3")],
    "MaxPoolGradGrad": [([*FLAT[:2], IMAGES], OVERLAPPING, "i0 i3")],
    "MaxPoolGradGradV2": [([*FLAT[:2], IMAGES, *SIZES], REST, "i0 i3")],
    "MaxPool3DGrad": [(DEEP, POOL_VOLUME, "i0 i4")],
    "MaxPool3DGradGrad": [([*DEEP[:2], VOLUMES], POOL_VOLUME, "i0 i4")],
    "AvgPoolGrad": [([axis(6, 6, 6, 6), real(6, 3, 3, 6)], OVERLAPPING, "i0 i3")],
    "AvgPool3DGrad": [([axis(6, 4, 4, 4, 6), real(6, 2, 2, 2, 6)], POOL_VOLUME, "i0 i4")],
    "MaxPoolWithArgmax": [([real(6, 6, 6, 6)], POOL, "b")],
    "LRN": [([real(6, 6, 2, 5)], {"depth_radius": 2}, "b y x")],
    "LRNGrad": [([real(6, 6, 2, 5), real(6, 6, 2, 5), real(6, 6, 2, 5)], {}, "b y x")],
}
