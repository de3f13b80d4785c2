"""Random search problems of all the shapes that the eliminations must handle, and what several
tests ask of them.

Here, because test folders are not packages that a test could import from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.search import Edge, Frontier, Node, Problem

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
            Edge(
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
            Edge(e.source, e.target, e.source_slots, e.target_slots, abs(e.memory), abs(e.time))
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
