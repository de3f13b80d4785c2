"""Iterators of a graph that make only this process's rows, where that is possible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tensoropt.execution.world.shares import RowsTable, rows_in
from tensoropt.frontend.inputs.batches.waiting import Lines
from tensoropt.frontend.inputs.iterator_positions import GETS_NEXT
from tensoropt.frontend.inputs.shares.elements import CannotShareError
from tensoropt.frontend.inputs.shares.raw_iterators import (
    RawElement,
    RawIterator,
    dataset_of,
    functions_of,
)
from tensoropt.graph.from_tensorflow import QUEUE_ACTIONS

__all__ = ["Drawn", "IteratorShares", "RowsOf", "SharedDraws"]

Array = np.ndarray[Any, Any]

RowsOf: TypeAlias = Callable[[Mapping[str, Any]], RowsTable]
"""From values with the shapes of the elements, by `fed_operator`, to the rows that are read."""

_HANDLES = frozenset({"IteratorFromStringHandle", "IteratorFromStringHandleV2"})
_USERS = GETS_NEXT | {"IteratorToStringHandle", "MakeIterator"}


class Drawn(NamedTuple):
    """An operator of a script that draws from an iterator.

    Attributes:
        name: its name.
        iterator: the iterator's name.
        outputs: the names of its outputs, by `fed_operator`.
    """

    name: str
    iterator: str
    outputs: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Form:
    """An iterator in its two forms: the script's, and the raw one.

    Attributes:
        raw: the raw iterator; None if there is none.
        reason: why there is none; empty if a raw iterator would save nothing, because no function
            would run for fewer examples.
        digest: the digest of the raw iterator's data.
        whole_digest: the digest of the script's iterator's data.
        start: the operator that starts the script's iterator; None for a one-shot iterator.
        elements: by the script's operator that draws, the operator that draws from the raw one.
        is_raw: whether the raw iterator is drawn from; None before the first draw.
    """

    raw: RawIterator | None
    reason: str
    digest: str
    whole_digest: str
    start: tf.Operation | None
    elements: dict[str, RawElement] = field(default_factory=dict)
    is_raw: bool | None = None


class IteratorShares:
    """The raw iterators beside a script's iterators.

    Which of the two is drawn from is decided at the first draw: the one whose position a checkpoint
    has; else the raw one, if several processes read shares.

    Attributes:
        lines: lines about the iterators.

    Args:
        session: runs the graph with copies of the script's iterators.
    """

    def __init__(self, session: tf.compat.v1.Session) -> None:
        self._session = session
        self._forms: dict[str, _Form] = {}
        self._saved: dict[str, str] = {}
        self.lines = Lines()

    def go_on_from(self, position: Sequence[bytes]) -> None:
        """Let iterators that have not been drawn from be of the form of a saved position."""
        self._saved = json.loads(position[0]) if position else {}

    def add(self, script: tf.Graph, name: str, copied: tf.Operation, digest: str) -> None:
        """Make the raw iterator beside a copied iterator, unless there is one.

        Args:
            script: the script's graph.
            name: the iterator's name there.
            copied: the copied iterator.
            digest: see `digest_of`.
        """
        if name in self._forms:
            return
        raw, reason, start = None, "", None
        with self._session.graph.as_default():
            try:
                _check_users(script, name)
                dataset = dataset_of(copied)
                if functions_of(dataset):
                    raw = RawIterator.of(dataset)
            except CannotShareError as error:
                reason = str(error)
        if copied.type != "OneShotIterator":
            users = copied.outputs[0].consumers()
            start = next((each for each in users if each.type == "MakeIterator"), None)
        raw_digest = hashlib.sha256(f"raw {digest}".encode()).hexdigest()
        self._forms[name] = _Form(raw, reason, raw_digest, digest, start)

    def starts(self, operations: Sequence[tf.Operation]) -> list[tf.Operation]:
        """Return the operators that start raw iterators when some operators of the copy run."""
        iterators = {each.inputs[1].op for each in operations if each.type == "MakeIterator"}
        found = []
        for form in self._forms.values():
            if form.raw is None or form.start is None:
                continue
            if form.start in operations:
                found.append(form.raw.start)
            elif form.start.inputs[1].op in iterators:  # with another data set
                form.raw = None
        return found

    def among(self, drawn: Sequence[Drawn], in_shares: bool) -> SharedDraws:
        """Return the draws from raw iterators among some draws.

        Args:
            drawn: the script's operators that draw.
            in_shares: whether several processes read shares.
        """
        elements = dict[Drawn, RawElement]()
        iterators = dict[str, tuple[tf.Operation, str]]()
        for draw in drawn:
            form = self._forms.get(draw.iterator)
            if form is None:  # not started
                continue
            if form.is_raw is None:
                self._decide(draw.iterator, form, in_shares)
            if form.raw is None or not form.is_raw:
                continue
            if draw.name not in form.elements:
                with self._session.graph.as_default():
                    form.elements[draw.name] = form.raw.element()
            elements[draw] = form.elements[draw.name]
            iterators[draw.iterator] = form.raw.iterator, form.digest
        return SharedDraws(elements, iterators)

    def _decide(self, name: str, form: _Form, in_shares: bool) -> None:
        saved = self._saved.get(name)
        known = {form.digest: True, form.whole_digest: False}
        form.is_raw = form.raw is not None and known.get(saved or "", in_shares)
        if form.raw is not None and form.is_raw and form.start is None:
            self._session.run(form.raw.start)
        if not in_shares:
            return
        if form.raw is not None and not form.is_raw:
            form.reason = "its position in the data is that of one process."
        if form.reason:
            self.lines.say(name, f"each rank makes all elements of {name}: {form.reason}")
        elif form.raw is not None and form.raw.whole:
            names = ", ".join(form.raw.whole)
            text = f"{name}: {form.raw.base} and what is below it run for all examples on each rank"
            self.lines.say(name, f"{text}: {names}")


@dataclass(frozen=True, slots=True, eq=False)
class SharedDraws:
    """Draws from raw iterators in one run.

    Attributes:
        elements: the batches, and their maps.
        iterators: the raw iterators, and the digests of their data, by the iterators' names.
    """

    elements: Mapping[Drawn, RawElement]
    iterators: Mapping[str, tuple[tf.Operation, str]]

    @property
    def names(self) -> frozenset[str]:
        """The names of the script's elements that come from these batches."""
        return frozenset(name for draw in self.elements for name in draw.outputs)

    @property
    def batches(self) -> list[tuple[tf.Tensor, ...]]:
        """The tensors to draw."""
        return [element.batch for element in self.elements.values()]

    def mapped(
        self,
        session: tf.compat.v1.Session,
        batches: Sequence[Sequence[Array]],
        others: Mapping[str, Array],
        rows_of: RowsOf | None,
    ) -> dict[str, Any]:
        """Run the maps for this process's rows; return all elements, by `fed_operator`.

        Args:
            session: runs the graph of the iterators.
            batches: the values of `batches`.
            others: further elements of the run.
            rows_of: the rows that this process reads; None for all.
        """
        values: dict[str, Any] = dict(others)
        if not self.elements:
            return values
        sizes = [len(batch[0]) for batch in batches]
        table = None if rows_of is None else self._table(sizes, others, rows_of)
        for (draw, element), batch, size in zip(self.elements.items(), batches, sizes, strict=True):
            ranges = np.array([[0, size]]) if table is None else rows_in(table, size)
            values.update(zip(draw.outputs, element.mapped(session, batch, ranges), strict=True))
        return values

    def _table(
        self, sizes: Sequence[int], others: Mapping[str, Array], rows_of: RowsOf
    ) -> RowsTable | None:
        """The rows that this process reads; None if shapes are not known before the maps run."""
        samples: dict[str, Any] = dict(others)
        for (draw, element), size in zip(self.elements.items(), sizes, strict=True):
            arrays = element.samples(size)
            if arrays is None:
                return None
            samples.update(zip(draw.outputs, arrays, strict=True))
        return rows_of(samples)


def _check_users(script: tf.Graph, name: str) -> None:
    """Check that only steps draw from an iterator, and that it has one data set.

    Raises:
        CannotShareError: otherwise.
    """
    operations = script.get_operations()
    iterator = script.get_operation_by_name(name)
    users = [each.type for each in iterator.outputs[0].consumers()]
    if not set(users) <= _USERS or any(each.type in _HANDLES for each in operations):
        raise CannotShareError("a script reads iterators by their handles.")
    if users.count("MakeIterator") > 1:
        raise CannotShareError("the iterator has several data sets.")
    if any(each.type in QUEUE_ACTIONS for each in operations):
        raise CannotShareError("the script fills queues, too.")
