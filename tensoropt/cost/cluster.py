"""Descriptions of clusters: devices, links and memory, read from versioned JSON files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from math import gcd, prod
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Len
from pydantic import AfterValidator

from tensoropt.converters import Natural, Number, Pairs, Positive, Text, from_values, to_values
from tensoropt.cost.bandwidth_table import BandwidthTable
from tensoropt.errors import LayoutError, OptionError, PlanError
from tensoropt.json_files import parse_json, read_json
from tensoropt.parallel.mesh import Mesh

__all__ = ["MAY_LACK", "Cluster", "Device", "Kind", "Level", "cluster_names", "load_cluster"]

MAY_LACK = frozenset(
    {"device_hour_cost", "kinds", "measured", "overlaps_traffic", "processor_bytes_per_second"}
    | {"step_overhead_seconds"}
)
"""Names that a cluster file may lack."""

_FOLDER = resources.files(__package__) / "clusters"
_REMEDY = "Use a file of tensoropt/cost/clusters/ as a template."
_MOST_DEVICES = 2**20


def _with_default(rates: _Rates) -> _Rates:
    if "default" not in dict(rates):
        raise ValueError("the name 'default' is required")
    return rates


_Seconds = Annotated[Number, Ge(0), Le(1e6)]
_Rate = Annotated[Number, Ge(1), Le(1e24)]
_Rates = tuple[tuple[str, float], ...]
_Flops = Annotated[
    tuple[tuple[str, Annotated[float, Ge(1), Le(1e24)]], ...],
    Pairs(sorted),
    AfterValidator(_with_default),
]
_Shares = Annotated[
    tuple[tuple[str, Annotated[float, Ge(1e-9), Le(1)]], ...],
    Pairs(sorted),
    AfterValidator(_with_default),
]


@dataclass(frozen=True, slots=True)
class Level:
    """One level of links, which joins ``count`` groups. Each group contains the next level.

    Attributes:
        name: name of the groups, for example "machine".
        count: number of groups; None in a template, where the job gives it.
        latency_seconds: latency of one message.
        bandwidth_bytes_per_second: bandwidth of one link in each direction.
        shared_by_group: whether all devices of a group share one link (for example a network card),
            or each has its own (NVLink).
        processor_bytes_per_second: bytes of collectives that a device's processor handles in a
            second, if it computes while collectives run over these links; None if it waits for
            them.
    """

    name: Text
    count: Positive | None
    latency_seconds: _Seconds
    bandwidth_bytes_per_second: _Rate
    shared_by_group: bool
    processor_bytes_per_second: _Rate | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        name: its name.
        memory_bytes: its memory.
        peak_flops_per_second: sorted pairs of a dtype, or "default", and the peak rate.
        efficiency: sorted pairs of an operator family, or "default", and the fraction of the peak
            rate that its operators reach.
        memory_bandwidth_bytes_per_second: bandwidth of reading and writing together.
        operator_overhead_seconds: time to start one operator.
        overlaps_traffic: whether it computes while it reads and writes memory. If so, an operator
            takes the longer of both times, otherwise their sum.
    """

    name: Text
    memory_bytes: Positive
    peak_flops_per_second: _Flops
    efficiency: _Shares
    memory_bandwidth_bytes_per_second: _Rate
    operator_overhead_seconds: _Seconds
    overlaps_traffic: bool = True

    def flops_per_second(self, family: str, dtype: str) -> float:
        """Return the rate that operators of a family reach."""
        return _rate(self.peak_flops_per_second, dtype) * _rate(self.efficiency, family)


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices that differ from the others of their cluster.

    Attributes:
        name: their name.
        devices: their numbers in the whole cluster, counted machine by machine from 0.
        speed: how fast they compute, relative to `Cluster.device`.
        memory_bytes: their memory; None if it is that of `Cluster.device`.
    """

    name: Text
    devices: Annotated[tuple[Natural, ...], Len(1)]
    speed: Annotated[Number, Ge(1e-3), Le(1e3)]
    memory_bytes: Positive | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The devices and links that a plan is made for.

    Attributes:
        name: a short name.
        description: a description with the simplifications it makes.
        sources: the sources of its figures.
        levels: the levels of links, the outermost first.
        device: the device; all devices are such, except those of ``kinds``.
        safety_factor: plans use at most the device's memory divided by this factor.
        collective_overhead_seconds: time to start one collective, independent of its size.
        step_overhead_seconds: time of one training step besides operators and collectives: starting
            the session and agreeing on the call.
        measured: measured times of collectives. They take precedence over the links.
        device_hour_cost: cost of one device for an hour, in a currency of the user's choice; None
            if unknown.
        kinds: the devices that differ.
        schema: version of its file.

    Raises:
        PlanError: if it has too many devices to number, or a device of ``kinds`` is in two of them
            or not in the cluster.
    """

    name: Text
    description: Text
    sources: tuple[str, ...]
    levels: Annotated[tuple[Level, ...], Len(1, 8)]
    device: Device
    safety_factor: Annotated[Number, Ge(1), Le(1000)]
    collective_overhead_seconds: _Seconds
    step_overhead_seconds: _Seconds = 0.0
    measured: tuple[BandwidthTable, ...] = ()
    device_hour_cost: Annotated[Number, Gt(0), Le(1e12)] | None = None
    kinds: tuple[Kind, ...] = ()
    schema: Annotated[int, Ge(1), Le(1)] = 1

    def __post_init__(self) -> None:
        if (self.devices or 1) > _MOST_DEVICES:
            raise PlanError(
                f"a cluster has at most {_MOST_DEVICES:,} devices. Got {self.devices:,}; take "
                "fewer groups of a level."
            )
        numbers = sorted(number for kind in self.kinds for number in kind.devices)
        last = (self.devices or _MOST_DEVICES) - 1
        if len(set(numbers)) < len(numbers) or numbers[-1:] > [last]:
            raise PlanError(
                f"a device is of one kind, and has a number from 0 to {last}. Got devices "
                f"{numbers} of kinds; list each device once."
            )

    @property
    def devices(self) -> int | None:
        """The number of devices; None for a template."""
        counts = [level.count for level in self.levels]
        return None if None in counts else prod(count for count in counts if count is not None)

    @classmethod
    def for_hosts(
        cls,
        template: Cluster,
        devices_per_host: Sequence[int],
        memory_bytes_per_host: int,
        cores_per_host: int,
    ) -> Cluster:
        """Return the cluster of a job of CPU ranks, numbered host by host.

        The ranks of a host share its memory, memory bandwidth and cores equally. If hosts have
        different numbers of ranks, the ranks are divided into groups of the greatest common divisor
        of these numbers. All links between groups are then taken as links between hosts.
        The cluster of several hosts is named by them, such as "2 machines of 4 ranks".

        Args:
            template: a cluster of two levels, hosts and ranks, with the peak rate of one core and
                the memory bandwidth of one host.
            devices_per_host: number of ranks of every host.
            memory_bytes_per_host: memory of the smallest host.
            cores_per_host: cores of the smallest host.

        Raises:
            OptionError: if a number is not positive, or the template does not have two levels.
        """
        counts = tuple(devices_per_host)
        if not counts or min(*counts, memory_bytes_per_host, cores_per_host) < 1:
            raise OptionError(
                "a job has hosts with ranks, memory and cores. Got devices per host "
                f"{list(counts)}, {memory_bytes_per_host} bytes, {cores_per_host} cores."
            )
        if len(template.levels) != 2:
            raise OptionError(
                f"a template for hosts has two levels. Got {len(template.levels)} in "
                f"{template.name}."
            )
        most, inner = max(counts), gcd(*counts)
        share = cores_per_host / most
        between, within = template.levels
        groups_of_a_host = most // inner if between.shared_by_group else 1
        between = replace(
            between,
            count=sum(counts) // inner,
            bandwidth_bytes_per_second=between.bandwidth_bytes_per_second / groups_of_a_host,
        )
        within = replace(
            within,
            count=inner,
            bandwidth_bytes_per_second=within.bandwidth_bytes_per_second * min(1.0, share),
        )
        device = replace(
            template.device,
            memory_bytes=memory_bytes_per_host // most,
            peak_flops_per_second=tuple(
                (dtype, rate * share) for dtype, rate in template.device.peak_flops_per_second
            ),
            memory_bandwidth_bytes_per_second=template.device.memory_bandwidth_bytes_per_second
            / most,
        )
        if between.count == 1:
            return replace(template, levels=(within,), device=device)
        ranks = " and ".join(map(str, sorted(set(counts), reverse=True)))
        name = f"{len(counts)} {between.name}s of {ranks} {within.name}{'s' * (most > 1)}"
        return replace(template, name=name, levels=(between, within), device=device)

    @classmethod
    def from_json(cls, values: object, origin: str) -> Cluster:
        """The inverse of `to_json`.

        Args:
            values: the parsed file.
            origin: its path or name, for messages.

        Raises:
            PlanError: if the values break a rule.
        """
        rule = f"a cluster follows its schema. Got in {origin}"
        return from_values(cls, values, rule, _REMEDY, MAY_LACK)

    def to_json(self) -> dict[str, Any]:
        """The cluster as JSON values of its file."""
        values: dict[str, Any] = {"schema": self.schema, **to_values(self)}
        if not self.kinds:
            del values["kinds"]
        if self.device_hour_cost is None:
            del values["device_hour_cost"]
        for level in values["levels"]:
            if level["processor_bytes_per_second"] is None:
                del level["processor_bytes_per_second"]
        return values

    def level_counts(self, devices: int) -> tuple[int, ...]:
        """Return the number of groups of each level that a job uses. Inner levels are filled first.

        All groups have the same size: 12 devices on 2 machines of 8 are 6 on each. A level of a
        template has as many groups as the job needs.

        Raises:
            LayoutError: if the devices do not spread evenly, or are more than the cluster has.
        """
        counts = self._spread(devices)
        if counts is None:
            sizes = " * ".join("any" if lv.count is None else str(lv.count) for lv in self.levels)
            smaller = range(min(devices - 1, self.devices or devices), 0, -1)
            largest_fitting = next((n for n in smaller if self._spread(n) is not None), None)
            hint = "" if largest_fitting is None else f"; use {largest_fitting} devices"
            raise LayoutError(
                f"a job spreads evenly over the {sizes} devices of cluster {self.name}. "
                f"Got {devices} devices{hint}."
            )
        return counts

    def mesh(self, devices: int) -> Mesh:
        """Return the mesh of a job of ``devices`` devices.

        Raises:
            LayoutError: if the devices do not spread evenly, or are more than the cluster has.
        """
        return Mesh.of(devices, self.level_counts(devices))

    def kinds_of(self, devices: int) -> tuple[Kind | None, ...]:
        """Return the kind of each device of a job; None for `device`.

        Raises:
            LayoutError: if the devices do not spread evenly, or are more than the cluster has.
        """
        if not self.kinds:
            return (None,) * devices
        of_number = {number: kind for kind in self.kinds for number in kind.devices}
        used = self.level_counts(devices)
        limits = [level.count or count for level, count in zip(self.levels, used, strict=True)]
        places = itertools.product(*map(range, used))
        return tuple(of_number.get(_number(place, limits)) for place in places)

    def speeds(self, devices: int) -> tuple[float, ...]:
        """Return the speed of each device of a job, relative to `device`; see `kinds_of`."""
        return tuple(1.0 if kind is None else kind.speed for kind in self.kinds_of(devices))

    def memory_bytes(self, devices: int) -> int:
        """Return the memory of the device of a job that has the least; see `kinds_of`."""
        return min(self.memories(devices))

    def memories(self, devices: int, limit: int | None = None) -> tuple[int, ...]:
        """Return the bytes of memory of each device of a job; see `kinds_of`.

        Args:
            devices: the number of devices.
            limit: the memory in place of that of `device`, and the most of a kind; None for none.
        """
        memory = self.device.memory_bytes if limit is None else limit
        own = (memory if kind is None else kind.memory_bytes for kind in self.kinds_of(devices))
        known = (memory if bytes_ is None else bytes_ for bytes_ in own)
        return tuple(bytes_ if limit is None else min(bytes_, limit) for bytes_ in known)

    def of_slowest(self, devices: int) -> Cluster:
        """Return the cluster in which all devices are as slow, and have as little memory, as the
        least of a job's."""
        return self.alike(devices, min(self.speeds(devices))) if self.kinds else self

    def alike(self, devices: int, speed: float) -> Cluster:
        """Return the cluster in which all devices have one speed, and the least memory of a job's.

        Args:
            devices: the number of devices of the job.
            speed: relative to `device`.
        """
        everyone = tuple(range(self.devices or devices))
        kind = Kind("alike", everyone, speed, self.memory_bytes(devices))
        return replace(self, kinds=(kind,))

    def _spread(self, devices: int) -> tuple[int, ...] | None:
        """Return `level_counts`, None if the devices do not spread evenly."""
        return _even_counts(tuple(level.count for level in self.levels), devices)

    def __str__(self) -> str:
        return self.name


