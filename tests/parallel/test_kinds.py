"""Operators that are alike have one number."""

from __future__ import annotations

import numpy as np

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.kinds import Kinds
from tensoropt.parallel.strategy import derivation_of

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
