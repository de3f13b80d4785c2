"""A data set whose iterators give steps this process's rows of batches, not whole batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tensoropt.execution.agreement.fed_values import ReadArrays
from tensoropt.execution.runtime.executor import SAME_ARGUMENTS
from tensoropt.execution.world.shares import RowsTable
from tensoropt.frontend.inputs.batches.ahead import Ahead
from tensoropt.frontend.inputs.batches.array_batches import ArrayBatches, named_arrays
from tensoropt.frontend.inputs.batches.first_rank import FromFirstRank
from tensoropt.frontend.inputs.batches.rounds import OwnBatch, Rounds
from tensoropt.frontend.inputs.batches.shared_rows import (
    arrays_of,
    batching_of,
    gathered_in_shares,
    sample_element,
    shares_of,
)
from tensoropt.frontend.inputs.batches.waiting import InputWait, Lines
from tensoropt.frontend.inputs.shares.elements import has_other_orders, read_by_first_rank
from tensoropt.frontend.inputs.shares.shared_dataset import NotShared, SharedDataset, in_shares
from tensoropt.frontend.job.job import current

__all__ = ["Reader", "SharedBatches"]


class Reader(Protocol):
    """The loop that reads a data set.

    Attributes:
        compared: compares the arrays of each step with those of the other ranks.
        is_sent: whether the first rank has sent rows.
        lines: lines about the input.
        takes_rounds: whether batches may be read in rounds, see `Rounds`.
    """

    compared: defaultdict[str, ReadArrays]
    is_sent: bool
    lines: Lines
    takes_rounds: bool

    @property
    def label(self) -> str:
        """The loop as the script calls it."""

    @property
    def step(self) -> str:
        """The loop's step, as errors name it."""

    @property
    def function(self) -> Any:
        """An object with a method ``rows_of_batch(element, element_spec)``, which returns the rows
        that this process reads, or None; anything else if no step runs yet. Where batches may be
        read in rounds, it has a method ``runs_own(element, element_spec)``, which returns whether
        it runs them so."""

    @property
    def wait(self) -> InputWait:
        """The time that the loop's steps have waited for input."""

    def report(self) -> None:
        """Tell how long steps waited."""


class _Unplanned(Exception):
    """The rows that this process reads are not known before the first batch."""


