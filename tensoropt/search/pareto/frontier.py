"""The cost frontier of a problem, which a search returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.errors import InfeasibleError, OptionError
from tensoropt.search.pareto.reduce import reduce_points

__all__ = [
    "ELIMINATIONS",
    "EndedBy",
    "Frontier",
    "FrontierPoint",
    "joined_frontier",
    "reduced_frontier",
]


ELIMINATIONS = ("node", "edge", "branch", "heuristic", "fold")
"""The kinds of elimination that are counted. All are exact except "heuristic"."""

EndedBy: TypeAlias = Literal["", "interruption", "time"]
"""The reason why a search ended early: a user, a limit of seconds, or empty if it did not."""


class FrontierPoint(NamedTuple):
    """One strategy of a frontier: bytes, nanoseconds, and the configuration of every node."""

    memory: int
    time: int
    strategy: Int32Array


def reduced_frontier(memory: Int64Array, time: Int64Array, strategies: Int32Array) -> Frontier:
    """Return the frontier of some strategies, int32[any, nodes], with their costs; it is not
    exact."""
    order = reduce_points(memory, time)
    return Frontier(memory[order], time[order], strategies[order], exact=False)


def joined_frontier(one: Frontier, other: Frontier) -> Frontier:
    """Return the frontier of the points of two frontiers of one problem, with the smaller proven
    gap.

    Of equal points the first frontier's stays. The counts of eliminations are the first's.
    """
    frontier = reduced_frontier(
        np.concatenate([one.memory, other.memory]),
        np.concatenate([one.time, other.time]),
        np.concatenate([one.strategies, other.strategies]),
    )
    shares = [each.within for each in (one, other) if each.within is not None]
    return replace(
        frontier,
        eliminations=one.eliminations,
        exact=one.exact or other.exact,
        within=min(shares, default=None),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The strategies that no other strategy beats in both memory and time (paper, definition 1).

    Attributes:
        memory: int64[points], bytes, strictly ascending.
        time: int64[points], nanoseconds, strictly descending.
        strategies: int32[points, nodes], each node's configuration number.
        eliminations: how often each kind of ``ELIMINATIONS`` was applied.
        exact: whether this is the whole frontier. If not, every point is achievable, but better
            ones may exist.
        within: the proven gap: for every strategy, a point of the frontier has at most 1 +
            ``within`` times its memory and its time. 0 if exact, None if no gap is proven.
        ended_by: the reason why the search ended early.

    Raises:
        OptionError: if the arrays do not fit each other or the costs are not in order.
    """

    memory: Int64Array
    time: Int64Array
    strategies: Int32Array
    eliminations: Mapping[str, int] = field(default_factory=dict)
    exact: bool = True
    within: float | None = None
    ended_by: EndedBy = ""

    def __post_init__(self) -> None:
        memory = np.array(self.memory, dtype=np.int64)
        time = np.array(self.time, dtype=np.int64)
        strategies = np.array(self.strategies, dtype=np.int32)
        if not (memory.ndim == time.ndim == 1 and strategies.ndim == 2) or not (
            memory.size == time.size == len(strategies) > 0
        ):
            raise OptionError(
                "a frontier has as many memories, times and strategies, at least one. Got shapes "
                f"{memory.shape}, {time.shape} and {strategies.shape}."
            )
        if (memory[1:] <= memory[:-1]).any() or (time[1:] >= time[:-1]).any():
            raise OptionError(
                "along a frontier memory ascends and time descends, both strictly. Got points "
                "out of order; reduce them first."
            )
        for array in (memory, time, strategies):
            array.flags.writeable = False
        object.__setattr__(self, "memory", memory)
        object.__setattr__(self, "time", time)
        object.__setattr__(self, "strategies", strategies)
        if self.exact:
            object.__setattr__(self, "within", 0.0)
        counts = {kind: int(self.eliminations.get(kind, 0)) for kind in ELIMINATIONS}
        object.__setattr__(self, "eliminations", MappingProxyType(counts))

    @property
    def points(self) -> list[tuple[int, int]]:
        """Bytes and nanoseconds of each point, by ascending memory."""
        return list(zip(self.memory.tolist(), self.time.tolist(), strict=True))

    def __len__(self) -> int:
        return int(self.memory.size)

    def __getitem__(self, index: int) -> FrontierPoint:
        return FrontierPoint(int(self.memory[index]), int(self.time[index]), self.strategies[index])

    def __iter__(self) -> Iterator[FrontierPoint]:
        return (self[index] for index in range(len(self)))

    def fastest(self, memory_limit: int | None = None) -> int:
        """Return the index of the fastest point that needs at most ``memory_limit`` bytes.

        Raises:
            InfeasibleError: if no point fits.
        """
        if memory_limit is None:
            return len(self) - 1
        fitting = int(np.searchsorted(self.memory, memory_limit, side="right"))
        if fitting == 0:
            raise InfeasibleError(
                f"a strategy must fit the memory limit of {memory_limit} bytes. Got "
                f"{int(self.memory[0])} bytes for the one that needs least; use more devices or "
                "a smaller batch."
            )
        return fitting - 1

    def dominates(self, other: Frontier) -> bool:
        """Whether for every point of ``other`` a point of this frontier is no worse in both
        costs."""
        fitting = np.searchsorted(self.memory, other.memory, side="right")
        return bool((fitting > 0).all() and (self.time[fitting - 1] <= other.time).all())

    def is_within(self, epsilon: float) -> bool:
        """Whether the proven gap is at most ``epsilon``."""
        return self.within is not None and self.within <= epsilon

    def same_costs(self, other: Frontier) -> bool:
        """Whether both frontiers have the same costs (their strategies may differ)."""
        return np.array_equal(self.memory, other.memory) and np.array_equal(self.time, other.time)
