"""The links of a job on several machines, and the pace of its ranks: quick measurements, as a value
and as a file.

Without a profile, the times of a few collectives give the latency and bandwidth of each level of
links (`collectives.bandwidth.links`). The formulas of `tensoropt.cost.collective_time` are linear
in the latency and in the inverse of the bandwidth. The smallest collectives give the latency. The
largest ones give the bandwidth: their additional bytes over those of smaller ones, divided by their
additional seconds. This leaves out bytes that a link buffers, as the queue of a network card does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import gcd, inf
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

from annotated_types import Ge, Le, Len

from tensoropt.converters import Natural, Positive, Text, one_of
from tensoropt.cost.cluster import Cluster, Device, Kind, Level
from tensoropt.cost.collective_time import COLLECTIVES, Span, collective_seconds
from tensoropt.errors import PlanError
from tensoropt.json_files import read_json, write_json
from tensoropt.signed_files import FileKind

__all__ = [
    "LinkSetting",
    "LinkTime",
    "MeasuredLevel",
    "MeasuredLinks",
    "MeasuredPace",
    "at_paces",
    "kinds_of_paces",
    "on_links",
]

_REMEDY = "Remove the file: the links are then measured again."
_FILES = FileKind(5, "measured links", _REMEDY)
_SMALLER = 4
"""The largest collective is compared with the largest one of at most its bytes over this number."""
_LEAST_SHARE = 0.05
"""The least share of the time of the largest collective that its bytes take."""
_LEAST_LATENCY_SECONDS, _MOST_LATENCY_SECONDS = 1e-7, 1e6
_MOST_BANDWIDTH = 1e15  # bytes per second, of links too fast to be timed
_MOST_RANKS = 2**20
_UNLIKE = 1.25
"""Ranks are of different kinds if one is faster than the other by more than this factor."""


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """The setting in which measured links are valid.

    Attributes:
        hosts: name of every machine.
        ranks_per_host: number of ranks of every machine.
        cores_per_host: cores of the smallest machine.
        carrier: the library that carries collectives across machines.

    Raises:
        PlanError: if hosts and numbers of ranks differ in number.
    """

    hosts: Annotated[tuple[Text, ...], Len(2)]
    ranks_per_host: Annotated[tuple[Positive, ...], Len(2)]
    cores_per_host: Positive
    carrier: Text

    def __post_init__(self) -> None:
        if len(self.hosts) != len(self.ranks_per_host):
            raise PlanError(
                f"every machine has a number of ranks. Got {len(self.hosts)} machines and "
                f"{len(self.ranks_per_host)} numbers."
            )

    @property
    def file_name(self) -> str:
        """The name of the file of these links."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"links-of-{len(self.hosts)}-machines-{digest[:12]}.json"


@dataclass(frozen=True, slots=True)
class LinkTime:
    """The time of one collective on all groups of a level at once.

    Attributes:
        kind: the collective.
        bytes: bytes that a rank held before.
        nanoseconds: the least time of some runs, from the arrival of the last rank.
        processor_nanoseconds: processor time that one rank loses to it, see `LinkTiming`.
    """

    kind: Annotated[str, one_of(COLLECTIVES)]
    bytes: Positive
    nanoseconds: Positive
    processor_nanoseconds: Natural


