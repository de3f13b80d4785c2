"""The checker against the search's costs, on training steps made without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.batch_norm import BatchNorm, with_batch_norm
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import plan_reshard, step_bytes
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search import frontier_tracking
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.certificates.checker import Checker
from tests.oracles.certificates.checker.cheapest_way import cheapest_way


class Script:
    """Operators one after the other, and gradients of the last by every variable."""

    def __init__(self) -> None:
        self.operators: dict[str, Operator] = {}

    def add(
        self, name: str, kind: str, inputs: tuple[str, ...], spec: TensorSpec, **more: object
    ) -> str:
        specs = tuple(self.operators[each].outputs[0] for each in inputs)
        names = tuple(TensorName(each, 0) for each in inputs)
        self.operators[name] = Operator(name, kind, names, specs, (spec,), more)
        return name

    def of(self, name: str, kind: str, inputs: tuple[str, ...], *shape: int, **more: object) -> str:
        return self.add(name, kind, inputs, TensorSpec(shape, "float32"), T="float32", **more)

    def variable(self, name: str, *shape: int) -> str:
        self.add(name, "VariableV2", (), TensorSpec(shape, "float32_ref"), dtype="float32")
        return self.of(f"{name}/read", "Identity", (name,), *shape)

    def matmul(self, name: str, x: str, y: str, transpose_b: bool = False) -> str:
        rows = self.operators[x].outputs[0].shape[0]
        columns = self.operators[y].outputs[0].shape[0 if transpose_b else 1]
        more = {"transpose_a": False, "transpose_b": transpose_b}
        return self.of(name, "MatMul", (x, y), rows, columns, **more)

    def graph(self, sparse: str = "") -> Graph:
        """A graph with its gradients; the gradient of ``sparse`` consists of slices."""
        last = next(reversed(self.operators))
        y, whole = TensorName(last, 0), self.operators[last].outputs
        for name in [name for name, op in self.operators.items() if op.is_variable]:
            shape = self.operators[name].outputs[0].shape
            parts = {"dense": TensorSpec(shape, "float32")}
            if name == sparse:
                parts = {
                    "values": TensorSpec((48, *shape[1:]), "float32"),
                    "indices": TensorSpec((48,), "int32"),
                }
            for part, spec in parts.items():
                tag = GradientTag(0, part, (y,), TensorName(name, 0), (None,), ())
                made = Operator(f"{name}/{part}", GRADIENT, (y,), whole, (spec,), gradient=tag)
                self.operators[made.name] = made
        return Graph(self.operators)


def residual() -> Graph:
    """Fan-out: one tensor has three readers, and the sum's two inputs lie alike."""
    script = Script()
    script.of("x", "Placeholder", (), 48, 96)
    into = script.matmul("in", "x", script.variable("w0", 96, 96))
    inner = script.of("relu", "Relu", (into,), 48, 96)
    out = script.matmul("out", inner, script.variable("w1", 96, 96))
    both = script.of("sum", "AddV2", (into, out), 48, 96)
    script.matmul("alike", both, into, transpose_b=True)
    return script.graph()


def unrolled() -> Graph:
    """Four steps of a recurrence: one variable that all share, one choice for all."""
    script = Script()
    state = script.of("x", "Placeholder", (), 48, 96)
    weights = script.variable("w", 96, 96)
    for number in range(4):
        state = script.matmul(f"step{number}", state, weights)
        state = script.of(f"tanh{number}", "Tanh", (state,), 48, 96)
    return script.graph()


def embedding(sparse: bool = True) -> Graph:
    """Rows of a table, whose gradient is in slices; or dense, where another reader's is."""
    script = Script()
    rows = script.add("words", "Placeholder", (), TensorSpec((48,), "int32"))
    table = script.variable("table", 96, 24)
    axis = TensorSpec((), "int32", np.array(0, np.int32))
    script.add("axis", "Const", (), axis)
    looked = script.of("look", "GatherV2", (table, rows, "axis"), 48, 24, batch_dims=0)
    weights = table if not sparse else script.variable("w", 96, 24)
    script.matmul("scores", looked, weights, transpose_b=True)
    return script.graph("table" if sparse else "")


