"""Descriptions that a script registers, each checked against the kernel at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensoropt
from tensoropt.errors import DescriptionError
from tensoropt.frontend.definitions import operator_descriptions
from tensoropt.frontend.planning import kept_plans
from tensoropt.tdl import derive, operator_type, registry
from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Max, Opaque, Operand, Sum, elementwise
from tensoropt.tensor_spec import TensorSpec

MATRIX = np.random.default_rng(3).normal(size=(6, 12)).astype(np.float32)
function = elementwise("function")


@pytest.fixture(autouse=True)
def undescribed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the descriptions of some types of TensorFlow away."""
    all_types = registry._REGISTRY
    monkeypatch.setattr(all_types, "_types", dict(all_types._types))
    monkeypatch.setattr(all_types, "_cache", {})
    monkeypatch.setattr(operator_descriptions, "_described", set())
    for op_type in ("Cumsum", "Erf", "LogSoftmax", "MatMul", "Max", "ReverseV2"):
        registry.forget(op_type)


def nearest(points: Operand, centers: Operand, _k: Operand) -> Any:
    """Rows are independent; every device reads all centers."""

    def element(point: Any, place: Any) -> Any:
        return Opaque("nearest")(points[point, :], centers[:, :])[place]

    return element, element


def test_an_operator_without_a_description_gets_one() -> None:
    inputs = [MATRIX, MATRIX[:4], np.array(3)]
    described = tensoropt.describe("NearestNeighbors", inputs=inputs)(nearest)
    assert described is nearest
    specs = [TensorSpec(each.shape, each.dtype.name) for each in inputs]
    outputs = [TensorSpec((6, 3), "int64"), TensorSpec((6, 3), "float32")]
    derivation = derive("NearestNeighbors", specs, outputs, {})
    assert [derivation.indices[n].name for n in derivation.splittable] == ["point"]
    assert derivation.inputs == ((0, None), (None, None), ())


def test_gradients_and_attributes_and_axes_are_tried() -> None:
    @tensoropt.describe("MatMul", inputs=[MATRIX, MATRIX], attributes={"transpose_b": True})
    def product(a: Operand, b: Operand, *, transpose_b: bool = False) -> Any:
        return lambda i, j: Sum(lambda k: a[i, k] * (b[j, k] if transpose_b else b[k, j]))

    @tensoropt.describe("Cumsum", inputs=[MATRIX, np.int32(0)], constant_operands=(1,))
    def cumulative(x: Operand, axis: Operand) -> Any:
        assert axis.value == 0
        return lambda i, j: Opaque("sums")(x[:, j])[i]

    @tensoropt.describe("Erf", inputs=[MATRIX], any_size=by_index)
    def erf(x: Operand) -> Any:
        return lambda *i: function(x[i])

    assert operator_type("Erf").description.any_size is by_index  # type: ignore[union-attr]


def test_a_description_may_be_corrected() -> None:
    tensoropt.describe("Erf", inputs=[MATRIX])(lambda x: lambda i, j: function(x[i, j]))
    tensoropt.describe("Erf", inputs=[MATRIX])(lambda x: lambda *i: function(x[i]))
    with pytest.raises(DescriptionError, match=r"one description. Got a second one of Tanh"):
        tensoropt.describe("Tanh", inputs=[MATRIX])(lambda x: lambda *i: function(x[i]))
    assert operator_type("Tanh").description is not None


@pytest.mark.parametrize(
    ("op_type", "extra", "function_of", "message"),
    [
        # A sum of all elements before: pieces begin anew.
        ("Cumsum", [np.int32(0)], lambda x, _: lambda i, j: x[i, j], "index i in 2 .*output 0 dif"),
        # Rows of the output are read from the other end of the input.
        (
            "ReverseV2",
            [np.array([0], np.int32)],
            lambda x, _: lambda i, j: x[i, j],
            "index i in 2 pieces",
        ),
        # A sum over the row is missing.
        ("LogSoftmax", [], lambda x: lambda i, j: function(x[i, j]), "index j in 2 pieces: out"),
        # Two ranks read the largest element: which one has its gradient?
        (
            "Max",
            [np.int32(1)],
            lambda x, _: lambda i: Max(lambda j: x[i, j]),
            "which element is th",
        ),
        ("Erf", [], lambda x: lambda i, j: Opaque("all")(x[:, :])[i, j], "Got none of Erf"),
        ("Erf", [], lambda x: None, "it returned None"),
        ("Erf", [], lambda x: lambda i: function(x[i]), "Describing Erf of"),
    ],
)
def test_a_wrong_description_is_refused(
    op_type: str, extra: list[Any], function_of: Any, message: str
) -> None:
    with pytest.raises(DescriptionError, match=message):
        tensoropt.describe(op_type, inputs=[MATRIX, *extra], constant_operands=(1,))(function_of)
    assert operator_type(op_type).description is None


def test_a_kept_plan_depends_on_the_descriptions_of_the_script() -> None:
    assert not kept_plans.script_descriptions()
    tensoropt.describe("Erf", inputs=[MATRIX])(lambda x: lambda *i: function(x[i]))
    (text,) = kept_plans.script_descriptions().values()
    assert "function(x[i])" in text


def test_inputs_that_try_too_little_are_refused() -> None:
    matrix = np.ones((6, 35), np.float32)
    with pytest.raises(DescriptionError, match=r"Got j of extent 35 in Erf.* multiples of 6"):
        tensoropt.describe("Erf", inputs=[matrix])(lambda x: lambda i, j: function(x[i, j]))
    with pytest.raises(DescriptionError, match=r"Got 1 for MatMul, whose inputs are a, b"):
        tensoropt.describe("MatMul", inputs=[matrix])(lambda a, b: lambda i, j: a[i, j])


def test_unknown_and_stateful_types_are_refused() -> None:
    with pytest.raises(DescriptionError, match=r"Got 'NoSuchOperator'.*load_op_library"):
        tensoropt.describe("NoSuchOperator", inputs=[])
    with pytest.raises(DescriptionError, match="Got RandomGamma, which draws or holds a state"):
        tensoropt.describe("RandomGamma", inputs=[])