@dataclass(frozen=True, slots=True)
class MeasuredLevel:
    """The measured collectives of one level of links.

    Attributes:
        members: number of ranks of each group.
        at_once: number of ranks of a machine that communicated at once.
        overlaps: whether a rank computes while these collectives run.
        times: the collectives; of each kind the smallest first.
    """

    members: Annotated[int, Ge(2), Le(_MOST_RANKS)]
    at_once: Annotated[int, Ge(1), Le(_MOST_RANKS)]
    overlaps: bool
    times: Annotated[tuple[LinkTime, ...], Len(1)]

    @property
    def latency_seconds(self) -> float:
        """The latency of one message: the median over the smallest collective of each kind."""
        smallest = {time.kind: time for time in reversed(self.times)}
        latencies = [time.nanoseconds / 1e9 / self._messages(time) for time in smallest.values()]
        return min(max(median(latencies), _LEAST_LATENCY_SECONDS), _MOST_LATENCY_SECONDS)

    @property
    def bandwidth_bytes_per_second(self) -> float:
        """The bandwidth of one rank while all ranks communicate."""
        moved = seconds = 0.0
        for large, small in self._large_and_small():
            more = self._moved(large) - self._moved(small)
            # Disturbances can make the smaller one the longer one.
            least = _LEAST_SHARE * large.nanoseconds
            moved += more
            seconds += max(large.nanoseconds - small.nanoseconds, least) / 1e9
        if not seconds:  # there is one size
            moved = sum(map(self._moved, self.times))
            seconds = sum(time.nanoseconds for time in self.times) / 1e9
        return min(max(moved / seconds, 1.0), _MOST_BANDWIDTH)

    @property
    def processor_bytes_per_second(self) -> float:
        """The bytes that a rank's processor handles in a second of collectives."""
        large = [large for large, _ in self._large_and_small()] or self.times
        seconds = sum(time.processor_nanoseconds for time in large) / 1e9
        return min(max(sum(map(self._moved, large)) / max(seconds, 1e-9), 1.0), _MOST_BANDWIDTH)

    def _large_and_small(self) -> list[tuple[LinkTime, LinkTime]]:
        """Return the largest collective of each kind and one of at most a quarter of its bytes.

        A kind that moves less than half as much as another one is left out.
        """
        pairs = []
        for kind in dict.fromkeys(time.kind for time in self.times):
            *smaller, large = (time for time in self.times if time.kind == kind)
            small = [time for time in smaller if _SMALLER * time.bytes <= large.bytes]
            if small:
                pairs.append((large, small[-1]))
        most = max((self._moved(large) for large, _ in pairs), default=0.0)
        return [pair for pair in pairs if 2 * self._moved(pair[0]) >= most]

    def _messages(self, time: LinkTime) -> float:
        """Return the number of messages that a rank sends one after another."""
        return collective_seconds(time.kind, [Span(self.members, 1, 1.0, inf, inf)], time.bytes)

    def _moved(self, time: LinkTime) -> float:
        """Return the number of bytes that a rank sends."""
        return collective_seconds(time.kind, [Span(self.members, 1, 0.0, 1.0, 1.0)], time.bytes)


@dataclass(frozen=True, slots=True)
class MeasuredPace:
    """The pace of the slowest rank while all ranks compute.

    Attributes:
        flops_per_second: arithmetic operations on float32 in products of matrices.
        bytes_per_second: bytes of memory, read and written together.
    """

    flops_per_second: Positive
    bytes_per_second: Positive


