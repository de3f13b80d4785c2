"""The links of a job on several machines and the pace of its ranks, measured once and kept.

They are measured at the first planning, not in `init`: a job that plans nothing, or names a
cluster, does without them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import tensorflow as tf

from collectives import Group
from collectives.bandwidth.links import LinkTiming, across_machines, measure_links, within_machines
from collectives.operations.calls import TensorTransport
from collectives.operations.kinds.allreduce import Allreduce
from tensoropt.cost.measured_links import LinkSetting, LinkTime, MeasuredLevel, MeasuredLinks
from tensoropt.errors import PlanError
from tensoropt.execution.world.mpi_world import Transport, tensor_transport
from tensoropt.frontend.job.hardware import Hardware, rank_config
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.job.profile_files import profile_folder
from tensoropt.frontend.measuring.pace import measure_pace
from tensoropt.quiet.standard_error import write_note

__all__ = ["know_links", "links_of"]

_ACROSS_SECONDS, _WITHIN_SECONDS = 1.4, 0.4
"""Time for each level of links. Graphs and the first connections take some tenths of a second
more."""


def know_links(job: Job) -> None:
    """Measure the links of a job on several machines, or read them from the user's cache.

    Nothing happens on one machine, whose links `this-machine` describes; for a named cluster; or
    when the links are known. Every rank calls.
    """
    if not job.is_mpi or job.links is not None or len(set(job.group.hosts)) == 1:
        return
    named = job.agreement.gather("find_strategy()", job.cluster is not None)
    if not any(named):
        job.links = links_of(job.group, job.hardware, job.transport)


def links_of(group: Group, hardware: Hardware, transport: Transport) -> MeasuredLinks:
    """The links between the ranks of a group on several machines. Every rank calls.

    The first rank keeps them in a file in the user's cache, and reads it the next time.
    """
    tensors = tensor_transport(transport, group)
    across, within = across_machines(group.hosts), within_machines(group.hosts)
    ranks = Counter(group.hosts)
    carrier = _carrier(group, tensors, across)
    setting = LinkSetting(tuple(ranks), tuple(ranks.values()), hardware.cores_per_host, carrier)
    path = profile_folder() / setting.file_name
    kept = _kept(group, path)
    if kept is not None and kept.setting == setting:
        return kept
    started, config = monotonic(), rank_config(hardware)
    levels = [
        _level(measure_links(group, partition, tensors, seconds, config), partition, group.hosts)
        for partition, seconds in ((across, _ACROSS_SECONDS), (within, _WITHIN_SECONDS))
        if partition
    ]
    pace = measure_pace(group, config)
    links = MeasuredLinks(setting, levels[0], levels[1] if within else None, pace)
    if group.rank == 0:
        _keep(links, path, monotonic() - started)
    return links


def _carrier(
    group: Group, tensors: TensorTransport | None, partition: Sequence[Sequence[int]]
) -> str:
    """The name of what carries all-reduces across machines, the same on every rank."""
    name = group.library
    members = next((ranks for ranks in partition if group.ranks[group.rank] in ranks), ())
    if tensors is not None and members:
        across = group.subgroup(members)
        if tensors.carries(Allreduce("sum"), across, tf.float32):
            name = type(tensors).__name__
    return str(group.allgather_object(name)[0])


def _level(
    timings: Sequence[LinkTiming], partition: Sequence[Sequence[int]], hosts: Sequence[str]
) -> MeasuredLevel:
    at_once = Counter(hosts[rank] for ranks in partition for rank in ranks)
    times = [
        LinkTime(
            timing.kind,
            timing.bytes,
            max(1, round(timing.seconds * 1e9)),
            round(timing.processor_seconds * 1e9),
        )
        for timing in timings
    ]
    overlaps = all(timing.is_beside for timing in timings)
    return MeasuredLevel(len(partition[0]), max(at_once.values()), overlaps, tuple(times))


def _kept(group: Group, path: Path) -> MeasuredLinks | None:
    """The links in the first rank's file, on every rank; None without a file that can be read."""
    values: Any = None
    if group.rank == 0 and os.path.exists(path):  # False, too, where the user may not look
        try:
            values = MeasuredLinks.load(path).to_json()
        except PlanError as error:
            sys.stderr.write(f"tensoropt: kept links are not used: {error}\n")
    values = group.allgather_object(values)[0]
    return None if values is None else MeasuredLinks.from_json(values, str(path))


def _keep(links: MeasuredLinks, path: Path, seconds: float) -> None:
    """Write the file, and a line on standard error."""
    text = f"across machines {_figures(links.across)}"
    if links.within is not None:
        text += f", within a machine {_figures(links.within)}"
    text += f", computing {links.pace.flops_per_second / 1e9:,.0f} GFLOP/s"
    text += f" and {links.pace.bytes_per_second / 1e9:,.1f} GB/s of memory"
    kept = f"kept in {path}"
    try:
        links.save(path)
    except OSError as error:
        kept = f"not kept: {error}"
    write_note(
        f"links of {len(links.setting.hosts)} machines measured in {seconds:.1f} s, for "
        f"each rank {text}; {kept}. `mpirun ... tensoropt profile SCRIPT` measures more; remove "
        "the file to measure these anew"
    )


def _figures(level: MeasuredLevel) -> str:
    megabytes = level.bandwidth_bytes_per_second / 1e6
    beside = ", beside computation" if level.overlaps else ""
    return f"{megabytes:,.1f} MB/s and {level.latency_seconds * 1e6:,.0f} us{beside}"
