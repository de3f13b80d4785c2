"""The functions of a script's graph, without the rest of the graph."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

__all__ = ["called_functions", "function_closure", "references"]

_libraries: weakref.WeakKeyDictionary[tf.Graph, dict[str, Any]] = weakref.WeakKeyDictionary()


def called_functions(attributes: Mapping[str, tf.compat.v1.AttrValue]) -> list[str]:
    """Return the names of the functions that an operator with these attributes calls."""
    return [reference.name for reference in references(attributes)]


def references(
    attributes: Mapping[str, tf.compat.v1.AttrValue],
) -> Iterator[tf.compat.v1.NameAttrList]:
    """Yield the attributes' references to functions, which may be changed in place.

    They are sorted by the attributes' names, since the order of a protobuf differs between
    processes.
    """
    for _, value in sorted(attributes.items()):
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func
        elif kind == "list":
            yield from value.list.func


def function_closure(script: tf.Graph, names: Iterable[str]) -> dict[str, Any]:
    """Return the definitions of some functions, and of all functions they call, by name.

    The library is read again only if a function is missing: functions are never changed, and
    TensorFlow can only read the whole graph.
    """
    waiting = list(names)
    definitions: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name in definitions:
            continue
        library = _library(script, name)
        if name not in library:
            continue
        definitions[name] = library[name]
        for node in library[name].node_def:
            waiting += called_functions(node.attr)
            if node.op in library:
                waiting.append(node.op)
    return definitions


def _library(script: tf.Graph, name: str) -> dict[str, Any]:
    """Return the library by name. It is read again if it lacks a function."""
    if name not in _libraries.get(script, {}):
        functions = script.as_graph_def().library.function
        _libraries[script] = {function.signature.name: function for function in functions}
    return _libraries[script]
