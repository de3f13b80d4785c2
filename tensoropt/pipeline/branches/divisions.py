"""Divisions of devices among branches (Unity, section 5.2): which devices run which branches.

Unity divides the devices between two independent halves of a graph, and divides each half again.
Here the devices are divided into any number of sides at once:

1. A division begins with a multiset of numbers of devices whose sum is the number of all devices;
   each number is a side.
2. The branches of the fork, by descending work, each go to the side that finishes them first.
3. If a side runs a single branch, and that branch forks, the side may be divided again.
4. The rest of the fork, which follows the branches, runs on the largest side. The stem, which comes
   before them, runs on the second largest. If the stem has more work, the two are exchanged.

A lower bound of the time orders divisions. It assumes that the devices of a side share all work but
the start of kernels, and that summing and resharding are free. State of the recursion: a fork and a
number of devices. It keeps the divisions that no other beats in both the bound and the size of the
largest side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Float64Array
from tensoropt.pipeline.branches.forks import Fork, sharing_together

__all__ = ["Division", "Divisions", "Side", "Work"]

_MOST_SIDES = 6
"""The most sides of one fork, without those of nested forks."""
_MOST_MULTISETS = 2000
"""The most multisets that are tried for one fork. Those with the fewest sides are tried first."""


@dataclass(frozen=True, slots=True)
class Side:
    """Some of the devices, and the components that they run.

    Attributes:
        devices: the number of devices.
        pieces: the components of each piece; pieces run one after the other.
    """

    devices: int
    pieces: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Sides that run a fork.

    Attributes:
        bound: a lower bound of the time, in nanoseconds.
        sides: in no particular order.
    """

    bound: float
    sides: tuple[Side, ...]

    @property
    def largest(self) -> int:
        """The devices of the largest side."""
        return max(side.devices for side in self.sides)


class Work:
    """The times of components on several devices, which share all work but the start of kernels.

    Args:
        starting: float64[components], nanoseconds to start the kernels.
        shared: float64[components], nanoseconds of the remaining work on one device.
    """

    def __init__(self, starting: Float64Array, shared: Float64Array) -> None:
        self._starting, self._shared = starting, shared

    @classmethod
    def of_kernels(cls, time: npt.ArrayLike, kernels: npt.ArrayLike, overhead: float) -> Work:
        """Return the work of components on one device.

        Args:
            time: nanoseconds of each component.
            kernels: the number of its kernels.
            overhead: the nanoseconds to start a kernel.
        """
        all_time = np.asarray(time, np.float64)
        starting = np.minimum(all_time, np.asarray(kernels, np.float64) * overhead)
        return cls(starting, all_time - starting)

    def on(self, devices: int) -> Float64Array:
        """Return float64[components]: the nanoseconds of each on the given number of devices."""
        return self._starting + self._shared / devices

    def of(self, places: Sequence[int], devices: int) -> float:
        """Return the nanoseconds of the given components, one after the other."""
        chosen = list(places)
        return float(self._starting[chosen].sum() + self._shared[chosen].sum() / devices)


