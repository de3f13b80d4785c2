"""Operators that compute an initial value lie as the variable is stored."""

from __future__ import annotations

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.following import follow_assigned
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.tensor_spec import TensorSpec

FLOAT = "float32"
SHAPE = (8, 12)
STORED = Configuration(((0,), (1,)))


def operator(
    name: str, type_: str, inputs: list[Operator], mutates: tuple[int, ...] = (), dtype: str = FLOAT
) -> Operator:
    return Operator(
        name,
        type_,
        tuple(TensorName(each.name, 0) for each in inputs),
        tuple(each.outputs[0] for each in inputs),
        (TensorSpec(SHAPE, dtype),),
        {"dtype": FLOAT},
        mutates=mutates,
    )


def initializer() -> Graph:
    """variable <- relu(qr(draw) * draw2), and a copy of the draw that nothing assigns."""
    variable = operator("variable", "VariableV2", [], dtype=f"{FLOAT}_ref")
    shape = Operator("shape", "Const", (), (), (TensorSpec((2,), "int32"),))
    draw = operator("draw", "RandomUniform", [shape])
    second = operator("second", "RandomUniform", [shape])
    unknown = operator("unknown", "Mystery", [draw])
    scaled = operator("scaled", "Mul", [unknown, second])
    positive = operator("positive", "Relu", [scaled])
    aside = operator("aside", "Neg", [draw])
    assign = operator("assign", "Assign", [variable, positive], (0,), f"{FLOAT}_ref")
    operators = (variable, shape, draw, second, unknown, scaled, positive, aside, assign)
    return Graph({each.name: each for each in operators})


def followed(planned: dict[str, Configuration]) -> dict[str, Configuration]:
    strategy = Strategy(initializer(), Mesh((2, 2)), planned)
    follow_assigned(strategy, planned)
    return strategy.configurations


def test_what_is_assigned_is_computed_as_it_is_stored() -> None:
    found = followed({"variable": STORED})
    assert found["assign"] == STORED
    assert found["positive"] == found["scaled"] == found["second"] == STORED


def test_what_cannot_be_split_and_what_is_before_it_is_whole() -> None:
    found = followed({"variable": STORED})
    for name in ("unknown", "draw", "aside"):
        assert not any(found[name].splits)


def test_what_is_planned_stays() -> None:
    other = Configuration(((), (0,)))
    found = followed({"variable": STORED, "scaled": other})
    assert found["scaled"] == other
    assert found["positive"] == STORED
    assert not any(found["second"].splits)


def test_a_variable_that_is_whole_is_computed_whole() -> None:
    assert not any(any(chosen.splits) for chosen in followed({}).values())
