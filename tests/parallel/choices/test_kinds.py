"""Operators that are alike have one number."""

from __future__ import annotations

import numpy as np

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.assignments import assignments
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tensor_spec import TensorSpec

SPEC = TensorSpec((8, 16), "float32")


def source(name: str, spec: TensorSpec = SPEC) -> Operator:
    return Operator(name, "Placeholder", (), (), (spec,), {"shape": spec.shape})


def reader(name: str, maker: str, spec: TensorSpec = SPEC, **attributes: object) -> Operator:
    return Operator(name, "Tanh", (TensorName(maker, 0),), (spec,), (spec,), attributes)


def kinds_of(*operators: Operator) -> Kinds:
    return Kinds(Graph({operator.name: operator for operator in operators}))


def test_names_places_and_hints_make_no_kind() -> None:
    hints = {"_class": "loc:@x", "debug_name": "b"}
    kinds = kinds_of(source("x"), reader("a", "x"), reader("b", "a", **hints))
    assert kinds.of["a"] == kinds.of["b"] != kinds.of["x"]


def test_shapes_and_attributes_do() -> None:
    wide = TensorSpec((8, 32), "float32")
    operators = (
        source("x"),
        source("y", wide),
        reader("a", "x"),
        reader("b", "y", wide),
        reader("c", "x", T="float32"),
        reader("d", "x", N=[1]),  # which cannot be compared: a kind of its own
        reader("e", "x", N=[1]),
    )
    numbers = kinds_of(*operators).of
    assert len({*numbers.values()}) == len(operators)


def test_small_values_are_compared() -> None:
    def constant(name: str, value: int) -> Operator:
        array = np.array(value, np.int32)
        return Operator(name, "Const", (), (), (TensorSpec((), "int32", array),))

    numbers = kinds_of(constant("a", 1), constant("b", 1), constant("c", 2)).of
    assert numbers["a"] == numbers["b"] != numbers["c"]


def test_derivations_are_those_of_each_operator() -> None:
    operators = (source("x"), reader("a", "x"), reader("b", "a"), reader("c", "a", T="float32"))
    kinds = kinds_of(*operators)
    assert kinds.derivations == {each.name: derivation_of(each) for each in operators}
    numbers = kinds.derivation_numbers
    assert numbers["a"] == numbers["b"] == numbers["c"] != numbers["x"]


def test_a_few_numbers_are_partial_sums_along_all_axes_or_none() -> None:
    def sums(width: int) -> list[int]:
        row, wide = TensorSpec((width,), "float32"), TensorSpec((width, 64), "float32")
        axis = TensorSpec((1,), "int32", np.array([1], np.int32))
        operators = [source("x", wide), source("y", wide)]
        operators.append(Operator("axis", "Const", (), (), (axis,), {}))
        for name, maker in (("a", "x"), ("b", "y")):
            read = TensorName(maker, 0), TensorName("axis", 0)
            operators.append(
                Operator(name, "Sum", read, (wide, axis), (row,), {"keep_dims": False})
            )
        read = TensorName("a", 0), TensorName("b", 0)
        operators.append(Operator("sum", "AddV2", read, (row, row), (row,), {}))
        graph = Graph({operator.name: operator for operator in operators})
        derivation = Kinds(graph, partial_operands=True).derivations["sum"]
        partial = derivation.index("partial(0,1)")
        found = assignments(derivation, Mesh((2, 2, 2)))
        return sorted({*(found == partial).sum(axis=1).tolist()})

    assert sums(8) == [0, 3]
    assert sums(1024) == [0, 1, 2, 3]