@dataclass(frozen=True, slots=True)
class MeasuredLinks:
    """The measured links of a job on several machines.

    Attributes:
        setting: the setting in which they are valid.
        across: links across machines.
        within: links within a machine; None if a machine has one rank.
        pace: the pace of the ranks.
    """

    setting: LinkSetting
    across: MeasuredLevel
    within: MeasuredLevel | None
    pace: MeasuredPace

    def to_json(self) -> dict[str, Any]:
        """The links as JSON values, with their digest."""
        return _FILES.signed(self)

    @classmethod
    def from_json(cls, values: object, origin: str) -> MeasuredLinks:
        """Return the links of JSON values: the inverse of `to_json`.

        Raises:
            PlanError: if the version, the schema or the digest is wrong.
        """
        return _FILES.read(cls, values, origin)

    def save(self, path: str | Path) -> None:
        """Replace the file in one operation."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> MeasuredLinks:
        """Read links that `save` wrote.

        Raises:
            PlanError: if the file cannot be read, is edited, or of another version.
        """
        rule = "measured links are a whole, readable JSON file"
        return cls.from_json(read_json(path, rule, _REMEDY), str(path))


def on_links(cluster: Cluster, links: MeasuredLinks) -> Cluster:
    """Return the cluster of a job (`Cluster.for_hosts`) with measured links and pace."""
    cluster = replace(cluster, device=_at_pace(cluster.device, links.pace))
    *outer, inner = cluster.levels
    within = inner if links.within is None else _linked(inner, links.within)
    if not outer:  # all devices are on one machine
        return replace(cluster, levels=(inner if inner.count == 1 else within,))
    (across,) = outer
    measured = links.across
    # The link of a machine is divided by the formulas among the devices of a group.
    counts = links.setting.ranks_per_host
    groups_of_a_host = max(counts) // gcd(*counts)
    bandwidth = measured.bandwidth_bytes_per_second * measured.at_once / groups_of_a_host
    across = replace(_linked(across, measured), bandwidth_bytes_per_second=max(bandwidth, 1.0))
    hosts = ", ".join(
        f"{host} ({ranks} rank{'s' if ranks > 1 else ''})"
        for host, ranks in zip(links.setting.hosts, counts, strict=True)
    )
    description = f"{cluster.description} Links measured between {hosts}."
    return replace(cluster, levels=(across, within), description=description)


def kinds_of_paces(paces: Sequence[MeasuredPace]) -> list[tuple[tuple[int, ...], float]]:
    """Return the ranks of each kind and their mean arithmetic rate, the fastest kind first.

    A kind reaches from its fastest rank to those that are slower by a factor of 1.25 at most.
    """
    flops = [pace.flops_per_second for pace in paces]
    kinds: list[list[int]] = []
    for rank in sorted(range(len(flops)), key=lambda each: -flops[each]):
        if kinds and flops[kinds[-1][0]] <= _UNLIKE * flops[rank]:
            kinds[-1].append(rank)
        else:
            kinds.append([rank])
    return [(tuple(sorted(ranks)), mean(flops[rank] for rank in ranks)) for ranks in kinds]


def at_paces(cluster: Cluster, paces: Sequence[MeasuredPace], is_measured: bool) -> Cluster:
    """Return the cluster of a job whose ranks have different paces.

    Args:
        cluster: the cluster of equal ranks.
        paces: the pace of each rank.
        is_measured: whether the device's rates were measured; they are then those of the slowest
            ranks. If not, the device gets the rates of the fastest.
    """
    kinds = kinds_of_paces(paces)
    if len(kinds) == 1:
        return cluster
    own = kinds[-1 if is_measured else 0]
    device = cluster.device
    if not is_measured:
        bytes_ = mean(paces[rank].bytes_per_second for rank in own[0])
        device = _at_pace(device, MeasuredPace(round(own[1]), round(bytes_)))
    others = tuple(
        Kind(f"{device.name} at {flops / own[1]:.2f} of its speed", ranks, round(flops / own[1], 2))
        for ranks, flops in kinds
        if ranks != own[0]
    )
    return replace(cluster, device=device, kinds=others)


def _at_pace(device: Device, pace: MeasuredPace) -> Device:
    """Return a device with the measured rates; all dtypes have the same ratio to the described."""
    ratio = pace.flops_per_second / device.flops_per_second("contraction", "float32")
    return replace(
        device,
        peak_flops_per_second=tuple(
            (dtype, rate * ratio) for dtype, rate in device.peak_flops_per_second
        ),
        memory_bandwidth_bytes_per_second=float(pace.bytes_per_second),
    )


def _linked(level: Level, measured: MeasuredLevel) -> Level:
    rate = measured.processor_bytes_per_second if measured.overlaps else None
    return replace(
        level,
        latency_seconds=measured.latency_seconds,
        bandwidth_bytes_per_second=measured.bandwidth_bytes_per_second,
        processor_bytes_per_second=rate,
    )
