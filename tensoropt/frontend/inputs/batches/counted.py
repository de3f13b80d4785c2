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
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.iterators = 0
        self.batches = 0
        self.to_read = 0

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
        while counts.to_read:
            next(self._iterator)
            counts.to_read -= 1
            counts.batches += 1
        element = next(self._iterator)
        if self._number == counts.iterators:
            counts.batches += 1
        return element
