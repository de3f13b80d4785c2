"""The job that the next start will be: its machines, links and profiles."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from collectives import Group
from collectives.transport.in_process import InProcessTransport
from tensoropt.cost.measured_links import LinkSetting, MeasuredLinks
from tensoropt.elastic.hosts import NextStart
from tensoropt.errors import PlanError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.frontend.job.hardware import Hardware, RankFacts
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.job.profile_files import profile_folder, profile_for, setting_of
from tensoropt.frontend.planning.ahead.message import Message

__all__ = ["next_job"]


def next_job(message: Message, start: NextStart) -> tuple[Job, Path | None]:
    """The job of the next start, as its first rank will see it.

    The next start reads its links from a file. If there is none yet, they are those of the present
    start, which has all these machines: the latency and bandwidth of a link follow from
    measurements on any number of machines, by ranks that have as many cores.

    Returns:
        The job, and the file in which its links have to be kept; None if they are kept there.

    Raises:
        PlanError: the present links are not those of the next start, or a file is damaged.
    """
    hardware = Hardware.of(_ranks_of(message, start))
    devices = sum(start)
    links, path = _links_of(message, hardware)
    job = Job(
        Group(InProcessTransport()),
        is_mpi=True,
        devices=devices,
        hardware=hardware,
        cluster=message.cluster,
        seed=0,
        agreement=Agreement(None),
        transport=message.transport,
        links=links,
        paces=(),
    )
    if message.cluster is None:
        counts = range(1, devices + 1)
        settings = {count: setting_of(hardware, count, message.library) for count in counts}
        job.profiles = {count: profile_for(setting) for count, setting in settings.items()}
    return job, path


def _ranks_of(message: Message, start: NextStart) -> list[RankFacts]:
    """The ranks of the next start; further ranks of a machine are like its last one."""
    hosts = dict.fromkeys(rank.host for rank in message.ranks)
    ranks: list[RankFacts] = []
    for host, count in zip(hosts, start, strict=True):
        present = [rank for rank in message.ranks if rank.host == host]
        ranks += (present + [present[-1]] * count)[:count]
    return ranks


def _links_of(message: Message, hardware: Hardware) -> tuple[MeasuredLinks | None, Path | None]:
    counts = Counter(rank.host for rank in hardware.ranks)
    measured = message.links
    if measured is None or len(counts) == 1:
        return None, None
    present, cores = measured.setting, hardware.cores_per_host
    setting = LinkSetting(tuple(counts), tuple(counts.values()), cores, present.carrier)
    path = profile_folder() / setting.file_name
    if path.exists():
        return MeasuredLinks.load(path), None
    fewest, most = present.cores_per_host, max(present.ranks_per_host)
    if (cores, max(counts.values())) != (fewest, most):
        raise PlanError(
            "links are known for ranks that have as many cores as those which measured them. Got "
            f"{max(counts.values())} ranks on {cores} cores after {most} on {fewest}; the next "
            "start measures them."
        )
    return replace(measured, setting=setting), path
