"""Problems refuse malformed input, and cost strategies as equation 3 says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.errors import OptionError
from tensoropt.search import Edge, Node, Problem


def edge(source: int = 0, target: int = 1, **changed: object) -> Edge:
    fields: dict[str, object] = {
        "source_slots": np.array([0, 1, 0]),
        "target_slots": np.array([0, 1]),
        "memory": np.zeros((2, 2), np.int64),
        "time": np.array([[1, 2], [3, 4]]),
    }
    return Edge.of(source, target, **{**fields, **changed})  # type: ignore[arg-type]


def node(count: int) -> Node:
    return Node("n", 10 * np.arange(count), np.arange(count)[::-1].copy())


def test_cost_adds_nodes_and_edges() -> None:
    problem = Problem((node(3), node(2)), (edge(), edge(memory=np.array([[0, 7], [0, 0]]))))
    assert problem.strategies == 6
    # memory 20 + 10 + (0 + 7), time 0 + 0 + (2 + 2)
    assert problem.cost((2, 1)) == (37, 4)
    memory, time = problem.costs(np.array([[2, 1], [1, 0]]))
    assert memory.tolist() == [37, 10]
    assert time.tolist() == [4, 1 + 1 + 3 + 3]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Node("n", np.array([0.5]), np.array([1])), "whole nanoseconds"),
        (lambda: Node("n", np.zeros(0, np.int64), np.zeros(0, np.int64)), "at least one"),
        (
            lambda: Node("n", np.array([1, 2]), np.array([1])),
            r"the same shape. Got \(2,\) and \(1,\)",
        ),
        (lambda: Node("n", np.array([2**63], np.uint64), np.array([1])), "fits in int64"),
        (lambda: edge(1, 1), "topological order"),
        (lambda: edge(-1, 1), "topological order"),
        (lambda: edge(source_slots=np.array([0, 2, 0])), "0 to 1. Got 0 to 2"),
        (lambda: edge(target_slots=np.array([0, -1])), "Got -1 to 0"),
        (lambda: edge(memory=np.zeros((2, 3), np.int64)), "the same shape"),
        (lambda: Problem((), ()), "at least one node"),
        (lambda: Problem((node(3),), (edge(),)), "joins two of the 1 nodes"),
        (lambda: Problem((node(2), node(2)), (edge(),)), "3 slots for the 2 configurations"),
        (lambda: Problem((Node("n", np.array([2**62]), np.array([0])),), ()), "larger units"),
    ],
)
def test_malformed_input_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make()


def test_malformed_strategies_are_refused() -> None:
    problem = Problem((node(3), node(2)), (edge(),))
    with pytest.raises(OptionError, match=r"shape \[strategies, 2\]"):
        problem.cost((0,))
    with pytest.raises(OptionError, match="configurations 0 to 1"):
        problem.cost((0, 2))
    with pytest.raises(OptionError, match="shape"):
        problem.costs([0, 0])
    with pytest.raises(OptionError, match=r"configurations 0 to 1\. Got -1"):
        problem.costs([[0, -1]])


def test_costs_cannot_be_changed_afterwards() -> None:
    problem = Problem((node(3), node(2)), (edge(),))
    with pytest.raises(ValueError, match="read-only"):
        problem.nodes[0].memory[0] = 5
