"""A data set of global batches, rewritten into one that makes the rows of one process alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tensoropt.execution.world.shares import RowsTable
from tensoropt.frontend.inputs.by_rows import is_by_rows
from tensoropt.frontend.inputs.shares.elements import (
    CannotShareError,
    Elements,
    Findings,
    check,
    element_map,
    whole,
)
from tensoropt.frontend.inputs.shares.functions import applied_to_rows, effects, function_name
from tensoropt.frontend.inputs.shares.operators import (
    REBUILT,
    as_it_is,
    constant,
    is_cache_in_memory,
    kind,
    rebuilt,
)
from tensoropt.frontend.inputs.shares.selection import (
    Batching,
    batched_rows,
    cut_rows,
    mapped,
)
from tensoropt.tensorflow_private import structures

__all__ = ["NotShared", "SharedDataset", "in_shares"]


@dataclass(frozen=True, slots=True, eq=False)
class SharedDataset:
    """A data set of one process's rows.

    Attributes:
        dataset: its elements are ``(element with these rows, size of the global batch)``.
        source: the data set of global batches. It owns the seeds of its shuffles, so that it lives
            as long as ``dataset`` does.
        share: names of the script's functions that run for these rows only.
        whole: names of functions that run for all examples in each process, with the reason.
    """

    dataset: tf.data.Dataset
    source: tf.data.Dataset
    share: tuple[str, ...]
    whole: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NotShared:
    """The reason, in one sentence, why each process cannot make its own rows of a data set."""

    reason: str


def in_shares(
    dataset: tf.data.Dataset,
    table: Callable[[int], RowsTable],
    *,
    largest: int | None = None,
    joined: int = 1,
) -> SharedDataset | NotShared:
    """Rewrite a data set of global batches so that it makes the rows of one process.

    The rows of all processes, put together, are the batches of the data set: the same bytes in the
    same order, in each iteration.

    Args:
        dataset: makes global batches. All processes made it by the same program.
        table: returns the rows that this process needs, given the largest size of a batch.
        largest: the largest size of a batch, where no operator of the data set tells it.
        joined: the number of batches that are read as one, see `Rounds`. The table is then for as
            many examples, and no batch is left out.
    """
    if not tf.executing_eagerly():
        return NotShared("the data set was made in a graph.")
    rewriting = _Rewriting(table, largest, Findings(), joined)
    try:
        shared = rewriting.of(dataset)
    except CannotShareError as error:
        return NotShared(str(error))
    if not all(shared.has_rows):
        return NotShared("a component of the elements is the same for all batches.")
    options = tf.data.Options()
    options.deterministic = True
    findings = rewriting.findings
    return SharedDataset(
        shared.dataset.with_options(options), dataset, tuple(findings.share), findings.whole
    )


class _Shared(NamedTuple):
    """A rewritten data set.

    Attributes:
        dataset: of pairs of an element and the size of the global batch.
        has_rows: for each component of the element, whether it has this process's rows. The other
            components are the same for all batches.
    """

    dataset: tf.data.Dataset
    has_rows: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Rewriting:
    table: Callable[[int], RowsTable]
    largest: int | None
    findings: Findings
    joined: int

    def of(self, dataset: Any) -> _Shared:
        """Rewrite the operators from the last one down to the last one that makes batches.

        Raises:
            CannotShareError: if that is not possible.
        """
        operator = kind(dataset)
        if operator in REBUILT:
            if self.joined > 1 and operator not in ("OptionsDataset", "PrefetchDataset"):
                raise CannotShareError(f"{operator} counts batches.")
            check(dataset)
            shared = self.of(*dataset._inputs())
            return shared._replace(dataset=rebuilt(dataset, shared.dataset))
        if is_cache_in_memory(dataset):
            shared = self.of(*dataset._inputs())
            return shared._replace(dataset=shared.dataset.cache())
        if operator in ("MapDataset", "ParallelMapDataset"):
            return self._mapped(dataset)
        if operator == "ZipDataset":
            return self._zipped(dataset)
        if operator in ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset"):
            return self._batched(dataset)
        return self._cut(dataset)

    def _batched(self, dataset: Any) -> _Shared:
        (source,) = dataset._inputs()
        is_cached = is_cache_in_memory(source)
        if is_cached:  # batches of this process's rows are cached in place of all elements
            (source,) = source._inputs()
        padding = None
        if kind(dataset) == "PaddedBatchDataset":
            padding = (dataset._padded_shapes, dataset._padding_values)
            if any((extents < 0).any() for extents in map(np.asarray, _flat(padding[0]))):
                return self._cut(dataset)
        size = constant(dataset._batch_size)
        drops = bool(tf.get_static_value(dataset._drop_remainder))
        elements = Elements.of(source, self.findings)
        self.findings.share += [each.name for each in elements.maps]
        batches = batched_rows(
            elements.base,
            elements.maps,
            Batching(size * self.joined, drops and self.joined == 1, padding),
            self.table(size),
        )
        if is_cached:
            batches = batches.cache()
        return _Shared(batches, (True,) * len(_flat(source.element_spec)))

    def _cut(self, dataset: Any) -> _Shared:
        """Make whole batches, and cut the rows of this process out of them."""
        if self.joined > 1:
            raise CannotShareError(f"{kind(dataset)} makes batches one by one.")
        specs = _flat(dataset.element_spec)
        if not makes_batches(dataset) and (len(specs) > 1 or specs[0].shape.rank in (None, 0)):
            raise CannotShareError(f"{kind(dataset)} makes elements which may have no rows.")
        largest = self.largest or largest_batch(dataset)
        if largest is None:
            raise CannotShareError(f"{kind(dataset)} does not tell its largest batch.")
        reason = f"{kind(dataset)} needs all examples of a batch"
        batches = whole(dataset, self.findings, reason)
        return _Shared(cut_rows(batches, self.table(largest)), (True,) * len(specs))

    def _mapped(self, dataset: Any) -> _Shared:
        (wrapper,), (source,) = dataset._functions(), dataset._inputs()
        name = function_name(wrapper)
        shared = self.of(source)
        if not effects(wrapper).is_pure:
            raise CannotShareError(f"{name} changes a state or draws numbers for whole batches.")
        if not _keeps_rows(wrapper, _flat(source.element_spec), shared.has_rows):
            raise CannotShareError(f"{name} may mix the rows of a batch.")
        self.findings.share.append(name)
        of_rows = element_map(dataset, wrapper, applied_to_rows)
        outputs = len(wrapper.function.graph.outputs)
        return _Shared(mapped(shared.dataset, of_rows), (True,) * outputs)

    def _zipped(self, dataset: Any) -> _Shared:
        parts = [_constant(part) or self.of(part) for part in dataset._inputs()]
        structure = dataset._datasets
        if not any(any(part.has_rows) for part in parts):
            raise CannotShareError("no part of a zipped data set has rows.")

        @as_it_is
        def together(*pairs: Any) -> Any:
            sizes = [n for (_, n), part in zip(pairs, parts, strict=True) if any(part.has_rows)]
            equal = [tf.debugging.assert_equal(size, sizes[0]) for size in sizes[1:]]
            with tf.control_dependencies(equal):
                size = tf.identity(sizes[0])
            return structures.pack_sequence_as(structure, [element for element, _ in pairs]), size

        zipped = tf.data.Dataset.zip(tuple(part.dataset for part in parts)).map(together)
        return _Shared(zipped, tuple(has for part in parts for has in part.has_rows))


def _keeps_rows(wrapper: Any, specs: Sequence[Any], has_rows: Sequence[bool]) -> bool:
    """Whether row i of a function's results depends on row i of the arguments with rows alone.

    A function with side effects, or with arguments or results that are not dense, counts as one
    that mixes rows.
    """
    graph = wrapper.function.graph
    results = _flat(wrapper.output_structure)
    if graph.control_outputs or not all(isinstance(s, tf.TensorSpec) for s in [*specs, *results]):
        return False
    inputs = zip(graph.inputs[: len(specs)], has_rows, strict=True)
    rows = [tensor for tensor, has in inputs if has]
    return all(tensor.shape.rank for tensor in rows) and is_by_rows(rows, graph.outputs)


def _constant(dataset: Any) -> _Shared | None:
    """Rewrite a data set that repeats one element for ever; return None for any other."""
    if kind(dataset) != "RepeatDataset" or constant(dataset._count) >= 0:
        return None
    (source,) = dataset._inputs()
    if kind(source) != "TensorDataset":
        return None
    size = tf.data.Dataset.from_tensors(tf.zeros([], tf.int64)).repeat()
    return _Shared(
        tf.data.Dataset.zip((dataset, size)), (False,) * len(_flat(dataset.element_spec))
    )


def _flat(structure: Any) -> list[Any]:
    return list(structures.flatten(structure))


_BATCHING = frozenset({"BatchDatasetV2", "PaddedBatchDatasetV2", "ParallelBatchDataset"})

_CHOOSES = frozenset(
    {"Cast", "Const", "GatherV2", "Identity", "NoOp", "Pack", "Placeholder", "StridedSlice"}
)
"""Operators that choose one of several constants."""


def makes_batches(dataset: Any) -> bool:
    """Whether all components of a data set's elements have a row for each example."""
    if kind(dataset) != "GroupByWindowDataset":
        return kind(dataset) == "PaddedBatchDataset"
    tensor = dataset._reduce_func.function.graph.outputs[0]
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op.type in _BATCHING


def largest_batch(dataset: Any) -> int | None:
    """The largest number of rows that a data set's elements can have; None if it is unknown."""
    if kind(dataset) == "PaddedBatchDataset":
        return constant(dataset._batch_size)
    first = tf.nest.flatten(dataset.element_spec)[0].shape
    if first.rank and first[0] is not None:
        return int(first[0])
    if kind(dataset) != "GroupByWindowDataset":
        return None
    function = dataset._window_size_func.function
    operators = function.graph.get_operations()
    if any(operation.type not in _CHOOSES for operation in operators):
        return None
    inside = [tf.get_static_value(op.outputs[0]) for op in operators if op.type == "Const"]
    known = [*inside, *(tensor.numpy() for tensor in function.captured_inputs)]
    return max((int(np.max(value)) for value in known), default=None)
