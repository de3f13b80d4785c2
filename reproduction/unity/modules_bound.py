"""``python -m reproduction.unity.modules_bound``: what branches inside modules can save at most.

A bound of a step of Inception-v3 on the simulated Summit: operators in sequence are data parallel
on all devices, and the branches of each module run at once, each on a part of the devices, data
parallel there (Unity, section 5.2, nested). The part is that of the best partition. It adds
up:

- kernels: what starts them is not shared by devices, all else is;
- sums of gradients among the devices that have the weight, mean of all devices: each gradient by
  itself as the search counts them; small ones without latencies, as a run packs them in buckets; or
  all without latencies, and those of batch normalisation's statistics, too;
- what forks and joins move, forward and back: a branch on a part of the devices has more examples
  of each than it had, and passes as many on, over the fastest links, and between machines over
  each machine's one link; no latencies.

Any device may be anywhere and nothing else is counted, so real plans are slower. Branches within a
branch are divided where that is faster for it alone. The last line is one JSON object: milliseconds
by devices.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from reproduction.unity.systems import request_of
from tensoropt.cost.cluster import Cluster
from tensoropt.cost.collective_time import Span, collective_seconds
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.buckets import BUCKET_SIZES
from tensoropt.pipeline.branches.decomposition import Parallel, Series, Tree, decomposed, places_of
from tensoropt.planner.searches.step_parts import StepParts

__all__: list[str] = []

_KINDS = {
    "sums one by one": 0,
    "small sums in buckets": BUCKET_SIZES.packed_bytes,
    "sums without latencies": inf,
}


@dataclass(frozen=True, slots=True)
class _Time:
    """Seconds of some operators on their devices.

    Attributes:
        waited: that every device takes, or waits for.
        sums: of gradients, mean of the devices.
    """

    waited: float = 0.0
    sums: float = 0.0

    @property
    def total(self) -> float:
        return self.waited + self.sums

    def __add__(self, other: _Time) -> _Time:
        return _Time(self.waited + other.waited, self.sums + other.sums)


class _Bound:
    """Bounds of the parts of a step.

    Args:
        parts: of the step.
        cluster: three levels: machines, groups, devices.
        devices: of all machines.
        moves: whether what forks and joins move counts.
        free_bytes: gradients of up to so many bytes are summed without latencies; infinite for
            statistics, too.
    """

    def __init__(
        self, parts: StepParts, cluster: Cluster, devices: int, moves: bool, free_bytes: float
    ) -> None:
        self._parts, self._cluster, self._moves = parts, cluster, moves
        self._free_bytes = free_bytes
        costs = parts.costs
        machines, groups, within = cluster.level_counts(devices)
        self._all = machines, groups * within
        forward, backward, _ = costs.at(costs.growth.examples // devices)
        starts = cluster.device.operator_overhead_seconds
        self._kernels = [
            starts * (1 + len(costs.differentiated.get(atom.operator, ())))
            for atom in costs.atoms.atoms
        ]
        self._work = ((forward + backward) / 1e9).tolist()
        self._gradients: dict[int, list[int]] = {}
        for name, state in costs.atoms.states.items():
            _, gradient = costs.state_bytes(name)
            if gradient:
                self._gradients.setdefault(state.atoms[0], []).append(gradient)
        self._statistics: dict[int, list[int]] = {
            place: [2 * costs.atoms.graph[atom.operator].outputs[1].bytes]
            for place, atom in enumerate(costs.atoms.atoms)
            if costs.atoms.graph[atom.operator].type.startswith("FusedBatchNorm")
        }
        self._known: dict[tuple[tuple[int, ...], int, int, bool], _Time] = {}

    @cached_property
    def tree(self) -> Tree:
        """The step."""
        edges = [(maker, reader) for maker, reader, _ in self._parts.costs.atoms.edges]
        return decomposed(range(len(self._work)), edges)

    def of_step(self, divided: bool) -> float:
        """Seconds of the step, with branches at once or in sequence."""
        return self._least(self.tree, *self._all, divided).total

    def _least(self, tree: Tree, machines: int, within: int, divided: bool = True) -> _Time:
        """On so many devices of each of so many machines."""
        places = places_of(tree)
        key = tuple(places), machines, within, divided
        if key not in self._known:
            found = [self._alike(places, machines, within)]
            if isinstance(tree, Series) and divided:
                parts = [self._least(each, machines, within) for each in tree.parts]
                found.append(sum(parts, _Time()))
            if isinstance(tree, Parallel) and divided and machines * within > 1:
                found += self._at_once(tree, machines, within)
            self._known[key] = min(found, key=lambda each: each.total)
        return self._known[key]

    def _alike(self, places: Sequence[int], machines: int, within: int) -> _Time:
        """Data parallel, one operator after the other."""
        shared = self._all[0] * self._all[1] / (machines * within)
        waited = sum(
            min(self._work[place], self._kernels[place])
            + max(0.0, self._work[place] - self._kernels[place]) * shared
            for place in places
        )
        waited += sum(
            2 * self._sum(size, machines, within, self._free_bytes < inf)
            for place in places
            for size in self._statistics.get(place, ())
        )
        gradients = [size for place in places for size in self._gradients.get(place, ())]
        sums = [self._sum(size, machines, within, size > self._free_bytes) for size in gradients]
        return _Time(waited, sum(sums))

    def _sum(self, bytes_: int, machines: int, within: int, waits: bool) -> float:
        """Of a sum over devices, by a ring over each level, that of machines by several rings where
        that is faster."""
        if machines * within == 1:
            return 0.0
        levels = self._cluster.levels
        _, groups, size = self._cluster.level_counts(self._all[0] * self._all[1])
        used = -(-within // size)
        shared = (groups * size, size, 1)
        times = []
        for rings in _products(machines):
            inside, seconds, count = 1, 0.0, 0
            for level, members in [(2, -(-within // used)), (1, used), *((0, n) for n in rings)]:
                if members > 1:
                    link = levels[level]
                    rate = link.bandwidth_bytes_per_second / shared[level]
                    wait = link.latency_seconds * waits
                    span = Span(members, inside, wait, rate, rate)
                    seconds += collective_seconds("allreduce", [span], bytes_)
                    inside, count = inside * members, count + (level == 0)
            calls = max(1, 2 * count - 1)  # scattered by each ring but the last, and gathered
            start = calls * self._cluster.collective_overhead_seconds * waits
            times.append(seconds + start)
        return min(times)

    def _at_once(self, tree: Parallel, machines: int, within: int) -> Iterator[_Time]:
        """Each partition of the branches into groups, with the best devices for each."""
        devices = machines * within
        shapes = [(m, w) for m in _parts_of(machines) for w in range(1, within + 1)]
        for groups in _partitions(list(tree.branches)):
            # By the number of devices used: what no other choice beats in both times.
            states: dict[int, list[_Time]] = {0: [_Time()]}
            for group in groups:
                after: dict[int, list[_Time]] = {}
                for m, w in shapes:
                    own = self._group(group, (machines, within), (m, w))
                    for used, known in states.items():
                        if used + m * w <= devices:
                            after.setdefault(used + m * w, []).extend(
                                _Time(
                                    max(each.waited, own.waited),
                                    each.sums + own.sums * m * w / devices,
                                )
                                for each in known
                            )
                states = {used: _unbeaten(each) for used, each in after.items()}
            yield from (each for known in states.values() for each in known)

    def _group(
        self, group: Sequence[Tree], outer: tuple[int, int], inner: tuple[int, int]
    ) -> _Time:
        """Branches one after the other, and what their fork and join move."""
        times = sum((self._least(each, *inner) for each in group), _Time())
        if not self._moves:
            return times
        places = {place for each in group for place in places_of(each)}
        return times + _Time(2 * sum(self._move(each, outer, inner) for each in self._ends(places)))

    def _ends(self, places: set[int]) -> tuple[int, int]:
        """Bytes of the whole batch that some operators read and that others read of them."""
        growth = self._parts.costs.growth
        read: set[TensorName] = set()
        made: set[TensorName] = set()
        for maker, reader, tensor in self._parts.costs.atoms.edges:
            if tensor is not None and (maker in places) != (reader in places):
                (made if maker in places else read).add(tensor)
        sizes = [
            sum(growth.tensor_bytes(each, growth.examples) for each in tensors)
            for tensors in (read, made)
        ]
        return sizes[0], sizes[1]

    def _move(self, bytes_: int, outer: tuple[int, int], inner: tuple[int, int]) -> float:
        """Seconds until a part of the devices has what all had, each its examples."""
        across, group, device = self._cluster.levels
        (machines, within), (m, w) = outer, inner
        by_device = bytes_ * (1 / (m * w) - 1 / (machines * within))
        by_machine = bytes_ * (1 / m - 1 / machines)
        _, groups, _ = self._cluster.level_counts(self._all[0] * self._all[1])
        uneven = 1 / 2 if w == 1 else (w % 2) / (2 * w)  # examples that change groups
        by_group = bytes_ / m * uneven * (groups == 2 and within == self._all[1] and w < within)
        return max(
            by_device / device.bandwidth_bytes_per_second,
            by_group / group.bandwidth_bytes_per_second,
            by_machine / across.bandwidth_bytes_per_second,
        )


def _products(number: int) -> list[tuple[int, ...]]:
    """Factors above one whose product is a number; for one the empty product."""
    if number == 1:
        return [()]
    return [
        (factor, *rest)
        for factor in range(2, number + 1)
        if number % factor == 0
        for rest in _products(number // factor)
    ]


def _parts_of(machines: int) -> list[int]:
    """Numbers of machines that a group may have: all, all but one, halves."""
    found = {machines, max(1, machines - 1)}
    while machines > 1:
        machines = -(-machines // 2)
        found.add(machines)
    return sorted(found)


def _partitions(branches: list[Tree]) -> Iterator[list[list[Tree]]]:
    """All partitions into at least two groups."""

    def split(rest: list[Tree]) -> Iterator[list[list[Tree]]]:
        if not rest:
            yield []
            return
        for groups in split(rest[1:]):
            yield [[rest[0]], *groups]
            for number, group in enumerate(groups):
                yield [*groups[:number], [rest[0], *group], *groups[number + 1 :]]

    return (groups for groups in split(branches) if len(groups) > 1)


def _unbeaten(times: Sequence[_Time]) -> list[_Time]:
    found: list[_Time] = []
    for each in sorted(times, key=lambda time: (time.waited, time.sums)):
        if not found or each.sums < found[-1].sums:
            found.append(each)
    return found


def main() -> None:
    """Print bounds, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="inception_v3")
    parser.add_argument("--devices", nargs="+", type=int, default=[12, 192])
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for devices in options.devices:
        request = request_of(options.model, devices)
        parts, cluster = StepParts.of(request, devices), request.cluster_at(devices)
        for kind, free_bytes in _KINDS.items():
            kinds = {"free moves": False, "moves": True}
            bounds = {
                name: _Bound(parts, cluster, devices, moves, free_bytes)
                for name, moves in kinds.items()
            }
            times = {"in sequence": bounds["moves"].of_step(divided=False)}
            times |= {name: bound.of_step(divided=True) for name, bound in bounds.items()}
            named = {name: round(time * 1e3, 2) for name, time in times.items()}
            named["gain"] = round(times["in sequence"] / times["moves"], 4)
            named["gain with free moves"] = round(times["in sequence"] / times["free moves"], 4)
            found.setdefault(str(devices), {})[kind] = named
            print(devices, kind, named, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
