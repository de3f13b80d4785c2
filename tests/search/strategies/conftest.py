"""Small training steps, built without TensorFlow, that solvers are compared on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.search.from_graph import GraphProblem, graph_problem


class Script:
    """Operators, one after the other; gradients of what was made last by every variable."""

    def __init__(self) -> None:
        self.operators: dict[str, Operator] = {}

    def add(
        self, name: str, kind: str, inputs: tuple[str, ...], shape: tuple[int, ...], **more: object
    ) -> str:
        specs = tuple(self.operators[each].outputs[0] for each in inputs)
        self.operators[name] = Operator(
            name,
            kind,
            tuple(TensorName(each, 0) for each in inputs),
            specs,
            (TensorSpec(shape, "float32"),),
            {"T": "float32", **more},
        )
        return name

    def variable(self, name: str, shape: tuple[int, ...]) -> str:
        spec = TensorSpec(shape, "float32_ref")
        self.operators[name] = Operator(name, "VariableV2", (), (), (spec,), {"dtype": "float32"})
        return self.add(f"{name}/read", "Identity", (name,), shape)

    def matmul(self, name: str, x: str, y: str, transpose_b: bool = False) -> str:
        rows = self.operators[x].outputs[0].shape[0]
        columns = self.operators[y].outputs[0].shape[0 if transpose_b else 1]
        return self.add(
            name, "MatMul", (x, y), (rows, columns), transpose_a=False, transpose_b=transpose_b
        )

    def graph(self) -> Graph:
        last = next(reversed(self.operators))
        y = TensorName(last, 0)
        for name in [name for name, op in self.operators.items() if op.is_variable]:
            tag = GradientTag(0, "dense", (y,), TensorName(name, 0), (None,), ())
            shape = self.operators[name].outputs[0].shape
            self.operators[f"{name}/gradient"] = Operator(
                f"{name}/gradient",
                GRADIENT,
                (y,),
                self.operators[last].outputs,
                (TensorSpec(shape, "float32"),),
                gradient=tag,
            )
        return Graph(self.operators)


def layers() -> Script:
    """Two layers with different widths."""
    script = Script()
    script.add("x", "Placeholder", (), (6144, 768))
    hidden = script.matmul("one", "x", script.variable("w1", (768, 1536)))
    hidden = script.add("relu", "Relu", (hidden,), (6144, 1536))
    script.matmul("two", hidden, script.variable("w2", (1536, 96)))
    return script


def residual() -> Script:
    """What skips a layer has the layer's two widths tied."""
    script = Script()
    script.add("x", "Placeholder", (), (48, 768))
    into = script.matmul("in", "x", script.variable("w0", (768, 768)))
    inner = script.matmul("one", into, script.variable("w1", (768, 3072)))
    out = script.matmul("two", inner, script.variable("w2", (3072, 768)))
    script.add("sum", "AddV2", (into, out), (48, 768))
    return script


def similarities() -> Script:
    """Every row of a batch against every other: the batch twice in one tensor."""
    script = Script()
    script.add("x", "Placeholder", (), (96, 96))
    rows = script.matmul("rows", "x", script.variable("w", (96, 48)))
    script.matmul("alike", rows, rows, transpose_b=True)
    return script


SCRIPTS = {"layers": layers, "residual": residual, "similarities": similarities}


def make(script: str, devices: int) -> GraphProblem:
    cluster = load_cluster("2x8-v100" if devices == 16 else "8-v100")
    mesh = cluster.mesh(devices)
    cost = ClusterCostModel(cluster, mesh)
    return graph_problem(SCRIPTS[script]().graph(), mesh, cost, frozenset({"x"}))


@pytest.fixture(scope="session")
def graph_problem_of() -> Callable[[str, int], GraphProblem]:
    """``graph_problem_of(script, devices)``: a script's problem; the batch is ``x``'s."""
    known: dict[tuple[str, int], GraphProblem] = {}

    def get(script: str, devices: int) -> GraphProblem:
        if (script, devices) not in known:
            known[script, devices] = make(script, devices)
        return known[script, devices]

    return get
