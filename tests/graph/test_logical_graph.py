"""The logical graph without TensorFlow: names, ties between operators, edges with gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.tensor_spec import TensorSpec

FLOAT = TensorSpec((4, 4), "float32")
HANDLE = TensorSpec((4, 4), "resource")


def operator(
    name: str,
    type_: str,
    *inputs: str,
    spec: TensorSpec = FLOAT,
    specs: Sequence[TensorSpec] | None = None,
    mutates: tuple[int, ...] = (),
    gradient: GradientTag | None = None,
) -> Operator:
    names = tuple(TensorName.parse(text) for text in inputs)
    read = tuple(specs) if specs is not None else (FLOAT,) * len(names)
    return Operator(name, type_, names, read, (spec,), mutates=mutates, gradient=gradient)


def by(x: str, *ys: str, call: int = 0) -> GradientTag:
    tensors = tuple(TensorName.parse(y) for y in ys)
    return GradientTag(call, "dense", tensors, TensorName.parse(x), (None,) * len(ys), ())


def graph(*operators: Operator) -> Graph:
    return Graph({one.name: one for one in operators})


def training() -> Graph:
    """One layer with momentum: the variable, its slot, a read, a gradient, an update."""
    return graph(
        operator("x", "Placeholder"),
        operator("w", "VarHandleOp", spec=HANDLE),
        operator("read", "ReadVariableOp", "w", specs=[HANDLE]),
        operator("product", "MatMul", "x", "read"),
        operator("loss", "Sum", "product"),
        operator("slot", "VarHandleOp", spec=HANDLE),
        operator("gradient", GRADIENT, "loss", gradient=by("w", "loss")),
        operator(
            "update",
            "ApplyMomentum",
            "w",
            "slot",
            "gradient",
            specs=[HANDLE, HANDLE, FLOAT],
            mutates=(0, 1),
        ),
    )


def test_tensor_names() -> None:
    assert TensorName.parse("layer/add:1") == TensorName("layer/add", 1)
    assert TensorName.parse("layer/add") == TensorName("layer/add", 0)
    assert str(TensorName("layer/add", 1)) == "layer/add:1"


def test_a_variable_and_what_touches_it_lie_alike() -> None:
    tied = leaders(training())
    assert [name for name, leader in tied.items() if leader == "w"] == [
        *("w", "read", "slot", "gradient", "update"),
    ]
    assert all(leader in (name, "w") for name, leader in tied.items())


def test_a_gradient_lies_as_what_it_is_by() -> None:
    tied = leaders(
        graph(
            operator("x", "Placeholder"),
            operator("hidden", "Tanh", "x"),
            operator("loss", "Sum", "hidden"),
            operator("gradient", GRADIENT, "loss", gradient=by("hidden", "loss")),
        )
    )
    assert tied == {"x": "x", "hidden": "hidden", "loss": "loss", "gradient": "hidden"}


def test_every_operator_has_a_leader() -> None:
    assert list(leaders(training())) == [one.name for one in training()]


def test_gradients_flow_from_x_to_y_only() -> None:
    assert differentiated_inputs(training()) == {
        "read": (0,),
        "product": (1,),
        "loss": (0,),
    }


@pytest.mark.parametrize("stop", ["StopGradient", "ArgMax", "ZerosLike"])
def test_some_operators_stop_gradients(stop: str) -> None:
    found = differentiated_inputs(
        graph(
            operator("x", "Placeholder"),
            operator("stop", stop, "x"),
            operator("sum", "AddV2", "x", "stop"),
            operator("gradient", GRADIENT, "sum", gradient=by("x", "sum")),
        )
    )
    assert found == {"sum": (0,)}


def test_integers_carry_no_gradient() -> None:
    whole = TensorSpec((4,), "int32")
    found = differentiated_inputs(
        graph(
            operator("x", "Placeholder"),
            operator("rows", "Placeholder", spec=whole),
            operator("picked", "GatherV2", "x", "rows", specs=[FLOAT, whole]),
            operator("gradient", GRADIENT, "picked", gradient=by("x", "picked")),
        )
    )
    assert found == {"picked": (0,)}


def test_sizes_of_tensors() -> None:
    assert TensorSpec((2, 3), "float64").bytes == 48
    assert TensorSpec((2,), "bfloat16").bytes == 4
    assert TensorSpec((2,), "float32_ref").bytes == 8
    assert TensorSpec((5,), "resource").bytes == 0
    assert TensorSpec((), "bool").elements == 1


def test_a_summary_names_what_two_graphs_must_share() -> None:
    value = np.arange(3.0)
    constant = Operator("c", "Const", (), (), (TensorSpec((3,), "float64", value),), {"dtype": "f"})
    other = Operator(
        "c", "Const", (), (), (TensorSpec((3,), "float64", value + 1),), {"dtype": "f"}
    )
    assert constant.summary().startswith("c = Const() float64[3] dtype='f' ")
    assert constant.summary() != other.summary()
    assert operator("sum", "AddV2", "a", "b:1").summary() == "sum = AddV2(a:0, b:1) float32[4, 4]"