class Divisions:
    """Divisions of devices among the branches of forks.

    Args:
        work: the work of the components.
        sizes: the numbers of devices that a side may have, ascending.
        states: the components that hold each state. Branches that share a state are tried both
            apart and together on one side.
    """

    def __init__(
        self, work: Work, sizes: Sequence[int], states: Sequence[Collection[int]] = ()
    ) -> None:
        self._work, self._sizes, self._states = work, sizes, states
        self._kept: dict[tuple[tuple[int, ...], int], list[Division]] = {}

    def of(self, fork: Fork, devices: int) -> list[Division]:
        """Return all divisions into at least two sides, in the order of their bounds."""
        divisions: dict[tuple[Side, ...], Division] = {}
        together = sharing_together(fork, self._states)
        for grouped in (fork,) if together is None else (fork, together):
            for sizes in self._multisets(devices, min(_MOST_SIDES, len(grouped.branches))):
                for division in self._divisions(grouped, sizes):
                    divisions.setdefault(division.sides, division)
        return sorted(divisions.values(), key=lambda each: (each.bound, len(each.sides)))

    def _best(self, fork: Fork, devices: int) -> list[Division]:
        """Return the divisions that no other beats in both bound and largest side.

        The undivided fork, on one side, is among the candidates. The first division has the least
        bound, the last has the largest side.
        """
        key = fork.places, devices
        if key not in self._kept:
            undivided = Side(devices, (fork.places,))
            divisions = [Division(self._work.of(fork.places, devices), (undivided,))]
            if fork.branches and devices > 1:
                divisions += self.of(fork, devices)
            divisions.sort(key=lambda each: (each.bound, -each.largest))
            kept: list[Division] = []
            for division in divisions:
                if not kept or division.largest > kept[-1].largest:
                    kept.append(division)
            self._kept[key] = kept
        return self._kept[key]

    def _multisets(self, devices: int, most: int) -> Iterator[tuple[int, ...]]:
        """Yield the sizes of two sides, then of three, up to ``most``. Each tuple descends."""
        multisets = (
            sizes
            for count in range(2, most + 1)
            for sizes in self._summing(devices, count, devices)
        )
        return islice(multisets, _MOST_MULTISETS)

    def _summing(self, devices: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
        """Yield descending tuples of ``count`` sizes, each at most ``most``, with a given sum."""
        if count == 1:
            if devices in self._sizes and devices <= most:
                yield (devices,)
            return
        for size in reversed(self._sizes):
            if size <= min(most, devices - count + 1) and size * count >= devices:
                for smaller in self._summing(devices - size, count - 1, size):
                    yield (size, *smaller)

    def _divisions(self, fork: Fork, sizes: Sequence[int]) -> Iterator[Division]:
        """Yield the divisions of a fork into sides of the given sizes.

        The three divisions differ in which sides are divided again: each side if that is faster,
        each but the first (largest), or none. There is no division if a side would run no branch.
        """
        branches_of_side = self._by_sides(fork, sizes)
        if not all(branches_of_side):
            return
        fastest, whole = [], []
        for branches, size in zip(branches_of_side, sizes, strict=True):
            if len(branches) == 1:
                best = self._best(branches[0], size)
            else:
                places = tuple(place for branch in branches for place in branch.places)
                best = [Division(self._work.of(places, size), (Side(size, (places,)),))]
            fastest.append(best[0])
            whole.append(best[-1])
        for parts in (fastest, [*whole[:1], *fastest[1:]], whole):
            yield self._joined(fork, parts)

    def _by_sides(self, fork: Fork, sizes: Sequence[int]) -> list[list[Fork]]:
        """Return the branches that each side runs."""
        placed: list[list[Fork]] = [[] for _ in sizes]
        busy = [0.0] * len(sizes)
        branches = sorted(fork.branches, key=lambda branch: -self._work.of(branch.places, 1))
        for branch in branches:
            ends = [
                busy[side] + self._work.of(branch.places, size) for side, size in enumerate(sizes)
            ]
            side = int(np.argmin(ends))
            busy[side] = ends[side]
            placed[side].append(branch)
        return placed

    def _joined(self, fork: Fork, parts: Sequence[Division]) -> Division:
        """Return the sides of all parts as one division, with the stem and the rest of the fork."""
        sides = [side for part in parts for side in part.sides]
        bound = max(part.bound for part in parts)
        order = sorted(range(len(sides)), key=lambda side: -sides[side].devices)
        stem_is_larger = self._work.of(fork.stem, 1) > self._work.of(fork.rest, 1)
        first, second = (order[1], order[0]) if stem_is_larger else (order[0], order[1])
        for host, places, is_rest in ((first, fork.rest, True), (second, fork.stem, False)):
            if places:
                side = sides[host]
                pieces = (*side.pieces, places) if is_rest else (places, *side.pieces)
                sides[host] = Side(side.devices, pieces)
                bound += self._work.of(places, side.devices)
        return Division(bound, tuple(sides))
