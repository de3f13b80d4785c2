"""Values remembered for a graph: each is computed once, and goes when the graph goes."""

from __future__ import annotations

import gc
import weakref

from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.per_graph import per_graph
from tensoropt.tensor_spec import TensorSpec


class _Found:
    """What a weak reference may be to."""


def _graph(*names: str) -> Graph:
    spec = TensorSpec((2,), "float32")
    return Graph({name: Operator(name, "Placeholder", (), (), (spec,)) for name in names})


def test_a_function_is_called_once_for_a_graph_and_arguments() -> None:
    calls = []

    @per_graph
    def longer(graph: Graph, by: int = 0) -> int:
        calls.append(by)
        return len(graph) + by

    one, two = _graph("a"), _graph("a", "b")
    assert [longer(one), longer(one, 3), longer(two), longer(two, by=3)] == [1, 4, 2, 5]
    assert [longer(one), longer(one, 3), longer(two), longer(two, by=3)] == [1, 4, 2, 5]
    assert calls == [0, 3, 0, 3]
    assert longer.__name__ == "longer"


def test_what_was_found_goes_with_the_graph() -> None:
    found = per_graph(lambda _: _Found())
    graph = _graph("a")
    kept = weakref.ref(found(graph))
    gc.collect()
    assert kept() is not None
    del graph
    gc.collect()
    assert kept() is None
