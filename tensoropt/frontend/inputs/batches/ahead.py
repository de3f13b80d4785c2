"""Elements that are made ahead: a thread makes the next one while a step runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Ahead"]

_Element = TypeVar("_Element")


class Ahead(Generic[_Element]):
    """The elements of an iterator, of which a thread makes the next one.

    The first element is made when it is asked for. An error is raised where its element would be.
    """

    def __init__(self, elements: Iterator[_Element]) -> None:
        self._elements = elements
        self._next: Future[_Element] | None = None

    def __iter__(self) -> Iterator[_Element]:
        return self

    def __next__(self) -> _Element:
        made = self._begun() if self._next is None else self._next
        element = made.result()  # at the end, it raises the error again and again
        self._next = self._begun()
        return element

    def _begun(self) -> Future[_Element]:
        """Begin to make the next element."""
        future: Future[_Element] = Future()
        threading.Thread(target=self._make, args=[future], daemon=True).start()
        return future

    def _make(self, future: Future[_Element]) -> None:
        try:
            future.set_result(next(self._elements))
        except BaseException as error:
            future.set_exception(error)