class SharedBatches:
    """A data set in a loop, which makes iterators."""

    def __init__(self, dataset: Any, reader: Reader) -> None:
        self.dataset = dataset
        self.input = reader
        self._reason = ""
        self.tables: dict[Any, RowsTable] = {}
        self._shares: dict[Any, Callable[[], Iterator[Any]]] = {}
        self._is_compared = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def __iter__(self) -> Any:
        function, spec = self.input.function, self.dataset.element_spec
        if not hasattr(function, "rows_of_batch"):
            return iter(self.dataset)
        self._compare_arrays()
        self.input.report()
        if function not in self._shares or self._has_other_orders():
            self._shares.pop(function, None)
            self._share(function)
        if function in self._shares:
            return _Shares(self._shares[function](), self.input.wait, spec)
        label = self.input.label
        self.input.lines.say(
            f"sent {label}",
            f"{label}: the first rank makes the batches and sends the others their rows: "
            f"{self._reason}",
        )
        self.input.is_sent = True
        read_by_first_rank(self.dataset)
        like = tf.nest.map_structure(_present, spec)
        sent = FromFirstRank(label, current(), iter(self.dataset), like)
        return _Sent(sent, self.input.wait, spec, self, function)

    def learn_rows(self, function: Any, batch: Any) -> None:
        """Note the rows that this process reads, by a batch that the function has run."""
        table = function.rows_of_batch(batch, self.dataset.element_spec)
        # Steps that read tables or texts in whole batches read all rows.
        self.tables[function] = np.zeros((0, 1, 2), np.int64) if table is None else table

    def _share(self, function: Any) -> None:
        """Find the rows that this process reads, if the shapes of batches are known."""
        spec = self.dataset.element_spec

        def table(size: int) -> RowsTable:
            known = self.tables.get(function)
            if known is None or len(known) <= size:
                element = sample_element(spec, size)
                if element is None:
                    raise _Unplanned("the shapes of its batches are not known before the first one")
                known = function.rows_of_batch(element, spec)
            if known is None:
                raise _Unplanned("its step reads tables or texts in whole batches")
            self.tables[function] = known
            return known

        try:
            if isinstance(self.dataset, ArrayBatches):
                self._share_arrays(self.dataset, function, table)
            else:
                self._share_dataset(function, table)
        except _Unplanned as unplanned:
            self._reason = str(unplanned)
            if isinstance(self.dataset, ArrayBatches):
                self.dataset = self.dataset.dataset

    def _share_arrays(
        self, arrays: ArrayBatches, function: Any, table: Callable[[int], RowsTable]
    ) -> None:
        """Take this process's rows from arrays."""
        rounds = self._rounds(function, table, (arrays.size, False))
        self._shares[function] = partial(arrays.shares, table(arrays.size), rounds)

    def _share_dataset(self, function: Any, table: Callable[[int], RowsTable]) -> None:
        """Rewrite the data set to this process's rows."""
        rounds = self._rounds(function, table, batching_of(self.dataset))
        shared = None if rounds is None else self._in_rounds(rounds, table)
        if shared is None:
            rounds = None
            shared = gathered_in_shares(self.dataset, table) or in_shares(self.dataset, table)
        if isinstance(shared, NotShared):
            self._reason = shared.reason
            return
        if isinstance(shared, SharedDataset):
            if rounds is None and self._are_whole(self.tables[function]):
                return
            self._say_whole(shared.whole)
        dataset = shared.dataset if isinstance(shared, SharedDataset) else shared
        rows = self.tables[function]
        self._shares[function] = lambda: Ahead(
            shares_of(dataset, rows) if rounds is None else rounds.batches(dataset, rows)
        )

    def _rounds(
        self,
        function: Any,
        table: Callable[[int], RowsTable],
        batching: tuple[int, bool] | None,
    ) -> Rounds | None:
        """The rounds in which a step runs batches; None if it does not, or there are too few.

        Args:
            function, table: the step, and the rows that this process reads.
            batching: see `batching_of`.
        """
        group, count = current().group, int(self.dataset.cardinality())
        if not self.input.takes_rounds or batching is None or 0 <= count < group.size:
            return None
        rounds = Rounds(group.size, group.rank, *batching)
        table(rounds.size)  # plans the step
        spec = self.dataset.element_spec
        return rounds if function.runs_own(sample_element(spec, rounds.size), spec) else None

    def _in_rounds(
        self, rounds: Rounds, table: Callable[[int], RowsTable]
    ) -> tf.data.Dataset | SharedDataset | None:
        """Rewrite the data set to rounds; None if it cannot be read so."""
        shared = gathered_in_shares(self.dataset, table, rounds) or in_shares(
            self.dataset, lambda size: rounds.table(table(size)), joined=rounds.ranks
        )
        return None if isinstance(shared, NotShared) else shared

    def _has_other_orders(self) -> bool:
        return not isinstance(self.dataset, ArrayBatches) and has_other_orders(self.dataset)

    def _say_whole(self, reasons: Mapping[str, str]) -> None:
        """Say which functions of a data set run for all examples on each rank."""
        label = self.input.label
        for name, reason in reasons.items():
            text = f"{label}: {name} runs for all examples on each rank: {reason}"
            self.input.lines.say(f"{name} of {label}", text)

    def _are_whole(self, table: RowsTable) -> bool:
        """Whether every rank reads whole batches, which the first rank then makes for all."""
        ranges = table[-1]
        is_whole = int((ranges[:, 1] - ranges[:, 0]).sum()) == len(table) - 1
        self._reason = "every rank reads whole batches"
        return all(current().agreement.gather(f"the rows of {self.input.label}", is_whole))

    def _compare_arrays(self) -> None:
        """Check once that all ranks gather batches from the same arrays, which are copies."""
        job = current()
        if self._is_compared or not job.check_feeds_every:
            return
        self._is_compared = True
        dataset, step = self.dataset, self.input.step
        is_plain = isinstance(dataset, ArrayBatches)
        arrays = named_arrays(dataset.arrays) if is_plain else arrays_of(dataset)
        every = job.check_feeds_every
        self.input.compared[step].check(job.agreement, step, arrays, every, SAME_ARGUMENTS)


class _Shares:
    """An iterator over shares that this process makes, and over the batches of rounds.

    Args:
        elements: the shares.
        wait: measures how long steps wait for them.
        spec: the ``element_spec`` of global batches.
    """

    def __init__(self, elements: Iterator[Any], wait: InputWait, spec: Any) -> None:
        self._elements = elements
        self._wait = wait
        self._round: OwnBatch | None = None
        self._left = 0  # batches of the round
        self.element_spec = spec

    def __iter__(self) -> _Shares:
        return self

    def __next__(self) -> Any:
        if self._left:
            self._left -= 1
            return self._round
        with self._wait.measured(self):
            element = next(self._elements)
        if isinstance(element, OwnBatch):
            self._round, self._left = element, element.ranks - 1
        return element


class _Sent(_Shares):
    """An iterator over batches of the first rank, which are whole until a step has run.

    Args:
        elements: the batches.
        wait, spec: see `_Shares`.
        batches: the data set.
        function: runs the batches.
    """

    def __init__(
        self,
        elements: FromFirstRank,
        wait: InputWait,
        spec: Any,
        batches: SharedBatches,
        function: Any,
    ) -> None:
        super().__init__(elements, wait, spec)
        self._batches = batches
        self._function = function
        self._first: Any = None

    def __next__(self) -> Any:
        if self._first is not None:
            self._batches.learn_rows(self._function, self._first)
        self._first = None
        if self._function is not None and self._function in self._batches.tables:
            assert isinstance(self._elements, FromFirstRank)
            self._elements.send_rows(self._batches.tables[self._function])
            self._function = None
        element = super().__next__()
        if self._function is not None:
            self._first = element
        return element


def _present(spec: Any) -> Any:
    """The specification of a part of an element; None for a part that Keras marks as absent."""
    return None if isinstance(spec, tf.OptionalSpec) else spec
