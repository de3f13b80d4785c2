"""The function library of a script's graph, without the rest of the graph."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

__all__ = ["called_functions", "function_closure", "references"]

_read: weakref.WeakKeyDictionary[tf.Graph, dict[str, Any]] = weakref.WeakKeyDictionary()


def called_functions(attributes: Mapping[str, tf.compat.v1.AttrValue]) -> list[str]:
    """Names of the functions that an operator with these attributes calls."""
    return [reference.name for reference in references(attributes)]


def references(
    attributes: Mapping[str, tf.compat.v1.AttrValue],
) -> Iterator[tf.compat.v1.NameAttrList]:
    """The attributes' references to functions, each of which may be changed in place.

    They come by the attributes' names: a protobuf's own order differs between processes.
    """
    for _, value in sorted(attributes.items()):
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func
        elif kind == "list":
            yield from value.list.func


def function_closure(script: tf.Graph, names: Iterable[str]) -> dict[str, Any]:
    """The definitions of some functions of a graph, and of all that they call, by name.

    Functions are never changed, so the library is read again only where one is missing: TensorFlow
    has no way to read it without the whole graph.
    """
    waiting = list(names)
    found: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        library = _library(script, name)
        if name not in library:
            continue
        found[name] = library[name]
        for node in library[name].node_def:
            waiting += called_functions(node.attr)
            if node.op in library:
                waiting.append(node.op)
    return found


def _library(script: tf.Graph, name: str) -> dict[str, Any]:
    """The library by name, read again if it lacks a function."""
    if name not in _read.get(script, {}):
        functions = script.as_graph_def().library.function
        _read[script] = {function.signature.name: function for function in functions}
    return _read[script]
