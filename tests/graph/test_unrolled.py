"""Finding the steps of unrolled recurrences in hand-made graphs."""

from __future__ import annotations

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.tensor_spec import TensorSpec

VECTOR = TensorSpec((4, 4), "float32")


def operator(name: str, type_: str, *inputs: str) -> Operator:
    spec = TensorSpec((4, 4), "resource" if type_ == "ReadVariableOp" else "float32")
    return Operator(
        name, type_, tuple(map(TensorName.parse, inputs)), (spec,) * len(inputs), (VECTOR,), {}
    )


def classes(*operators: Operator) -> dict[str, list[str]]:
    graph = Graph({each.name: each for each in operators})
    found: dict[str, list[str]] = {}
    for name, first in same_in_every_step(graph, lambda name: graph[name].type).items():
        found.setdefault(first, []).append(name)
    return {first: names for first, names in found.items() if len(names) > 1}


def recurrence(steps: int) -> list[Operator]:
    """h = tanh(x[t] + h w), y[t] = relu(h)."""
    found = [
        operator("w", "VarHandleOp"),
        operator("x", "Placeholder"),
        operator("start", "Fill", "x"),
    ]
    before = "start"
    for step in range(steps):
        found += [
            operator(f"read{step}", "ReadVariableOp", "w"),
            operator(f"product{step}", "MatMul", before, f"read{step}"),
            operator(f"sum{step}", "AddV2", "x", f"product{step}"),
            operator(f"state{step}", "Tanh", f"sum{step}"),
            operator(f"out{step}", "Relu", f"state{step}"),
        ]
        before = f"state{step}"
    return found


def test_steps_of_a_recurrence_are_the_same() -> None:
    steps = range(4)
    assert classes(*recurrence(4)) == {
        f"{name}0": [f"{name}{step}" for step in steps]
        for name in ("product", "sum", "state", "out")
    }


def test_two_uses_are_no_recurrence() -> None:
    assert classes(*recurrence(2)) == {}


def test_uses_beside_each_other_are_no_recurrence() -> None:
    towers = [operator("w", "VarHandleOp"), operator("x", "Placeholder")]
    for tower in range(4):
        towers += [
            operator(f"read{tower}", "ReadVariableOp", "w"),
            operator(f"product{tower}", "MatMul", "x", f"read{tower}"),
            operator(f"out{tower}", "Relu", f"product{tower}"),
        ]
    assert classes(*towers) == {}


def test_layers_with_variables_of_their_own_are_no_recurrence() -> None:
    layers = [operator("x", "Placeholder")]
    before = "x"
    for layer in range(4):
        layers += [
            operator(f"w{layer}", "VarHandleOp"),
            operator(f"read{layer}", "ReadVariableOp", f"w{layer}"),
            operator(f"product{layer}", "MatMul", before, f"read{layer}"),
        ]
        before = f"product{layer}"
    assert classes(*layers) == {}