def cluster_names() -> tuple[str, ...]:
    """Return the names of the clusters that TensorOpt knows, sorted."""
    return tuple(sorted(_names()))


def load_cluster(name_or_path: str | os.PathLike[str]) -> Cluster:
    """Read a cluster by name (one of `cluster_names`) or from a JSON file.

    Raises:
        PlanError: if there is no such cluster, or its file does not follow the schema.
    """
    text = os.fspath(name_or_path) if isinstance(name_or_path, os.PathLike) else name_or_path
    if text in _names():
        file = f"{text}.json"
        return Cluster.from_json(parse_json((_FOLDER / file).read_bytes()), file)
    names = ", ".join(cluster_names())
    rule = f"a cluster is one of {names}, or the path of a whole, readable JSON file"
    return Cluster.from_json(read_json(text, rule, _REMEDY), str(text))


def _names() -> Iterator[str]:
    for entry in _FOLDER.iterdir():
        if entry.name.endswith(".json"):
            yield entry.name.removesuffix(".json")


def _even_counts(limits: tuple[int | None, ...], devices: int) -> tuple[int, ...] | None:
    """Return the counts of each level with inner levels filled first, None if they are not even."""
    if devices < 1 or not limits:
        return () if devices == 1 else None
    for groups in range(-(-devices // (limits[-1] or devices)), devices + 1):
        if devices % groups == 0:
            outer = _even_counts(limits[:-1], groups)
            if outer is not None:
                return (*outer, devices // groups)
    return None


def _number(place: Sequence[int], counts: Sequence[int]) -> int:
    """Return the number of a device of a cluster, by its place at each level."""
    number = 0
    for position, count in zip(place, counts, strict=True):
        number = number * count + position
    return number


def _rate(rates: _Rates, key: str) -> float:
    rate_of = dict(rates)
    return rate_of.get(key, rate_of["default"])
