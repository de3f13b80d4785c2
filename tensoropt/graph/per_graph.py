"""Results of functions of a graph, cached for as long as the graph exists."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from tensoropt.graph.operator import Graph

__all__ = ["per_graph"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def per_graph(
    function: Callable[Concatenate[Graph, _Arguments], _Result],
) -> Callable[Concatenate[Graph, _Arguments], _Result]:
    """Cache the results of a function of a graph.

    Args:
        function: a function of a graph and of hashable arguments. Its result is shared by all
            callers, so none may change it. It must not refer to the graph.
    """
    results: WeakKeyDictionary[Graph, dict[Hashable, _Result]] = WeakKeyDictionary()

    @wraps(function)
    def cached(graph: Graph, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        graph_results = results.setdefault(graph, {})
        key = arguments, *named.items()
        if key not in graph_results:
            graph_results[key] = function(graph, *arguments, **named)
        return graph_results[key]

    return cached
