"""A data set that makes the rows which one process needs of each global batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.inputs.shares.elements import CannotShareError, Elements, Findings
from tensoropt.frontend.inputs.shares.operators import REBUILT, constant, kind, rebuilt
from tensoropt.frontend.inputs.shares.selection import Batching, batched_rows

__all__ = ["NotShared", "RowsTable", "SharedDataset", "in_shares"]

RowsTable = np.ndarray[Any, Any]
"""int64 ``[B + 1, k, 2]``: for each number of rows of a batch the ranges of rows that a process
needs, half open and ascending; unused ranges start and stop at 0."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedDataset:
    """A data set of one process's rows.

    Attributes:
        dataset: its elements are ``(element with these rows, size of the global batch)``.
        share: names of the script's functions that run for these rows only.
        whole: names of functions that run for all examples in each process, with the reason.
    """

    dataset: tf.data.Dataset
    share: tuple[str, ...]
    whole: dict[str, str]


@dataclass(frozen=True, slots=True)
class NotShared:
    """The reason, in one sentence, why each process cannot make its own rows of a data set."""

    reason: str


def in_shares(
    dataset: tf.data.Dataset, table: Callable[[int], RowsTable]
) -> SharedDataset | NotShared:
    """Rewrite a data set of global batches so that it makes the rows of one process.

    The rows of all processes, put together, are the batches of the data set: the same bytes in the
    same order, in each iteration.

    Args:
        dataset: makes global batches. All processes made it by the same program.
        table: from the largest size of a batch to the rows that this process needs.
    """
    findings = Findings()
    try:
        shared = _shared(dataset, table, findings)
    except CannotShareError as error:
        return NotShared(str(error))
    return SharedDataset(shared, tuple(findings.share), findings.whole)


def _shared(dataset: Any, table: Callable[[int], RowsTable], findings: Findings) -> tf.data.Dataset:
    operator = kind(dataset)
    if operator in REBUILT:
        (source,) = dataset._inputs()
        return rebuilt(dataset, _shared(source, table, findings))
    if operator not in ("BatchDataset", "ParallelBatchDataset"):
        raise CannotShareError(f"{operator} comes after the batches.")
    (source,) = dataset._inputs()
    batching = Batching(
        constant(dataset._batch_size), bool(tf.get_static_value(dataset._drop_remainder))
    )
    elements = Elements.of(source, findings)
    findings.share += [element_map.name for element_map in elements.maps]
    return batched_rows(elements.base, elements.maps, batching, table(batching.size))
