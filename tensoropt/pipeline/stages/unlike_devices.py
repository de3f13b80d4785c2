"""Devices that differ in speed or memory, and the orders in which the stages of a pipeline take
them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Placement", "StageKind", "UnlikeDevices"]

_ALL_ORDERS = 3
"""Up to this number of kinds of devices all their orders are tried; else the fastest and the
slowest first."""


class StageKind(NamedTuple):
    """The kind of the devices of a stage.

    Attributes:
        speed: the speed of the slowest of them.
        limit: the memory limit of the one with the least, in bytes.
    """

    speed: float
    limit: int


@dataclass(frozen=True, slots=True)
class Placement:
    """One order of the devices of a job.

    Attributes:
        order: the devices, one copy of the pipeline after the other; empty if they are in the order
            of their numbers.
        places: the kind of each place of a copy. A stage has the same place in all copies, so it is
            the least of the devices that have this place.
    """

    order: tuple[int, ...]
    places: tuple[StageKind, ...]

    def kind_of(self, first: int, devices: int) -> StageKind:
        """Return the kind of the stage on consecutive places, from ``first`` on."""
        return _least(self.places[first : first + devices])

    def kinds_of(self, devices: int) -> set[StageKind]:
        """Return the kinds of all stages of ``devices`` devices."""
        return {self.kind_of(n, devices) for n in range(len(self.places) - devices + 1)}


@dataclass(frozen=True, slots=True)
class UnlikeDevices:
    """The devices of a job.

    Attributes:
        kinds: the speed and the memory limit of each device, in the order of their numbers.
        machine: the number of devices of a machine.
    """

    kinds: tuple[StageKind, ...]
    machine: int

    @property
    def least_limit(self) -> int:
        """The memory limit of the device that has the least."""
        return min(kind.limit for kind in self.kinds)

    def placements(self, copies: int) -> tuple[Placement, ...]:
        """Return the orders of devices that are tried, first that of their numbers.

        Machines stay whole, and copies get machines of each kind in turns. So all orders have the
        same links within and between machines.

        Args:
            copies: the copies of the pipeline, each on machines of its own.
        """
        as_numbered = tuple(range(len(self.kinds)))
        orders = dict.fromkeys([as_numbered, *self._by_kinds(copies)])
        return tuple(self._placement(order, copies) for order in orders)

    def _by_kinds(self, copies: int) -> Iterator[tuple[int, ...]]:
        """Yield the devices sorted by kind, for each order of kinds."""
        distinct = sorted(set(self.kinds))
        orders: Sequence[tuple[StageKind, ...]] = [*itertools.permutations(distinct)]
        if len(distinct) > _ALL_ORDERS:
            orders = [tuple(distinct[::-1]), tuple(distinct)]
        for kinds in orders:
            ranks = [kinds.index(kind) for kind in self.kinds]
            machines = [
                sorted(range(first, first + self.machine), key=ranks.__getitem__)
                for first in range(0, len(ranks), self.machine)
            ]
            machines.sort(key=lambda devices: [ranks[device] for device in devices])
            dealt = [machine for copy in range(copies) for machine in machines[copy::copies]]
            yield tuple(itertools.chain.from_iterable(dealt))

    def _placement(self, order: tuple[int, ...], copies: int) -> Placement:
        size = len(order) // copies
        places = tuple(_least(self.kinds[d] for d in order[place::size]) for place in range(size))
        return Placement(() if order == tuple(range(len(order))) else order, places)


def _least(kinds: Iterable[StageKind]) -> StageKind:
    speeds, limits = zip(*kinds, strict=True)
    return StageKind(min(speeds), min(limits))
