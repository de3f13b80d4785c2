"""Data pipelines: every process runs them on its own, alike, and feeds each rank its slice.

What a script's iterators yield is drawn here, outside of the parallel graph, in a copy of the
pipelines; the elements then enter that graph as fed tensors do, data parallel.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tensoropt.execution.functions import seed_operator
from tensoropt.frontend.job import Job, current
from tensoropt.graph.from_tensorflow import ELEMENT_TYPES, PIPELINE_TYPES, fed_operator

__all__ = ["Pipelines", "pipelines_of"]

Array = np.ndarray[Any, Any]


class Pipelines:
    """The pipelines of one graph, with the places that their iterators have come to.

    Args:
        script: the script's graph.
        seed: the job's, for shuffles and random operators that have none.
    """

    def __init__(self, script: tf.Graph, seed: int) -> None:
        self._script = weakref.ref(script)  # this is kept as long as the graph is
        self._seed = seed
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph)
        self._needed: dict[tuple[str, ...], _Needed] = {}

    def draw(
        self, roots: Sequence[str], fed: Iterable[str], feeds: Mapping[str, Any]
    ) -> dict[str, Array]:
        """What the iterators yield for one run; also starts those that the run starts.

        Args:
            roots: names of the operators to run.
            fed: of what the script feeds, by `fed_operator`; nothing beyond it is needed.
            feeds: values of the placeholders that a pipeline reads, by tensor name.

        Returns:
            The elements, by `fed_operator`.

        Raises:
            tf.errors.OutOfRangeError: at the end of the data.
        """
        key = (*roots, "", *sorted(fed))
        if key not in self._needed:
            self._needed[key] = self._find(roots, frozenset(fed))
        needed = self._needed[key]
        if not needed.tensors and not needed.starts:
            return {}
        feed_dict = {name: feeds[name] for name in needed.placeholders if name in feeds}
        elements, _ = self._session.run([dict(needed.tensors), list(needed.starts)], feed_dict)
        return {name: np.asarray(value) for name, value in elements.items()}

    def _find(self, roots: Sequence[str], fed: frozenset[str]) -> _Needed:
        script = self._script()
        assert script is not None
        found = [
            operation
            for operation in _behind(script, roots, fed, PIPELINE_TYPES)
            if operation.type in PIPELINE_TYPES
        ]
        tensors = {
            fed_operator(tensor): tensor.name
            for operation in found
            if operation.type in ELEMENT_TYPES
            for tensor in operation.outputs
            if fed_operator(tensor) not in fed
        }
        starts = tuple(op.name for op in found if op.type not in ELEMENT_TYPES)
        behind = _behind(script, [operation.name for operation in found], frozenset(), frozenset())
        self._copy(script, behind)
        placeholders = tuple(
            operation.outputs[0].name for operation in behind if operation.type == "Placeholder"
        )
        return _Needed(tensors, starts, placeholders)

    def _copy(self, script: tf.Graph, operations: Sequence[tf.Operation]) -> None:
        """Add what is not there yet to the graph that is run here."""
        there = {operation.name for operation in self._graph.get_operations()}
        new = {operation.name for operation in operations} - there
        if not new:
            return
        whole = script.as_graph_def()
        definition = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
        definition.node.extend(node for node in whole.node if node.name in new)
        _seed(definition.node, self._seed)
        for function in definition.library.function:
            _seed(function.node_def, self._seed)
        for node in definition.node:
            node.device = ""
            node.attr.pop("_class", None)  # colocation with what is not here
        mapped = {}
        for node in definition.node:
            for name in node.input:
                producer = name.lstrip("^").partition(":")[0]
                if producer in there:
                    mapped[name] = (
                        self._graph.get_operation_by_name(producer)
                        if name.startswith("^")
                        else self._graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
                    )
        with self._graph.as_default():
            tf.graph_util.import_graph_def(definition, mapped, name="")


@dataclass(frozen=True, slots=True)
class _Needed:
    """What one set of roots takes of the pipelines.

    Attributes:
        tensors: tensor names of elements by `fed_operator`.
        starts: operators that start iterators anew.
        placeholders: tensor names of what the script may feed to them.
    """

    tensors: dict[str, str]
    starts: tuple[str, ...]
    placeholders: tuple[str, ...]


_known: weakref.WeakKeyDictionary[tf.Graph, tuple[Job, Pipelines]] = weakref.WeakKeyDictionary()


def pipelines_of(script: tf.Graph) -> Pipelines:
    """The pipelines of a graph in this job."""
    job = current()
    if script not in _known or _known[script][0] is not job:
        _known[script] = (job, Pipelines(script, job.seed))
    return _known[script][1]


def _behind(
    script: tf.Graph, roots: Sequence[str], fed: frozenset[str], ends: frozenset[str]
) -> list[tf.Operation]:
    """The operators that some need, themselves included, not looking beyond fed ones or ends."""
    waiting = [script.get_operation_by_name(name) for name in roots]
    found = {operation.name: operation for operation in waiting}
    while waiting:
        operation = waiting.pop()
        if operation.type in ends:
            continue
        inputs = [tensor.op for tensor in operation.inputs if fed_operator(tensor) not in fed]
        for needed in [*inputs, *operation.control_inputs]:
            if needed.name not in found:
                found[needed.name] = needed
                waiting.append(needed)
    return list(found.values())


def _seed(nodes: Iterable[Any], seed: int) -> None:
    """Let unseeded shuffles and random operators draw alike in all processes of the job."""
    named = {node.name: node for node in nodes}
    for node in named.values():
        seed_operator(node.attr, node.name, seed)
        definition = op_def_registry.get(node.op)
        arguments = [] if definition is None else [a.name for a in definition.input_arg]
        if "seed" not in arguments or "seed2" not in arguments:
            continue
        given = [
            named.get(node.input[arguments.index(name)].partition(":")[0])
            for name in ("seed", "seed2")
        ]
        digest = hashlib.sha256(node.name.encode()).digest()
        if all(c is not None and c.op == "Const" and not _value(c) for c in given):
            for constant, value in zip(
                given, (seed, int.from_bytes(digest[:4], "big") >> 1), strict=True
            ):
                assert constant is not None
                constant.attr["value"].tensor.CopyFrom(
                    tf.make_tensor_proto(value, dtype=tf.int64, shape=())
                )


def _value(constant: Any) -> int:
    return int(tf.make_ndarray(constant.attr["value"].tensor))
