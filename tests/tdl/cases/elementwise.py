"""Cases: one function of every element, at the values where it is defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tdl_cases.values import Array, Row, complex_, large, positive, real, truth, whole

from tensoropt.tdl import described, lookup
from tensoropt.tdl.ops.algebra import elementwise

# Where an elementwise function is defined, if not on all real numbers.
DOMAIN: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(["Acos", "Asin", "Atanh", "Erfinv", "Ndtri", "Digamma", "Lgamma"], positive),
    **dict.fromkeys(["Log", "Sqrt", "Rsqrt", "Xlogy", "Log1p", "Xlog1py", "Pow"], positive),
    **dict.fromkeys(["Inv", "Reciprocal", "InvGrad", "ReciprocalGrad", "RsqrtGrad"], positive),
    **dict.fromkeys(["SqrtGrad"], positive),
    **dict.fromkeys(["Acosh"], large),
    **dict.fromkeys(["Igamma", "Igammac", "IgammaGradA", "RandomGammaGrad", "Betainc"], positive),
    **dict.fromkeys(["BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0"], positive),
    **dict.fromkeys(
        ["BesselY1", "Expint", "Dawsn", "Spence", "FresnelCos", "FresnelSin"], positive
    ),
    **dict.fromkeys(["Zeta"], large),
    **dict.fromkeys(["Angle", "Conj", "ComplexAbs", "Imag", "Real"], complex_),
    **dict.fromkeys(["PopulationCount"], whole),
    **dict.fromkeys(["LogicalNot", "LogicalAnd", "LogicalOr"], truth),
    **dict.fromkeys(["Invert", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift"], whole),
    **dict.fromkeys(["RightShift", "TruncateDiv", "TruncateMod", "Mod", "FloorMod"], whole),
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "CheckNumerics": {"message": "finite"},
    "CheckNumericsV2": {"message": "finite"},
    "Cast": {"DstT": np.float64},
}
WITHOUT_BROADCASTING = ["ApproximateEqual", "RandomGammaGrad"]


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


def polygamma_rows(_op_type: str) -> list[Row]:
    order = np.array([1, 2, 3, 1, 2, 3], np.float32)
    return [([order[:, None], large(6, 12)], {}, "i0 i1")]


_FAMILIES: dict[Any, Callable[[str], list[Row]]] = {
    elementwise.unary: unary_rows,
    elementwise.copy: unary_rows,
    elementwise.binary: binary_rows,
    elementwise.unary_gradient: lambda t: binary_rows(t)[:1],
}
CASES: dict[str, list[Row]] = {
    op_type: _FAMILIES[lookup(op_type).function](op_type)
    for op_type in described()
    if lookup(op_type).function in _FAMILIES
}
CASES["Polygamma"] = polygamma_rows("Polygamma")
CASES["Betainc"] = [
    ([positive(6, 12), positive(6, 12), positive(6, 12)], {}, "i0 i1"),
    ([positive(), positive(), positive(6)], {}, "i0"),
]
