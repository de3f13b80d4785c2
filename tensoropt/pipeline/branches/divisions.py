"""Devices divided among branches (Unity, section 5.2): which sides run which branches.

Unity gives two halves of a graph that need nothing of each other any quantities of devices, and
divides the halves again. Here a fork's branches become any number of sides. For each multiset of
numbers of devices with the sum of all, branches are placed by descending work, each where it is
finished first. A side that has one branch alone is divided again where that branch forks. What
follows a fork (the rest) runs on the largest of its sides, what comes before (the stem) on the
largest other one, or the reverse where the stem has more work.

A bound orders divisions: devices of a side share all work but the start of kernels, without sums or
resharding. State of the recursion: a fork and a number of devices, with the divisions that no other
beats in the bound and in the devices of the largest side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.pipeline.branches.forks import Fork, sharing_together

__all__ = ["Division", "Divisions", "Side", "Work"]

_MOST_SIDES = 6
"""Sides of one fork; those of nested forks come on top."""
_MOST_MULTISETS = 2000
"""Multisets of numbers of devices of one fork, those with the fewest sides first."""


@dataclass(frozen=True, slots=True)
class Side:
    """Devices and what they run.

    Attributes:
        devices: how many.
        pieces: components of each piece, in the order in which pieces run.
    """

    devices: int
    pieces: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Sides that run a fork.

    Attributes:
        bound: nanoseconds that they take at least.
        sides: in no order.
    """

    bound: float
    sides: tuple[Side, ...]

    @property
    def largest(self) -> int:
        """The devices of the largest side."""
        return max(side.devices for side in self.sides)


class Work:
    """Nanoseconds of components, of which devices share all but the start of kernels.

    Args:
        starting: float64[components], of kernels.
        shared: float64[components], on one device.
    """

    def __init__(self, starting: Float64Array, shared: Float64Array) -> None:
        self._starting, self._shared = starting, shared

    def on(self, devices: int) -> Float64Array:
        """float64[components], on so many devices."""
        return self._starting + self._shared / devices

    def of(self, places: Sequence[int], devices: int) -> float:
        """Of some components, one after the other."""
        own = list(places)
        return float(self._starting[own].sum() + self._shared[own].sum() / devices)


class Divisions:
    """Divisions of devices among the branches of forks.

    Args:
        work: of the components.
        sizes: numbers of devices that a side may have, ascending.
        states: the components that hold each state. Branches that share one are placed together,
            too.
    """

    def __init__(
        self, work: Work, sizes: Sequence[int], states: Sequence[Collection[int]] = ()
    ) -> None:
        self._work, self._sizes, self._states = work, sizes, states
        self._known: dict[tuple[tuple[int, ...], int], list[Division]] = {}

    def of(self, fork: Fork, devices: int) -> list[Division]:
        """All divisions into two and more sides, by their bounds."""
        found: dict[tuple[Side, ...], Division] = {}
        together = sharing_together(fork, self._states)
        for each in (fork,) if together is None else (fork, together):
            for sizes in self._multisets(devices, min(_MOST_SIDES, len(each.branches))):
                for division in self._placed(each, sizes):
                    found.setdefault(division.sides, division)
        return sorted(found.values(), key=lambda each: (each.bound, len(each.sides)))

    def _best(self, fork: Fork, devices: int) -> list[Division]:
        """What no other beats, undivided or not."""
        key = fork.places, devices
        if key not in self._known:
            alone = Side(devices, (fork.places,))
            every = [Division(self._work.of(fork.places, devices), (alone,))]
            if fork.branches and devices > 1:
                every += self.of(fork, devices)
            every.sort(key=lambda each: (each.bound, -each.largest))
            kept: list[Division] = []
            for each in every:
                if not kept or each.largest > kept[-1].largest:
                    kept.append(each)
            self._known[key] = kept
        return self._known[key]

    def _multisets(self, devices: int, most: int) -> Iterator[tuple[int, ...]]:
        """Descending numbers of devices of two sides, then of three and so on."""
        left = _MOST_MULTISETS
        for count in range(2, most + 1):
            for each in self._summing(devices, count, devices):
                if not left:
                    return
                left -= 1
                yield each

    def _summing(self, devices: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
        if count == 1:
            if devices in self._sizes and devices <= most:
                yield (devices,)
            return
        for size in reversed(self._sizes):
            if size <= min(most, devices - count + 1) and size * count >= devices:
                for others in self._summing(devices - size, count - 1, size):
                    yield (size, *others)

    def _placed(self, fork: Fork, sizes: Sequence[int]) -> Iterator[Division]:
        """The branches on sides of these sizes: sides as finely divided as is fastest, the largest
        one undivided, and all of them; none where a side has no branch."""
        placed = self._by_sides(fork, sizes)
        if not all(placed):
            return
        fastest, whole = [], []
        for branches, size in zip(placed, sizes, strict=True):
            if len(branches) == 1:
                best = self._best(branches[0], size)
            else:
                places = tuple(place for branch in branches for place in branch.places)
                best = [Division(self._work.of(places, size), (Side(size, (places,)),))]
            fastest.append(best[0])
            whole.append(best[-1])
        for each in (fastest, [*whole[:1], *fastest[1:]], whole):
            yield self._joined(fork, each)

    def _by_sides(self, fork: Fork, sizes: Sequence[int]) -> list[list[Fork]]:
        """The branches of each side."""
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
        """The sides of all branches, with the stem and the rest."""
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
