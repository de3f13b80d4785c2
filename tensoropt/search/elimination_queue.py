"""In which order nodes are eliminated: the cheapest next, as costs change around what is gone."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

__all__ = ["EliminationQueue"]

Item = TypeVar("Item")


class EliminationQueue(Generic[Item]):
    """Items by cost, then in their own order; a cost may be set again."""

    def __init__(self) -> None:
        self._costs: dict[Item, float] = {}
        self._heap: list[tuple[float, Item]] = []  # among them items with a cost of before

    def set(self, item: Item, cost: float) -> None:
        """Put an item in, or change its cost."""
        if self._costs.get(item) != cost:
            self._costs[item] = cost
            heapq.heappush(self._heap, (cost, item))

    def discard(self, item: Item) -> None:
        """Take an item out, if it is there."""
        self._costs.pop(item, None)

    def pop(self) -> tuple[Item, float] | None:
        """Take out the item that costs least, with its cost; None if there is none left."""
        while self._heap:
            cost, item = heapq.heappop(self._heap)
            if self._costs.get(item) == cost:
                del self._costs[item]
                return item, cost
        return None
