"""Tables in a step: what is looked up in them is found before the step, and fed to it.

A table belongs to the script's process. Keras's ``StringLookup`` and ``TextVectorization`` look up
what a step is given, so that part of it runs first, eagerly, on every rank for the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.tensorflow_private import func_graph

__all__ = ["Lookups", "lookups_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """What of a step runs before it.

    Attributes:
        nodes: names of its operators.
        outputs: what the step reads of it: names of tensors, with their specs.
        feeds: the step's inputs that it reads, by their numbers.
        call: from the values of these to those of the outputs.
    """

    nodes: frozenset[str]
    outputs: Mapping[str, tf.TensorSpec]
    feeds: tuple[int, ...]
    call: Any

    def values(self, given: Sequence[Any]) -> list[Any]:
        """What is looked up.

        Args:
            given: all arrays that the step is called with.
        """
        if not self.outputs:
            return []
        found = self.call(*(tf.convert_to_tensor(given[number]) for number in self.feeds))
        return [np.asarray(each) for each in tf.nest.flatten(found)]


def lookups_of(traced: func_graph.FuncGraph, variables: Mapping[int, Any]) -> Lookups:
    """What of a traced step looks up something in tables, and all that this needs.

    Args:
        traced: the step.
        variables: those that it captures, by the identity of their handles.

    Raises:
        GraphError: if what is looked up depends on a variable, or a resource that the step captures
            is no table (an iterator, a list of tensors).
    """
    tables = [
        (external, internal)
        for external, internal in traced.captures
        if external.dtype in (tf.resource, tf.variant) and id(external) not in variables
    ]
    roots: list[tf.Operation] = []
    for _, internal in tables:
        for each in internal.consumers():
            if not each.type.startswith("LookupTable"):
                raise _refused(internal)
            roots.append(each)
    roots = sorted(set(roots), key=lambda each: str(each.name))
    needed = _needed(roots)
    handles = {internal.op for each, internal in traced.captures if id(each) in variables}
    for each in roots:
        if not handles.isdisjoint(_needed([each])) or not each.outputs:
            raise _refused(next(t for t in each.inputs if t.dtype == tf.resource))
    captured = {internal.op: external for external, internal in traced.captures}
    inputs = [each for each in traced.inputs if each.op not in captured]
    feeds = tuple(number for number, each in enumerate(inputs) if each.op in needed)
    outputs = [tensor for each in roots for tensor in each.outputs]
    specs = {each.name: tf.TensorSpec(each.shape, each.dtype) for each in outputs}
    nodes = frozenset(str(each.name) for each in needed)
    if not roots:
        return Lookups(frozenset(), {}, (), None)
    constant = [each for each in captured if each in needed]
    definition = traced.as_graph_def()
    kept = [node for node in definition.node if node.name in nodes]
    del definition.node[:]
    definition.node.extend(kept)
    whole = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(definition, name=""), []
    )
    read = [inputs[number].name for number in feeds] + [each.outputs[0].name for each in constant]
    function = whole.prune(
        [whole.graph.get_tensor_by_name(name) for name in read],
        [whole.graph.get_tensor_by_name(each.name) for each in outputs],
    )
    values = [captured[each] for each in constant]
    return Lookups(nodes, specs, feeds, lambda *given: function(*given, *values))


def _needed(roots: Sequence[tf.Operation]) -> set[tf.Operation]:
    """Some operations and what their values depend on."""
    found: set[tf.Operation] = set()
    waiting = list(roots)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [each.op for each in operation.inputs]
    return found


def _refused(internal: tf.Tensor) -> GraphError:
    for each in internal.consumers():
        if each.type.startswith("Write") and each.type.endswith("Summary"):
            return GraphError(
                "a step computes, and the script writes summaries. Got tf.summary in a step, "
                f"{each.name!r}; return the value from the step, and write its summary after it."
            )
    return GraphError(
        "a step captures variables and tensors, and tables in which what it is given is looked up. "
        f"Got another resource, {internal.name!r}, as an iterator, a list of tensors or a table "
        "that is changed is; pass what it gives to the step as an argument."
    )
