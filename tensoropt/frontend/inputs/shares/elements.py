"""Data sets of elements that are not batched yet, taken apart into inputs and functions of one
element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tensoropt.frontend.inputs.shares.functions import applied, effects, function_name
from tensoropt.frontend.inputs.shares.operators import (
    REBUILT,
    constant,
    definition,
    is_cache_in_memory,
    kind,
    parts_of,
    rebuilt,
)
from tensoropt.frontend.inputs.shares.selection import ElementMap
from tensoropt.tensorflow_private import structures

__all__ = [
    "CannotShareError",
    "Elements",
    "Findings",
    "check",
    "element_map",
    "has_other_orders",
    "read_by_first_rank",
    "whole",
]

_SAME_EVERYWHERE = frozenset(
    {"FixedLengthRecordDatasetV2", "FixedLengthRecordDataset", "RangeDataset", "RandomDataset"}
    | {"SparseTensorSliceDataset", "TensorDataset", "TensorSliceDataset", "TextLineDatasetV2"}
    | {"TextLineDataset", "TFRecordDatasetV2", "TFRecordDataset", "CsvDatasetV2", "CsvDataset"}
    | {"AssertCardinalityDataset", "BatchDataset", "CacheDataset", "ConcatenateDataset"}
    | {"DirectedInterleaveDataset", "FilterDataset", "FlatMapDataset", "GroupByWindowDataset"}
    | {"IgnoreErrorsDataset", "InterleaveDataset", "MapDataset", "PaddedBatchDataset"}
    | {"ParallelBatchDataset", "ParallelMapDataset", "RebatchDataset", "ScanDataset"}
    | {"ShardDataset", "TakeWhileDataset", "UnbatchDataset", "UniqueDataset", "WindowDataset"}
    | {"DenseToRaggedDataset", "ParallelInterleaveDataset", "RestructuredDataset", "ZipDataset"}
    | set(REBUILT)
)
"""Operators that make the same elements in the same order in all processes."""

_COUNTING = frozenset({"Const", "RangeDataset", "RewriteDataset", "_Retval"})


class CannotShareError(Exception):
    """A data set cannot be made in shares. The text is the reason, one sentence."""


@dataclass(slots=True)
class Findings:
    """The functions of a data set, by the examples that they run for.

    Attributes:
        share: names of functions that run for this process's rows only.
        whole: names of functions that run for all examples, with the reason.
    """

    share: list[str] = field(default_factory=list)
    whole: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """A data set: functions of one element, applied one after the other to a base's elements.

    Attributes:
        base: makes the elements in their order.
        maps: pure functions of one element.
    """

    base: tf.data.Dataset
    maps: tuple[ElementMap, ...] = ()

    @classmethod
    def of(cls, dataset: Any, findings: Findings) -> Elements:
        """Take a data set apart. Functions move above the operators that only order elements.

        Raises:
            CannotShareError: if processes may get different elements.
        """
        operator = kind(dataset)
        if operator in ("MapDataset", "ParallelMapDataset"):
            (wrapper,) = dataset._functions()
            if effects(wrapper).is_pure:
                (source,) = dataset._inputs()
                below = cls.of(source, findings)
                return cls(below.base, (*below.maps, element_map(dataset, wrapper, applied)))
            return cls(whole(dataset, findings, "it changes a state or draws numbers"))
        if operator in REBUILT:
            (source,) = dataset._inputs()
            below = cls.of(source, findings)
            check(dataset)
            if not below.maps:
                return cls(dataset)
            return cls(rebuilt(dataset, below.base), below.maps)
        if operator == "ZipDataset":
            return _zipped(cls, dataset, findings)
        return cls(whole(dataset, findings, f"{operator} needs its results for all examples"))


def whole(dataset: tf.data.Dataset, findings: Findings, reason: str) -> tf.data.Dataset:
    """A data set as it is, whose functions run for all examples in each process.

    Raises:
        CannotShareError: if processes may get different elements.
    """
    for part in parts_of(dataset):
        check(part)
        for wrapper in part._functions():
            findings.whole.setdefault(function_name(wrapper), reason)
    return dataset


def element_map(dataset: Any, wrapper: Any, apply: Callable[[Any, Any], Any]) -> ElementMap:
    """The function of a map, with the parallel calls that the script allows.

    Args:
        dataset: the map.
        wrapper: its function.
        apply: calls the function on an element.
    """
    calls = getattr(dataset, "_num_parallel_calls", None)
    return ElementMap(
        lambda element: apply(wrapper, element),
        function_name(wrapper),
        None if calls is None else constant(calls),
    )


def _zipped(cls: type[Elements], dataset: Any, findings: Findings) -> Elements:
    """Zipped data sets, taken apart one by one."""
    flat = [cls.of(part, findings) for part in dataset._inputs()]
    structure = dataset._datasets
    if not any(part.maps for part in flat):
        return cls(dataset)

    def together(element: Any) -> Any:
        parts = structures.flatten_up_to(structure, element)
        for n, part in enumerate(flat):
            for each in part.maps:
                parts[n] = each.function(parts[n])
        return structures.pack_sequence_as(structure, parts)

    maps = [each for part in flat for each in part.maps]
    calls = {each.parallel_calls for each in maps}
    base = tf.data.Dataset.zip(tf.nest.pack_sequence_as(structure, [part.base for part in flat]))
    names = ", ".join(each.name for each in maps)
    return cls(base, (ElementMap(together, names, calls.pop() if len(calls) == 1 else -1),))


def check(part: Any) -> None:
    """Check one operator of a data set.

    Raises:
        CannotShareError: if it may make other elements in each process.
    """
    operator = kind(part)
    if operator == "VariantDataset" and _is_counter(part):
        return
    if operator not in _SAME_EVERYWHERE:
        raise CannotShareError(f"{operator} may make other elements in each process.")
    if operator == "CacheDataset" and not is_cache_in_memory(part):
        raise CannotShareError("a cache in a file is written by one process.")
    if getattr(part, "_deterministic", "") == "false":
        raise CannotShareError(f"{operator} has deterministic=False, so its order differs.")
    if operator == "ParallelInterleaveDataset" and _is_unordered(part):
        raise CannotShareError(f"{operator} has deterministic=False, so its order differs.")
    if getattr(part, "_read_by_first_rank", False):
        raise CannotShareError(
            "the first rank has read a shuffle, which has new orders since then."
        )
    if operator == "ShuffleDataset" and not constant(part._seed) and not constant(part._seed2):
        raise CannotShareError("a shuffle without a seed has another order in each process.")
    for wrapper in part._functions():
        found, name = effects(wrapper), function_name(wrapper)
        if found.python:
            raise CannotShareError(f"{name} calls a Python function.")
        if found.state:
            raise CannotShareError(f"{name} changes a state by {found.state}.")
        if found.unseeded:
            raise CannotShareError(f"{name} draws numbers without a seed.")
        if found.unordered:
            raise CannotShareError(f"{name} has a data set with deterministic=False.")
        if found.draws and operator.startswith("Parallel"):
            raise CannotShareError(f"{name} draws numbers in parallel calls, in any order.")


def read_by_first_rank(dataset: tf.data.Dataset) -> None:
    """Note that the first rank alone reads a data set, of which all ranks make an iterator.

    A shuffle takes new seeds when an iterator over it is made. Below operators that make further
    iterators, the first rank's shuffle takes more seeds than the shuffles of other ranks, so their
    orders differ from then on.
    """
    for part in parts_of(dataset):
        if kind(part) in ("CacheDataset", "ConcatenateDataset", "RepeatDataset"):
            for shuffle in parts_of(part):
                if kind(shuffle) == "ShuffleDataset":
                    shuffle._read_by_first_rank = shuffle._reshuffle_each_iteration is not False


def has_other_orders(dataset: tf.data.Dataset) -> bool:
    """Whether a shuffle has other orders on the first rank, see `read_by_first_rank`."""
    return any(getattr(part, "_read_by_first_rank", False) for part in parts_of(dataset))


def _is_unordered(dataset: Any) -> bool:
    """Whether an operator, whose Python object does not tell this, has ``deterministic=False``."""
    return any(node.attr["deterministic"].s == b"false" for node in definition(dataset).node)


def _is_counter(dataset: Any) -> bool:
    """Whether a data set counts, as the numbers of ``enumerate``."""
    return {node.op for node in definition(dataset).node} <= _COUNTING
