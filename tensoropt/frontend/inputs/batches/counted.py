"""A data set that counts what is read of it, so that a later job reads on from there."""

from __future__ import annotations

from typing import Any

__all__ = ["CountedBatches"]


class CountedBatches:
    """A data set whose iterators and batches are counted.

    An order that a data set draws anew for each iterator is the same in a later job if that job
    makes as many iterators.

    Attributes:
        iterators: the number of iterators made so far.
        batches: the number of batches read from the last one.
        to_read: the number of batches that the next read leaves out.
        before: the epochs, batches of an epoch and further batches that the next read leaves out,
            see `go_on_at`; None for none.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.iterators = 0
        self.batches = 0
        self.to_read = 0
        self.before: tuple[int, int, int] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def __iter__(self) -> _Counted:
        self.iterators += 1
        self.batches = 0
        return _Counted(iter(self.dataset), self)

    def go_on(self, iterators: int, batches: int) -> None:
        """Make iterators until there are as many as before, and leave batches of the next one out.

        Args:
            iterators: iterators that an earlier job has made and left.
            batches: batches that it has read from the one after them.
        """
        while self.iterators < iterators:
            iter(self)
        self.to_read = batches

    def go_on_at(self, epochs: int, steps: int, batches: int) -> None:
        """Leave whole epochs out, and batches of the epoch after them.

        The loop that reads makes an iterator, and then either reads all epochs from it or makes one
        more for each epoch.

        Args:
            epochs: whole epochs that an earlier job has read.
            steps: the batches of an epoch.
            batches: batches that it has read after them.
        """
        self.before = epochs, steps, batches


class _Counted:
    """An iterator that counts."""

    def __init__(self, iterator: Any, counts: CountedBatches) -> None:
        self._iterator, self._counts, self._number = iterator, counts, counts.iterators

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> Any:
        counts = self._counts
        if counts.before is not None:
            (epochs, steps, batches), counts.before = counts.before, None
            is_new_for_each = counts.iterators > 1
            for _ in range(epochs if is_new_for_each else 0):
                self._iterator = iter(counts.dataset)
            counts.to_read = batches if is_new_for_each else epochs * steps + batches
        while counts.to_read:
            next(self._iterator)
            counts.to_read -= 1
            counts.batches += 1
        element = next(self._iterator)
        if self._number == counts.iterators:
            counts.batches += 1
        return element
