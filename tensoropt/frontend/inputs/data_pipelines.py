"""Data pipelines of a graph: each rank uses its slice of the batches.

A script's iterators and queues run in a copy of the pipelines, outside of the parallel graph. Their
elements are fed to that graph, which splits them by examples. Threads that fill queues use the
copy, too, without the other ranks. Every process draws all elements; maps of iterators run for the
rank's examples alone where that is possible (`IteratorShares`).
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.lowering.functions import seed_operator
from tensoropt.frontend.inputs.batches.waiting import InputWait
from tensoropt.frontend.inputs.iterator_positions import (
    GETS_NEXT,
    ITERATORS,
    Positions,
    digest_of,
)
from tensoropt.frontend.inputs.iterator_shares import Drawn, IteratorShares, RowsOf
from tensoropt.frontend.inputs.repeatable_operators import (
    draw_in_order,
    keep_shuffles_below_batches,
)
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.job.plan_executor import session_config
from tensoropt.graph.from_tensorflow import (
    ELEMENT_TYPES,
    PIPELINE_TYPES,
    QUEUE_ACTIONS,
    fed_operator,
)
from tensoropt.graph.operator import VARIABLE_TYPES
from tensoropt.tensorflow_private import op_def_registry

__all__ = ["Pipelines", "fills_queues", "pipelines_of"]

Array = np.ndarray[Any, Any]


class Pipelines:
    """The pipelines of one graph, with the positions of their iterators.

    Args:
        script: the script's graph.
        seed: the job's seed, for unseeded shuffles and random operators.
        config: the configuration of the session that runs them.
        in_order: whether parallel maps draw random numbers in the same order in all processes.
    """

    def __init__(
        self,
        script: tf.Graph,
        seed: int,
        config: tf.compat.v1.ConfigProto | None = None,
        in_order: bool = False,
    ) -> None:
        self._script = weakref.ref(script)  # the graph keeps this alive
        self._seed = seed
        self._in_order = in_order
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        self._needed: dict[tuple[str, ...], _Needed] = {}
        self._copied: dict[str, tf.Operation] = {}  # by original name; later copies may be renamed
        self._initialised: set[str] = set()
        self._positions = Positions(self._graph, self._session)
        self._shares = IteratorShares(self._session)
        self._wait = InputWait()
        self._lock = threading.RLock()  # threads fill queues

    def draw(
        self,
        roots: Sequence[str],
        fed: Iterable[str],
        feeds: Mapping[str, Any],
        rows_of: RowsOf | None = None,
    ) -> dict[str, Any]:
        """The next elements of the iterators, for one run; also runs initializers among the roots.

        Args:
            roots: names of the operators to run.
            fed: names of the tensors that the script feeds, by `fed_operator`; operators behind
                them are not needed.
            feeds: values of the placeholders that a pipeline reads, by tensor name.
            rows_of: the rows that this process reads; None if it reads whole batches.

        Returns:
            The elements, or shares of them, by `fed_operator`.

        Raises:
            tf.errors.OutOfRangeError: at the end of the data.
        """
        fed = frozenset(fed)
        key = (*roots, "", *sorted(fed))
        with self._lock:
            if key not in self._needed:
                self._needed[key] = self._find(roots, fed)
            needed = self._needed[key]
        if not needed.tensors and not needed.starts:
            return {}
        feed_dict = {
            tensor: feeds[name] for name, tensor in needed.placeholders.items() if name in feeds
        }
        shared = self._shares.among(needed.drawn, rows_of is not None)
        self._positions.before_draw({**needed.iterators, **shared.iterators})
        tensors = {n: t for n, t in needed.tensors.items() if n not in shared.names}
        starts = [*needed.starts, *self._shares.starts(needed.starts)]
        try:
            with self._wait.measured(self):
                elements, *drawn = self._session.run([tensors, shared.batches, starts], feed_dict)
                arrays = {name: np.asarray(value) for name, value in elements.items()}
                mapped = shared.mapped(self._session, drawn[0], arrays, rows_of)
        except tf.errors.OutOfRangeError:
            if shared.elements and rows_of is not None:  # on all ranks
                self._shares.lines.tell_wait("iterators", self._wait, current().running)
            raise
        return {name: value for name, value in mapped.items() if name not in fed}

    def position(self) -> list[bytes]:
        """The position of all iterators that have been drawn from; see `Positions`."""
        return self._positions.saved()

    def go_on_from(self, position: Sequence[bytes]) -> None:
        """Let iterators that have not been drawn from go on from a position of `position`."""
        self._positions.restore(position)
        self._shares.go_on_from(position)

    def _find(self, roots: Sequence[str], fed: frozenset[str]) -> _Needed:
        script = self._script()
        assert script is not None
        pipelines = [
            operation
            for operation in _behind(script, roots, fed, PIPELINE_TYPES)
            if operation.type in PIPELINE_TYPES
        ]
        behind = _behind(script, [op.name for op in pipelines], frozenset(), frozenset())
        initializers = _initializers(script, behind)
        self._copy(script, behind + _behind(script, initializers, frozenset(), frozenset()))
        fresh = [name for name in initializers if name not in self._initialised]
        if fresh:
            self._session.run([self._copied[name] for name in fresh])
            self._initialised.update(fresh)
        drawn = {op.inputs[0].op.name for op in pipelines if _draws(op)}
        started = {
            op.inputs[1].op.name
            for op in pipelines
            if op.type == "MakeIterator" and op.inputs[1].op.type in ITERATORS
        }
        copies = {
            name: (self._copied[name], digest_of(script, name)) for name in sorted(drawn | started)
        }
        for name, (copied, digest) in copies.items():
            if name in started or copied.type == "OneShotIterator":
                self._shares.add(script, name, copied, digest)
        return _Needed(
            tensors={
                fed_operator(tensor): self._copied[operation.name].outputs[tensor.value_index]
                for operation in pipelines
                if operation.type in ELEMENT_TYPES
                for tensor in operation.outputs
                if fed_operator(tensor) not in fed
            },
            starts=tuple(self._copied[op.name] for op in pipelines if op.type not in ELEMENT_TYPES),
            iterators={name: copies[name] for name in sorted(drawn)},
            drawn=tuple(
                Drawn(op.name, op.inputs[0].op.name, tuple(map(fed_operator, op.outputs)))
                for op in pipelines
                if _draws(op)
            ),
            placeholders={
                operation.outputs[0].name: self._copied[operation.name].outputs[0]
                for operation in behind
                if operation.type == "Placeholder"
            },
        )

    def _copy(self, script: tf.Graph, operations: Sequence[tf.Operation]) -> None:
        """Add operators to the copy, except those that it already has."""
        new = {operation.name for operation in operations} - set(self._copied)
        if not new:
            return
        whole = script.as_graph_def()
        definition = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
        definition.node.extend(node for node in whole.node if node.name in new)
        _seed(definition.node, self._seed)
        keep_shuffles_below_batches(definition.node, in_function=False)
        if self._in_order:
            draw_in_order(script, definition.node, in_function=False)
        for function in definition.library.function:
            _seed(function.node_def, self._seed)
            if self._in_order:
                draw_in_order(script, function.node_def, in_function=True)
            keep_shuffles_below_batches(function.node_def, in_function=True)
        for node in definition.node:
            node.device = ""
            node.attr.pop("_class", None)  # colocation with operators that are not copied
        mapped = {}
        for node in definition.node:
            for name in node.input:
                producer, _, index = name.lstrip("^").partition(":")
                if producer in self._copied:
                    there = self._copied[producer]
                    mapped[name] = there if name[0] == "^" else there.outputs[int(index or 0)]
        names = [node.name for node in definition.node]
        with self._graph.as_default():
            copies = tf.graph_util.import_graph_def(definition, mapped, names, name="")
        self._copied.update(zip(names, copies, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Needed:
    """The operators of the pipelines that one set of roots needs.

    Attributes:
        tensors: the elements, by `fed_operator`.
        starts: operators that restart iterators, or fill or close queues.
        iterators: the copies of the iterators, and digests of their data sets, by name.
        drawn: the operators that draw from them.
        placeholders: placeholders of the pipelines, by tensor name in the script.
    """

    tensors: dict[str, tf.Tensor]
    starts: tuple[tf.Operation, ...]
    iterators: dict[str, tuple[tf.Operation, str]]
    drawn: tuple[Drawn, ...]
    placeholders: dict[str, tf.Tensor]


_known: weakref.WeakKeyDictionary[tf.Graph, tuple[Job, Pipelines]] = weakref.WeakKeyDictionary()


def pipelines_of(script: tf.Graph) -> Pipelines:
    """The pipelines of a graph in this job."""
    job = current()
    if script not in _known or _known[script][0] is not job:
        in_order = job.group.size > 1
        _known[script] = (job, Pipelines(script, job.seed, session_config(job), in_order))
    return _known[script][1]


def fills_queues(script: tf.Graph, roots: Sequence[str]) -> bool:
    """Whether a run only fills or closes queues; the other ranks take no part in it."""
    return bool(roots) and all(
        script.get_operation_by_name(name).type in QUEUE_ACTIONS for name in roots
    )


def _draws(operation: tf.Operation) -> bool:
    """Whether an operator draws from an iterator that it reads directly."""
    return operation.type in GETS_NEXT and operation.inputs[0].op.type in ITERATORS


def _initializers(script: tf.Graph, operations: Sequence[tf.Operation]) -> list[str]:
    """The initializers of the variables among some operators, such as a count of epochs."""
    names = {operation.name for operation in operations if operation.type in VARIABLE_TYPES}
    if not names:
        return []
    keys = tf.compat.v1.GraphKeys
    collected = [
        *script.get_collection(keys.GLOBAL_VARIABLES),
        *script.get_collection(keys.LOCAL_VARIABLES),
    ]
    return [str(v.initializer.name) for v in collected if v.op.name in names and v.initializer]


def _behind(
    script: tf.Graph, roots: Sequence[str], fed: frozenset[str], ends: frozenset[str]
) -> list[tf.Operation]:
    """Some operators and their ancestors, up to fed tensors and to operators of types ``ends``."""
    waiting = [script.get_operation_by_name(name) for name in roots]
    reached = {operation.name: operation for operation in waiting}
    while waiting:
        operation = waiting.pop()
        if operation.type in ends:
            continue
        inputs = [tensor.op for tensor in operation.inputs if fed_operator(tensor) not in fed]
        for needed in [*inputs, *operation.control_inputs]:
            if needed.name not in reached:
                reached[needed.name] = needed
                waiting.append(needed)
    return list(reached.values())


def _seed(nodes: Iterable[Any], seed: int) -> None:
    """Seed unseeded shuffles and random operators alike in all processes of the job."""
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
