"""The facts that the ranks of a job tell each other at its start, and what follows from them.

Ranks must choose the same protocol for a collective, and the same sizes of buckets. So a rank never
asks its own system when it chooses. It asks `JobFacts`, which are equal on all ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["JobFacts", "RankFacts", "usable_cores"]


@dataclass(frozen=True, slots=True)
class RankFacts:
    """The facts of one rank.

    Attributes:
        host: name of its machine.
        cores: numbers of the cores of that machine on which the rank may run.
    """

    host: str
    cores: frozenset[int]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts of all ranks, in the order of the world; equal on every rank."""

    ranks: tuple[RankFacts, ...]

    def core_share(self, rank: int) -> Fraction:
        """Return the number of cores of a rank. A core counts in equal parts for the ranks that may
        run on it."""
        own = self.ranks[rank]
        neighbours = [facts.cores for facts in self.ranks if facts.host == own.host]
        shares = (Fraction(1, sum(core in cores for cores in neighbours)) for core in own.cores)
        return sum(shares, Fraction(0))

    def has_core(self, rank: int) -> bool:
        """Whether a rank has a core for itself."""
        return self.core_share(rank) >= 1

    def shares_cores(self, ranks: Iterable[int]) -> bool:
        """Whether any of some ranks has less than a core for itself."""
        return not all(map(self.has_core, ranks))

    @property
    def overlaps(self) -> bool:
        """Whether ranks compute while their collectives run: each rank has two cores or more.

        A rank with one core computes no faster beside a collective, and it would hold more tensors
        at once than planned.
        """
        return all(self.core_share(rank) >= 2 for rank in range(len(self.ranks)))


def usable_cores() -> list[int]:
    """Return the numbers of the cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
