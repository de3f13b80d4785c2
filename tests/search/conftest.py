"""Random search problems of all the shapes that the eliminations must handle, and what several
tests ask of them.

Here, because test folders are not packages that a test could import from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PLAIN, Space
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search import Edge, Frontier, Node, Problem
from tensoropt.search.watch import Watch
from tensoropt.tensor_spec import TensorSpec

Pairs = list[tuple[int, int]]


def chain(rng: np.random.Generator) -> tuple[int, Pairs]:
    size = int(rng.integers(1, 9))
    return size, [(node, node + 1) for node in range(size - 1)]


def diamonds(rng: np.random.Generator) -> tuple[int, Pairs]:
    count = int(rng.integers(1, 3))
    pairs = []
    for block in range(count):
        top = 3 * block
        pairs += [(top, top + 1), (top, top + 2), (top + 1, top + 3), (top + 2, top + 3)]
    return 3 * count + 1, pairs


def residual(rng: np.random.Generator) -> tuple[int, Pairs]:
    count = int(rng.integers(1, 3))
    pairs = []
    for block in range(count):
        top = 3 * block
        pairs += [(top, top + 1), (top + 1, top + 2), (top + 2, top + 3), (top, top + 3)]
    return 3 * count + 1, pairs


def parallel(rng: np.random.Generator) -> tuple[int, Pairs]:
    size = int(rng.integers(2, 6))
    pairs = [(node, node + 1) for node in range(size - 1)]
    return size, [*pairs, *pairs, pairs[int(rng.integers(len(pairs)))]]


def outputs(rng: np.random.Generator) -> tuple[int, Pairs]:
    """A tree: one input, several outputs."""
    size = int(rng.integers(3, 9))
    return size, [(int(rng.integers(node)), node) for node in range(1, size)]


def inputs(rng: np.random.Generator) -> tuple[int, Pairs]:
    """A tree: several inputs (weights, say), one output."""
    size = int(rng.integers(3, 9))
    return size, [(node, int(rng.integers(node + 1, size))) for node in range(size - 1)]


def disconnected(rng: np.random.Generator) -> tuple[int, Pairs]:
    size, pairs = residual(rng)
    extra = int(rng.integers(1, 4))
    pairs += [(node, node + 1) for node in range(size, size + extra - 1)]
    return size + extra, pairs


def mask(rng: np.random.Generator) -> tuple[int, Pairs]:
    """A chain whose every node also reads one shared source, as an attention mask."""
    size = int(rng.integers(4, 7))
    pairs = [(node, node + 1) for node in range(1, size)] + [(0, node) for node in range(1, size)]
    return size + 1, [*pairs, (1, 3)]


def crossed(rng: np.random.Generator) -> tuple[int, Pairs]:
    """Two rows of nodes, each reading all of the row before: nothing has one or two neighbours."""
    rows = int(rng.integers(2, 4))
    width = 2 if rows == 3 else 3
    pairs = [
        (row * width + one, (row + 1) * width + other)
        for row in range(rows - 1)
        for one in range(width)
        for other in range(width)
    ]
    pairs += [(0, rows * width - 1), (0, rows * width), (rows * width - 1, rows * width)]
    return rows * width + 1, pairs


def dense(rng: np.random.Generator) -> tuple[int, Pairs]:
    size = int(rng.integers(4, 8))
    share = rng.uniform(0.4, 1.0)
    pairs = [(i, j) for j in range(size) for i in range(j) if rng.uniform() < share]
    return size, pairs


SHAPES: tuple[Callable[[np.random.Generator], tuple[int, Pairs]], ...] = (
    chain,
    diamonds,
    residual,
    parallel,
    outputs,
    inputs,
    disconnected,
    mask,
    crossed,
    dense,
)


def make_problem(seed: int) -> Problem:
    """The problem of a seed: shapes take turns; ranges and slots vary, from many ties to none."""
    rng = np.random.default_rng(seed)
    size, pairs = SHAPES[seed % len(SHAPES)](rng)
    top = int(rng.choice([2, 4, 10, 1000, 10**12]))
    bottom = int(rng.choice([0, 0, -3]))
    configurations = rng.integers(2, 5, size)
    if size > 7:
        configurations = np.minimum(configurations, 3)
    if rng.uniform() < 0.2:
        configurations[rng.integers(size)] = 1
    nodes = tuple(
        Node(f"n{node}", rng.integers(bottom, top, count), rng.integers(bottom, top, count))
        for node, count in enumerate(configurations.tolist())
    )
    edge_memory = rng.choice(["none", "some", "separable"])
    edges = []
    for source, target in pairs:
        slots = [int(rng.integers(1, configurations[end] + 1)) for end in (source, target)]
        memory = np.zeros(slots, dtype=np.int64)
        if edge_memory == "some":
            memory = rng.integers(bottom, top, slots)
        elif edge_memory == "separable":
            memory = np.add.outer(rng.integers(0, top, slots[0]), rng.integers(0, top, slots[1]))
        edges.append(
            Edge.of(
                source,
                target,
                rng.integers(0, slots[0], configurations[source]),
                rng.integers(0, slots[1], configurations[target]),
                memory,
                rng.integers(bottom, top, slots),
            )
        )
    rng.shuffle(edges)  # type: ignore[arg-type]
    return Problem(nodes, tuple(edges))


@pytest.fixture(scope="session")
def random_problem() -> Callable[[int], Problem]:
    """``random_problem(seed)``: always the same problem for the same seed."""
    return make_problem


@pytest.fixture(scope="session")
def positive_problem() -> Callable[[int], Problem]:
    """``positive_problem(seed)``: the random problem of that seed, every cost without its sign."""

    def made(seed: int) -> Problem:
        problem = make_problem(seed)
        nodes = tuple(Node(n.name, abs(n.memory), abs(n.time)) for n in problem.nodes)
        edges = tuple(
            Edge.of(e.source, e.target, e.source_slots, e.target_slots, abs(e.memory), abs(e.time))
            for e in problem.edges
        )
        return Problem(nodes, edges)

    return made


@pytest.fixture(scope="session")
def not_negative() -> Callable[[Problem], bool]:
    """Whether nothing of a problem costs less than nothing: shares are of such frontiers alone."""

    def holds(problem: Problem) -> bool:
        parts = (*problem.nodes, *problem.edges)
        return all(int(part.memory.min()) >= 0 and int(part.time.min()) >= 0 for part in parts)

    return holds


@pytest.fixture(scope="session")
def covers() -> Callable[[Frontier, Frontier, float], bool]:
    """``covers(found, truth, share)``: whether for every point of ``truth`` one of ``found`` is
    within 1 + share of it in both costs; of nothing, in nothing."""

    def holds(found: Frontier, truth: Frontier, share: float) -> bool:
        memory = found.memory[:, None] <= truth.memory * (1 + share) + 1e-6
        time = found.time[:, None] <= truth.time * (1 + share) + 1e-6
        return bool((memory & time).any(axis=0).all())

    return holds


class Interrupting(Protocol):
    def __call__(self, at: int = -1, told: list[str] | None = None) -> Watch: ...


@pytest.fixture(scope="session")
def interrupting() -> Interrupting:
    """``interrupting(at, told)``: a watch that presses Ctrl-C the ``at``-th time that it is told
    how far the search is; what it is told it puts into a list."""

    def watch(at: int = -1, told: list[str] | None = None) -> Watch:
        all_told = [] if told is None else told

        def progress(what: str, done: int, all_: int) -> None:
            assert what
            assert 0 <= done <= all_
            all_told.append(what)
            if len(all_told) == at:
                raise KeyboardInterrupt

        return Watch(progress)

    return watch


# Small training steps, built without TensorFlow, that solvers are compared on.


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


def residual_layers() -> Script:
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


def alike() -> Script:
    """Two layers of the same widths, each with a width of its own within."""
    script = Script()
    values = script.add("x", "Placeholder", (), (48, 96))
    for layer in ("layer0", "layer1"):
        inner = script.variable(f"{layer}/in/w", (96, 192))
        inner = script.matmul(f"{layer}/in/MatMul", values, inner)
        outer = script.variable(f"{layer}/out/w", (192, 96))
        values = script.matmul(f"{layer}/out/MatMul", inner, outer)
    return script


SCRIPTS = {
    "alike": alike,
    "layers": layers,
    "residual": residual_layers,
    "similarities": similarities,
}


def make(script: str, devices: int, space: Space) -> GraphProblem:
    cluster = load_cluster("2x8-v100" if devices == 16 else "8-v100")
    mesh = cluster.mesh(devices)
    cost = ClusterCostModel(cluster, mesh)
    graph = SCRIPTS[script]().graph()
    return graph_problem(AnnotatedGraph.of(graph, mesh, cost, frozenset({"x"}), space=space))


@pytest.fixture(scope="session")
def graph_problem_of() -> Callable[..., GraphProblem]:
    """``graph_problem_of(script, devices)``: a script's problem; the batch is ``x``'s."""
    known: dict[tuple[str, int, Space], GraphProblem] = {}

    def get(script: str, devices: int, space: Space = PLAIN) -> GraphProblem:
        if (script, devices, space) not in known:
            known[script, devices, space] = make(script, devices, space)
        return known[script, devices, space]

    return get
