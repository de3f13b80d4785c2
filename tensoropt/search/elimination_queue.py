"""The order of elimination: the cheapest node is next, and eliminations change costs."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

__all__ = ["EliminationQueue"]

Item = TypeVar("Item")


class EliminationQueue(Generic[Item]):
    """A priority queue of items by cost, then by their own order. A cost may be set again."""

    def __init__(self) -> None:
        self._costs: dict[Item, float] = {}
        self._heap: list[tuple[float, Item]] = []  # some entries have a former cost

    def set(self, item: Item, cost: float) -> None:
        """Add an item, or change its cost."""
        if self._costs.get(item) != cost:
            self._costs[item] = cost
            heapq.heappush(self._heap, (cost, item))

    def discard(self, item: Item) -> None:
        """Remove an item, if it is in the queue."""
        self._costs.pop(item, None)

    def pop(self) -> tuple[Item, float] | None:
        """Remove and return the item of least cost, with its cost; None if the queue is empty."""
        while self._heap:
            cost, item = heapq.heappop(self._heap)
            if self._costs.get(item) == cost:
                del self._costs[item]
                return item, cost
        return None
