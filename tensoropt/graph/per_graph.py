"""What is worked out of a graph once, and kept for as long as the graph is."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from tensoropt.graph.operator import Graph

__all__ = ["per_graph"]

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")


def per_graph(
    function: Callable[Concatenate[Graph, _Arguments], _Found],
) -> Callable[Concatenate[Graph, _Arguments], _Found]:
    """Let a function of a graph remember what it found.

    Args:
        function: of a graph, and of hashable arguments. What it returns is for all callers, so none
            may change it, and does not refer to the graph.
    """
    known: WeakKeyDictionary[Graph, dict[Hashable, _Found]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(
        graph: Graph, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Found:
        of_graph = known.setdefault(graph, {})
        key = arguments, *named.items()
        if key not in of_graph:
            of_graph[key] = function(graph, *arguments, **named)
        return of_graph[key]

    return remembered
