"""Bodies of loops, conditionals and data pipelines, copied from the script's graph.

TensorFlow's gradient of a loop rewrites the loop and its body. Operators of several ranks or
programs in one graph therefore have bodies of their own, each copied under a new name.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import tensorflow as tf

__all__ = ["Functions", "called_functions", "job_seeds", "seed_operator"]

_copies = itertools.count()


def called_functions(attributes: Mapping[str, tf.compat.v1.AttrValue]) -> list[str]:
    """Names of the functions that an operator with these attributes calls."""
    return [reference.name for reference in _references(attributes)]


def _references(
    attributes: Mapping[str, tf.compat.v1.AttrValue],
) -> Iterator[tf.compat.v1.NameAttrList]:
    for value in attributes.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func
        elif kind == "list":
            yield from value.list.func


def job_seeds(name: str, seed: int) -> tuple[int, int]:
    """The seeds of an unseeded random operator, from its name and the job's seed."""
    digest = hashlib.sha256(name.encode()).digest()
    return seed, int.from_bytes(digest[:4], "big") >> 1


def seed_operator(
    attributes: MutableMapping[str, tf.compat.v1.AttrValue], name: str, seed: int
) -> None:
    """Give an unseeded random operator the job's seed, so that all ranks draw alike."""
    if "seed" not in attributes or "seed2" not in attributes:
        return
    if attributes["seed"].i == 0 and attributes["seed2"].i == 0:
        for key, value in zip(("seed", "seed2"), job_seeds(name, seed), strict=True):
            given = tf.compat.v1.AttrValue(i=value)
            if isinstance(attributes, dict):
                attributes[key] = given
            else:
                attributes[key].CopyFrom(given)


class Functions:
    """The function library of a script's graph, read once it is needed."""

    def __init__(self, script: tf.Graph) -> None:
        self._script = script
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:  # the script's graph may have grown
            library = self._script.as_graph_def().library
            self._read = {function.signature.name: function for function in library.function}
        return self._read[name]

    def closure(self, names: list[str]) -> list[str]:
        """Some functions and all that they call, directly or not."""
        waiting, found = list(names), []
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.append(name)
            for node in self[name].node_def:
                waiting += called_functions(node.attr)
                if node.op in self._read:
                    waiting.append(node.op)
        return found

    def copy_into(
        self, target: tf.Graph, attributes: Mapping[str, tf.compat.v1.AttrValue], seed: int
    ) -> dict[str, tf.compat.v1.AttrValue]:
        """An operator's attributes, with the functions they name copied under new names.

        Args:
            target: graph to copy them into.
            attributes: the operator's.
            seed: the job's, for unseeded random operators in the functions.
        """
        called = called_functions(attributes)
        if not called:
            return dict(attributes)
        number = next(_copies)
        renamed = {name: f"{name}_copy{number}" for name in self.closure(called)}
        definition = tf.compat.v1.GraphDef()
        definition.versions.CopyFrom(self._script.as_graph_def().versions)
        for name, new in renamed.items():
            function = definition.library.function.add()
            function.CopyFrom(self[name])
            function.signature.name = new
            for node in function.node_def:
                node.op = renamed.get(node.op, node.op)
                seed_operator(node.attr, f"{name}/{node.name}", seed)
                for reference in _references(node.attr):
                    reference.name = renamed[reference.name]
        with target.as_default():
            tf.graph_util.import_graph_def(definition, name="")
        copied = {}
        for name, value in attributes.items():
            copied[name] = tf.compat.v1.AttrValue()
            copied[name].CopyFrom(value)
        for reference in _references(copied):
            reference.name = renamed[reference.name]
        return copied