def normalised(batch_norm: BatchNorm) -> Graph:
    """A batch normalisation whose mean is read, too."""
    script = Script()
    images = script.of("x", "Placeholder", (), 48, 4, 2, 8)
    old = script.of("old", "Placeholder", (), 8)
    inputs = [images, script.variable("scale", 8), script.variable("offset", 8)]
    none = TensorSpec((0,), "float32", np.zeros(0, np.float32))
    inputs += [script.add(name, "Const", (), none) for name in ("no_mean", "no_variance")]
    channels = TensorSpec((8,), "float32")
    norm = Operator(
        "norm",
        "FusedBatchNormV2",
        tuple(TensorName(name, 0) for name in inputs),
        tuple(script.operators[name].outputs[0] for name in inputs),
        (TensorSpec((48, 4, 2, 8), "float32"), *[channels] * 4),
    )
    script.operators["norm"] = norm
    read = TensorName(old, 0), TensorName("norm", 1)
    script.operators["moved"] = Operator("moved", "Sub", read, (channels,) * 2, (channels,))
    script.of("relu", "Relu", ("norm",), 48, 4, 2, 8)
    return with_batch_norm(script.graph(), batch_norm)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "residual": residual,
    "unrolled": unrolled,
    "sparse": embedding,
    "tied": lambda: embedding(sparse=False),
    "global statistics": lambda: normalised("global"),
    "local statistics": lambda: normalised("local"),
}


def reads_of(graph: Graph) -> BackwardReads:
    """The reads of TensorFlow's gradients: products read their inputs, activations their
    outputs."""
    products = [op.name for op in graph if op.type == "MatMul"]
    return BackwardReads(
        dict.fromkeys(products, (0, 1)),
        {op.name: (0,) for op in graph if op.type in ("Relu", "Tanh")},
    )


@pytest.mark.parametrize("memory", ["paper", "execution"])
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_costs_are_those_of_equation_3(name: str, devices: int, memory: str) -> None:
    graph = GRAPHS[name]()
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(devices)
    cost = ClusterCostModel(cluster, mesh, memory)
    batch, reads = frozenset({"x", "words"}), reads_of(graph)
    whole = graph_problem(AnnotatedGraph.of(graph, mesh, cost, batch, reads))
    checker = Checker(graph, mesh, cost, batch, reads)
    random = np.random.default_rng(devices)
    counts = [node.configurations for node in whole.problem.nodes]
    strategies = [[int(random.integers(count)) for count in counts] for _ in range(4)]
    strategies += [point.strategy.tolist() for point in frontier_tracking(whole.problem)][:20]
    for strategy in strategies:
        found = checker.cost(whole.configurations(strategy))
        assert (found.memory, found.time) == whole.problem.cost(strategy)


def test_ways_are_as_cheap_as_the_planner_s() -> None:
    cluster = load_cluster("2x8-v100")
    random = np.random.default_rng(0)
    mesh = cluster.mesh(16)
    price = ClusterCostModel(cluster, mesh).collective_nanoseconds
    shape = (48, 16, 32)

    def layout() -> Layout:
        while True:
            does = random.integers(-2, len(shape), len(mesh.axes)).tolist()
            dims = tuple(
                tuple(a for a in random.permutation(len(does)).tolist() if does[a] == dim)
                for dim in range(len(shape))
            )
            found = Layout(dims, tuple(a for a, what in enumerate(does) if what == -2))
            if found.fits(shape, mesh):
                return found

    for _ in range(12):
        source, target = layout(), layout()
        found = cheapest_way(mesh, shape, 4, source, target, price)
        steps = plan_reshard(mesh, shape, 4, source, target, price)
        assert found == sum(price(s.kind, s.axes, step_bytes(s, mesh, shape, 4)) for s in steps)
        assert (found == 0) == (not steps)


def test_copies_made_again_are_not_priced() -> None:
    graph, mesh = residual(), Mesh((2,))
    cluster = load_cluster("8-v100")
    checker = Checker(graph, mesh, ClusterCostModel(cluster, mesh))
    with pytest.raises(OptionError, match=r"keep every copy.*Got .*recomputed.*'relu'"):
        checker.cost({"relu": Configuration(((), ()), "recomputed")})
