"""Batches that one rank of each machine makes: the other ranks there get their rows, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import RankMismatchError
from tensoropt.execution.agreement.shared_outcome import do_on_all_ranks
from tensoropt.execution.world.shares import RowsTable, Share, rows_in
from tensoropt.frontend.inputs.batches.ahead import Ahead
from tensoropt.frontend.job.job import Job

__all__ = ["FromFirstRank"]

Array = np.ndarray[Any, Any]
_END = "the end"


class FromFirstRank:
    """The elements of an iterator on the first rank of each machine, as shares on all ranks.

    Until `send_rows` is called, every rank gets whole elements. A thread makes the next element
    while a step runs. The rows of an element are sent when the ranks ask for it. All ranks make the
    same calls.

    Args:
        call: the name of the input in error messages.
        job: the ranks.
        elements: the iterator. Only the first rank of a machine reads it.
        like: the specification of an element; None stands for absent parts.
    """

    def __init__(self, call: str, job: Job, elements: Iterator[Any], like: Any) -> None:
        self._call = call
        self._job = job
        self._like = like
        group = job.group
        self._first = group.hosts.index(group.host)
        self._ahead = Ahead(elements) if group.rank == self._first else None
        self._tables = dict.fromkeys(range(group.size), np.zeros((0, 1, 2), np.int64))
        self._readers = [
            rank
            for rank, host in enumerate(group.hosts)
            if host == group.host and rank != self._first
        ]

    def send_rows(self, table: RowsTable) -> None:
        """Send only the rows that ranks read, from now on. All ranks call this.

        Args:
            table: the rows that this rank reads.
        """
        call = f"the rows of {self._call}"
        tables = self._job.agreement.gather(call, table.tolist())
        self._tables = {rank: np.array(rows, np.int64) for rank, rows in enumerate(tables)}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        leaves: list[Array] = []

        def make() -> Any:
            if self._ahead is None:
                return None
            try:
                element = next(self._ahead)
            except (StopIteration, tf.errors.OutOfRangeError):
                return _END
            parts = tf.nest.flatten(element, expand_composites=True)
            leaves.extend(np.asarray(part) for part in parts if part is not None)
            return [_described(leaf) for leaf in leaves]

        made = do_on_all_ranks(self._job.agreement, self._call, make)
        description = made[self._first]
        self._check_machines([each for each in made if each is not None])
        if description == _END:
            raise StopIteration
        is_here = self._ahead is not None
        return _packed(self._like, self._sent(leaves) if is_here else self._received(description))

    def _check_machines(self, descriptions: Sequence[Any]) -> None:
        if any(each != descriptions[0] for each in descriptions):
            raise RankMismatchError(
                "the first ranks of all machines make the same batches. Got different shapes or "
                f"ends in {self._call}: {descriptions[0]!r} and others; draw and shuffle batches "
                "with the same seed on all ranks."
            )

    def _sent(self, leaves: Sequence[Array]) -> list[Any]:
        """Send each rank its rows; return this rank's rows."""
        for leaf in leaves:
            for rank in () if _is_text(leaf) else self._readers:
                rows = self._rows(leaf.shape, rank)
                part = leaf if rows is None else _taken(leaf, rows)
                if part.size:
                    self._job.group.send(part, rank)
        return [
            leaf if rows is None else Share(rows, _taken(leaf, rows), leaf.shape[0])
            for leaf in leaves
            for rows in [None if _is_text(leaf) else self._rows(leaf.shape)]
        ]

    def _received(self, description: Sequence[Any]) -> list[Any]:
        """Return this rank's rows of an element, by its description."""
        parts = list[Any]()
        for dtype, shape, texts in description:
            if texts is not None:
                value = np.empty(len(texts), object)
                value[:] = [bytes.fromhex(text) for text in texts]
                parts.append(value.reshape(shape))
                continue
            rows = self._rows(shape)
            count = shape[:1] if rows is None else [int((rows[:, 1] - rows[:, 0]).sum())]
            value = np.empty((*count, *shape[1:]), tf.as_dtype(dtype).as_numpy_dtype)
            if value.size:
                value = self._job.group.receive(value.shape, value.dtype, self._first)
            parts.append(value if rows is None else Share(rows, value, shape[0]))
        return parts

    def _rows(self, shape: Sequence[int], rank: int | None = None) -> Array | None:
        """Return the rows that a rank reads of a value, by default this one; None for all rows."""
        table = self._tables[self._job.group.rank if rank is None else rank]
        if not shape or shape[0] >= len(table):
            return None
        return rows_in(table, shape[0])


def _is_text(leaf: Array) -> bool:
    return leaf.dtype.kind in "OSU"


def _taken(leaf: Array, rows: Array) -> Array:
    parts = [leaf[start:stop] for start, stop in rows.tolist()]
    return parts[0] if len(parts) == 1 else np.concatenate([leaf[:0], *parts])


def _described(leaf: Array) -> list[Any]:
    """Return the type and shape of a value, and its elements if they are texts."""
    if not _is_text(leaf):
        return [tf.as_dtype(leaf.dtype).name, list(leaf.shape), None]
    return ["string", list(leaf.shape), [tf.compat.as_bytes(x).hex() for x in leaf.reshape(-1)]]


def _packed(like: Any, parts: Sequence[Any]) -> Any:
    """Return an element of a specification; the parts of ragged and sparse tensors are whole."""
    flat, rest = list[Any](), list(parts)
    for spec in tf.nest.flatten(like):
        if spec is None:
            flat.append(None)
        elif isinstance(spec, tf.TensorSpec):
            flat.append(rest.pop(0))
        else:
            count = len(tf.nest.flatten(spec, expand_composites=True))
            whole = [tf.constant(part) for part in rest[:count]]
            flat.append(tf.nest.pack_sequence_as(spec, whole, expand_composites=True))
            del rest[:count]
    return tf.nest.pack_sequence_as(like, flat)
