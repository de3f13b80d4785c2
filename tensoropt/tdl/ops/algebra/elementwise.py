"""Operators whose output elements each depend on one element of every input.

An input may be broadcast, such as the limits of fake quantisation, which are one pair for all
elements or one per channel.
"""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Operand, elementwise
from tensoropt.tdl.operator_type import EACH_INPUT, OperatorType
from tensoropt.tdl.ops.subscripts import at
from tensoropt.tdl.registry import describe, record

__all__: list[str] = []

function = elementwise("function")
where = elementwise("where")


@describe(
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Digamma"),
    *("Elu", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor", "Inv", "Invert", "IsFinite"),
    *("IsInf", "IsNan", "LeakyRelu", "Lgamma", "Log", "Log1p", "LogicalNot", "Ndtri", "Neg"),
    *("Reciprocal", "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin"),
    *("Sinh", "Softplus", "Softsign", "Sqrt", "Square", "Tan", "Tanh", "CheckNumerics"),
    *("CheckNumericsV2", "BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0", "BesselJ1"),
    *("BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1", "Dawsn", "Expint"),
    *("FresnelCos", "FresnelSin", "Spence", "PopulationCount", "Real", "Imag", "Conj", "Angle"),
    "ComplexAbs",
    any_size=by_index,
)
def unary(x: Operand) -> Any:
    return lambda *i: function(x[i])


@describe(
    *("Identity", "Snapshot", "StopGradient", "PreventGradient", "Cast"),
    *("ZerosLike", "OnesLike", "DeepCopy", "GuaranteeConst"),
    any_size=by_index,
)
def copy(x: Operand) -> Any:
    return lambda *i: x[i]


@describe(
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "DivNoNan", "RealDiv", "TruncateDiv"),
    *("FloorDiv", "FloorMod", "Mod", "TruncateMod", "Maximum", "Minimum", "Pow", "Atan2"),
    *("SquaredDifference", "Xdivy", "Xlogy", "Xlog1py", "Equal", "NotEqual", "Greater"),
    *("GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "BitwiseAnd"),
    *("BitwiseOr", "BitwiseXor", "LeftShift", "RightShift", "ApproximateEqual"),
    *("Complex", "Igamma", "Igammac", "IgammaGradA", "NextAfter", "Polygamma", "RandomGammaGrad"),
    "Zeta",
    any_size=by_index,
)
def binary(x: Operand, y: Operand) -> Any:
    return lambda *i: function(at(x, i), at(y, i))


@describe(
    *("EluGrad", "InvGrad", "LeakyReluGrad", "ReciprocalGrad", "Relu6Grad", "ReluGrad"),
    *("RsqrtGrad", "SeluGrad", "SigmoidGrad", "SoftplusGrad", "SoftsignGrad", "SqrtGrad"),
    "TanhGrad",
    any_size=by_index,
)
def unary_gradient(x: Operand, y: Operand) -> Any:
    return lambda *i: function(x[i], y[i])


@describe("AddN", any_size=by_index)
def add_n(*inputs: Operand) -> Any:
    def element(*i: Expression) -> Expression:
        total: Expression = inputs[0][i]
        for operand in inputs[1:]:
            total = total + operand[i]
        return total

    return element


@describe("IdentityN", any_size=by_index)
def identity_n(*inputs: Operand, _gradient_op_type: bool = False) -> Any:
    """It is not split if inputs have several shapes, or if the script gives its gradient.

    A gradient that the script gives may add up examples.
    """
    if _gradient_op_type or len({operand.shape for operand in inputs}) > 1:
        return None
    return tuple(lambda *i, x=x: x[i] for x in inputs)


@describe("Select", any_size=by_index)
def select(condition: Operand, x: Operand, y: Operand) -> Any:
    """The condition is a scalar, of the operands' shape, or one value per first index."""
    return lambda *i: where(condition[i[: condition.rank]], x[i], y[i])


@describe("SelectV2", any_size=by_index)
def select_v2(condition: Operand, x: Operand, y: Operand) -> Any:
    return lambda *i: where(at(condition, i), at(x, i), at(y, i))


@describe("Betainc", any_size=by_index)
def betainc(a: Operand, b: Operand, x: Operand) -> Any:
    """Scalars are broadcast."""
    return lambda *i: function(at(a, i), at(b, i), at(x, i))


@describe("ClipByValue", any_size=by_index)
def clip_by_value(x: Operand, low: Operand, high: Operand) -> Any:
    return lambda *i: function(at(x, i), at(low, i), at(high, i))


_FIRST = ((0, 0),)
_EITHER = ((0, 0), (1, 0))
_CHOSEN = ((1, 0), (2, 0))

record(
    *("Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Expm1", "Floor", "Inv", "Log", "Log1p"),
    *("LogicalNot", "Reciprocal", "Relu", "Relu6", "Round", "Rsqrt", "Selu", "Sigmoid"),
    *("Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Square", "Tan", "Tanh"),
    facts=OperatorType(overwrites=_FIRST),
)
record(
    "Add",
    "AddV2",
    "Sub",
    facts=OperatorType(overwrites=_EITHER, linear="terms", affine="sum", gradient_passes=True),
)
record(
    "AddN",
    facts=OperatorType(
        overwrites=(EACH_INPUT,), linear="terms", affine="sum", gradient_passes=True
    ),
)
record("Cast", facts=OperatorType(value="converted", passes_unchanged=True, affine="sum"))
record("CheckNumerics", facts=OperatorType(affine="sum"))
record("Div", "RealDiv", facts=OperatorType(overwrites=_EITHER, linear="first", affine="quotient"))
record("DivNoNan", facts=OperatorType(overwrites=_EITHER, affine="quotient"))
record(
    *("EluGrad", "FloorDiv", "FloorMod", "InvGrad", "LeakyReluGrad", "LogicalAnd"),
    *("LogicalOr", "Maximum", "Minimum", "Pow", "ReciprocalGrad", "Relu6Grad", "ReluGrad"),
    *("RsqrtGrad", "SeluGrad", "SigmoidGrad", "SoftplusGrad", "SoftsignGrad", "SqrtGrad"),
    *("SquaredDifference", "TanhGrad"),
    facts=OperatorType(overwrites=_EITHER),
)
record(
    "Identity",
    facts=OperatorType(
        role="names", value="same", view="first", in_line=True, linear="first", affine="sum"
    ),
)
record("IdentityN", facts=OperatorType(value="same", view="each", in_line=True, affine="sum"))
record("LeakyRelu", facts=OperatorType(overwrites=_FIRST, onednn=True))
record("Mul", facts=OperatorType(overwrites=_EITHER, linear="factors", affine="product"))
record("MulNoNan", facts=OperatorType(overwrites=_EITHER, affine="product"))
record("Neg", facts=OperatorType(overwrites=_FIRST, linear="first", affine="sum"))
record("OnesLike", facts=OperatorType(overwrites=_FIRST, gradient_stops=True))
record(
    "PreventGradient",
    facts=OperatorType(view="first", in_line=True, linear="first", gradient_stops=True),
)
record("Select", "SelectV2", facts=OperatorType(overwrites=_CHOSEN, affine="choice"))
record(
    "Snapshot",
    facts=OperatorType(value="same", overwrites=_FIRST, in_line=True, linear="first", affine="sum"),
)
record(
    "StopGradient",
    facts=OperatorType(
        value="elements", view="first", in_line=True, linear="first", gradient_stops=True
    ),
)
record("ZerosLike", facts=OperatorType(value="elements", overwrites=_FIRST, gradient_stops=True))


quantise = elementwise("quantise", operations=5)


@describe("FakeQuantWithMinMaxArgs", "Bucketize")
def with_fixed_limits(x: Operand) -> Any:
    return lambda *i: quantise(x[i])


@describe("FakeQuantWithMinMaxArgsGradient")
def gradient_with_fixed_limits(gradient: Operand, x: Operand) -> Any:
    return lambda *i: quantise(gradient[i], x[i])


@describe("FakeQuantWithMinMaxVars")
def with_limits(x: Operand, low: Operand, high: Operand) -> Any:
    return lambda *i: quantise(x[i], low[()], high[()])


@describe("FakeQuantWithMinMaxVarsPerChannel")
def with_limits_per_channel(x: Operand, low: Operand, high: Operand) -> Any:
    return lambda *i: quantise(x[i], low[i[-1]], high[i[-1]])


@describe("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantise_and_dequantise(
    x: Operand,
    low: Operand,
    high: Operand,
    *_bits: Operand,
    range_given: bool = False,
    axis: int = -1,
) -> Any:
    """It is split only if a range of all elements is given.

    Otherwise the kernel takes the range of the tensor or of each channel.
    """
    if not range_given or axis != -1:
        return None
    return lambda *i: quantise(x[i], low[()], high[()])
