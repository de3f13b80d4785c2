"""The positions of a graph's iterators in their data, as bytes of a checkpoint.

TensorFlow saves an iterator's state to a file, with the elements in its shuffle buffers. The state
is restored before the first draw, because a script starts its iterators after it has restored.

A shuffle's state includes the seeds of the epochs to come. A batch drops its input as soon as it
has read all of it: if the last batch of an epoch is a partial one, TensorFlow saves no state of the
shuffle below from that batch to the next, and a restored iterator shuffles the epochs to come in
another order. `repeatable_operators` takes operators that keep their input.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tensoropt.graph.from_tensorflow import called_functions, function_closure, references
from tensoropt.temporary_folder import temporary_folder

__all__ = ["GETS_NEXT", "ITERATORS", "Positions", "digest_of"]

GETS_NEXT = frozenset({"IteratorGetNext", "IteratorGetNextSync"})
"""Types of operators that draw an element."""

ITERATORS = frozenset({"Iterator", "IteratorV2", "OneShotIterator"})
"""Types of iterators that have a name of their own in the graph."""

_ENDS = (".index", ".data-00000-of-00001")
_BELOW_REPEAT = re.compile(rb"Repeat\[\d+\]::")  # the state of an epoch that has not ended
_NUMBER = re.compile(r"_\d+$|(?<=^_make_dataset_)\w+$")
_IGNORE_EXTERNAL_STATE = 1  # the counters of random operators in maps start anew


class Positions:
    """The positions of the iterators of one graph."""

    def __init__(self, graph: tf.Graph, session: tf.compat.v1.Session) -> None:
        self._graph = graph
        self._session = session
        self._drawn: dict[str, tuple[tf.Operation, str]] = {}
        self._waiting: dict[str, str] = {}  # digests of the data sets, by iterator
        self._state: tuple[bytes, ...] = ()
        self._saves: dict[tuple[str, ...], tuple[tf.Tensor, tf.Operation]] = {}
        self._has_warned = False

    def before_draw(self, iterators: Mapping[str, tuple[tf.Operation, str]]) -> None:
        """Restore the iterators from which the next run draws, before their first draw.

        Args:
            iterators: the iterators, and digests of their data sets, by name.
        """
        for name in iterators.keys() - self._drawn.keys():
            iterator, digest = self._drawn[name] = iterators[name]
            if self._waiting.pop(name, None) == digest:
                self._restore_one(name, iterator)

    def saved(self) -> list[bytes]:
        """Return the positions; an empty list without iterators, or where TensorFlow saves none."""
        names = tuple(sorted(self._drawn))
        if not names:
            # A job that saves before its first draw passes on the position that it has restored.
            return [json.dumps(self._waiting).encode(), *self._state] if self._waiting else []
        if names not in self._saves:
            with self._graph.as_default():
                prefix = tf.compat.v1.placeholder(tf.string, [])
                states = [
                    tf.raw_ops.SerializeIterator(
                        resource_handle=self._drawn[name][0].outputs[0],
                        external_state_policy=_IGNORE_EXTERNAL_STATE,
                    )
                    for name in names
                ]
                save = tf.raw_ops.SaveV2(
                    prefix=prefix,
                    tensor_names=list(names),
                    shape_and_slices=[""] * len(names),
                    tensors=states,
                )
            self._saves[names] = prefix, save
        prefix, save = self._saves[names]
        digests = {name: self._drawn[name][1] for name in names}
        with temporary_folder() as folder:
            path = f"{folder}/state"
            try:
                self._session.run(save, {prefix: path})
            except (tf.errors.UnimplementedError, tf.errors.FailedPreconditionError) as error:
                self._warn(error)
                return []
            state = [Path(path + end).read_bytes() for end in _ENDS]
        if _BELOW_REPEAT.search(state[1]) and b"Shuffle" not in state[1]:
            self._warn_of_shuffles(names)
        return [json.dumps(digests).encode(), *state]

    def restore(self, position: Sequence[bytes]) -> None:
        """Restore positions of `saved` before the first draw from each iterator."""
        if position:
            digests, *state = position
            self._waiting, self._state = json.loads(digests), tuple(state)

    def _restore_one(self, name: str, iterator: tf.Operation) -> None:
        with temporary_folder() as folder:
            path = f"{folder}/state"
            for end, content in zip(_ENDS, self._state, strict=True):
                Path(path + end).write_bytes(content)
            with self._graph.as_default():
                (state,) = tf.raw_ops.RestoreV2(
                    prefix=path, tensor_names=[name], shape_and_slices=[""], dtypes=[tf.variant]
                )
                restore = tf.raw_ops.DeserializeIterator(
                    resource_handle=iterator.outputs[0], serialized=state
                )
            self._session.run(restore)

    def _warn_of_shuffles(self, iterators: Sequence[str]) -> None:
        if any(_reshuffles(self._graph, self._drawn[name][0]) for name in iterators):
            sys.stderr.write(
                "tensoropt: a checkpoint at the end of an epoch lacks the order of later epochs, "
                "because TensorFlow saves none for a shuffle whose data have been read. A job that "
                "goes on shuffles later epochs in another order. Save before the last batch of an "
                "epoch, or drop the remainder\n"
            )

    def _warn(self, error: tf.errors.OpError) -> None:
        if not self._has_warned:
            self._has_warned = True
            reason = (error.message.splitlines() or [""])[0]
            sys.stderr.write(
                "tensoropt: a checkpoint has no position in the data, because TensorFlow cannot "
                f"save an iterator: {reason}. A job that goes on reads the data from the start\n"
            )


def digest_of(script: tf.Graph, iterator: str) -> str:
    """Return a digest of an iterator and of the data sets with which the script starts it.

    It is the same in all processes, although TensorFlow numbers functions in each process anew.
    """
    nodes = [each.node_def for each in _data_sets(script.get_operation_by_name(iterator)).values()]
    called = [name for node in nodes for name in called_functions(node.attr)]
    bodies = [each.node_def for each in function_closure(script, called).values()]
    digest = hashlib.sha256()
    for part in sorted(_without_numbers(body) for body in (nodes, *bodies)):
        digest.update(part)
    return digest.hexdigest()


def _without_numbers(nodes: Iterable[Any]) -> bytes:
    """Return node definitions as bytes, without the numbers of the functions that they call."""
    definitions = []
    for node in nodes:
        definition = tf.compat.v1.NodeDef.FromString(node.SerializeToString())
        for reference in references(definition.attr):
            reference.name = _NUMBER.sub("", reference.name)
        definitions.append(definition.SerializeToString(deterministic=True))
    return b"".join(sorted(definitions))


def _reshuffles(graph: tf.Graph, iterator: tf.Operation) -> bool:
    """Whether a data set of the iterator shuffles each epoch in another order."""
    nodes = [operation.node_def for operation in _data_sets(iterator).values()]
    factories = {node.attr["dataset_factory"].func.name for node in nodes}
    for function in graph.as_graph_def().library.function:
        if function.signature.name in factories:
            nodes += function.node_def
    return any(
        node.op.startswith("Shuffle") and node.attr["reshuffle_each_iteration"].b for node in nodes
    )


def _data_sets(iterator: tf.Operation) -> dict[str, tf.Operation]:
    """Return an iterator and the operators of its data sets, by name."""
    starts = iterator.outputs[0].consumers()
    waiting = [iterator, *(operation for operation in starts if operation.type == "MakeIterator")]
    reached = {operation.name: operation for operation in waiting}
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op.name not in reached:
                reached[tensor.op.name] = tensor.op
                waiting.append(tensor.op)
    return reached
