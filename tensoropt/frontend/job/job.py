"""The job: this process's ranks, the cluster they run on, and what the script has built so far."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import tensorflow as tf

from collectives import Group, world
from collectives.horovod.module import horovod_module
from collectives.transport.in_process import InProcessTransport
from collectives.transport.launch import available_cores, detect
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.machine_profile import Profile, measured_cluster
from tensoropt.cost.measured_links import MeasuredLinks, MeasuredPace, at_paces, on_links
from tensoropt.errors import OptionError, StateError
from tensoropt.execution.agreement.agreement import SCRIPT_END, Agreement
from tensoropt.execution.agreement.fed_values import CHECK_FEEDS_EVERY
from tensoropt.execution.agreement.work_beside import WorkBeside
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.runtime.step_trace import StepTrace
from tensoropt.execution.world.mpi_world import Transport
from tensoropt.frontend.job import copies, failure, interruption
from tensoropt.frontend.job.dry_run import DryRun
from tensoropt.frontend.job.gpus import see_own_gpu
from tensoropt.frontend.job.hardware import Hardware, hardware_of, idle_cores, keep_freed_memory
from tensoropt.frontend.job.profile_files import profile_for, setting_of
from tensoropt.frontend.job.settings import (
    SAME_SETTINGS,
    check_intervals,
    checked_transport,
    device_count,
    saves_beside,
    setting_lines,
    trace_folder,
)
from tensoropt.plan import Plan
from tensoropt.plan.amounts import devices_of
from tensoropt.plan.comparison import ExecutedSteps, InputShare
from tensoropt.planner.request import Request

__all__ = [
    "Job",
    "Running",
    "at_shutdown",
    "at_start",
    "current",
    "in_dry_run",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
    "started",
]


@dataclass(slots=True)
class Running:
    """A graph that runs.

    Attributes:
        executor: runs the graph.
        plan: the plan of the executor; None if each device runs the whole graph.
        steps: measured costs of the plan's steps, which runs add.
        forward_searched: the fetched operators of runs for which a plan without gradients was
            searched.
        input_wait: how long steps waited for input; None if it is not measured.
        forward: the plans without gradients that were found, by fetched operators.
        is_default: whether it was TensorFlow's default graph when it got its plan.
    """

    executor: Executor
    plan: Plan | None = None
    steps: ExecutedSteps = field(default_factory=ExecutedSteps)
    forward_searched: set[tuple[str, ...]] = field(default_factory=set)
    input_wait: InputShare | None = None
    forward: dict[tuple[str, ...], Plan] = field(default_factory=dict)
    is_default: bool = False


@dataclass(slots=True)
class Job:
    """The state of the job that `init` starts, and that later calls change.

    Attributes:
        group: the ranks of the job, without those that a plan on fewer devices has ended.
        is_mpi: whether each rank is a process of its own.
        devices: number of devices: the ranks under MPI, the virtual ranks in one process.
        hardware: the machines it runs on.
        cluster: the named cluster to plan for. A template is filled in with the hardware, and so is
            the default template if this is None.
        seed: seed of random operators without one; the same on all ranks.
        agreement: checks that all ranks of the group make the same call.
        transport: the library for collectives between processes.
        check_feeds_every: see `FedValues`.
        trace: the timeline of steps' operators; None unless the user asked for it.
        config: configuration of the script's sessions.
        searched: the last plan that was searched, and its request.
        graphs: the graphs that run.
        script: the current graph, which need not run yet; None before the first.
        draws: counters of the random operators, for runs without a session.
        dry_run: the settings of a dry run; None in a real run.
        links: the measured links of several machines; None until they are measured, or on one.
        paces: the pace of each rank if ranks differ; empty if they do not, None until it is known.
        profiles: cache of `profile_at`, by number of devices.
        warned_of_share: whether a batch that looks like one rank's share has been reported.
        check_every: number of steps between two comparisons of variables; 0 for never.
        ran_plan: whether anything has run under a plan.
        save_beside: whether saves return before their files are written.
        beside: the save whose files are being written.
    """

    group: Group
    is_mpi: bool
    devices: int
    hardware: Hardware
    cluster: Cluster | None
    seed: int
    agreement: Agreement
    transport: Transport = "mpi"
    check_feeds_every: int = CHECK_FEEDS_EVERY
    trace: StepTrace | None = None
    config: tf.compat.v1.ConfigProto | None = None
    searched: tuple[Plan, Request] | None = None
    graphs: dict[tf.Graph, Running] = field(default_factory=dict)
    script: tf.Graph | None = None
    draws: Draws = field(default_factory=Draws)
    dry_run: DryRun | None = None
    links: MeasuredLinks | None = None
    paces: tuple[MeasuredPace, ...] | None = None
    profiles: dict[int, Profile | None] = field(default_factory=dict)
    warned_of_share: bool = False
    check_every: int = 0
    ran_plan: bool = False
    save_beside: bool = False
    beside: WorkBeside = field(default_factory=WorkBeside)

    @property
    def running(self) -> Running | None:
        """The current graph, if it runs."""
        return self.graphs.get(self.script)

    @property
    def plan(self) -> Plan | None:
        """The plan of the current graph; None without one."""
        return None if self.running is None else self.running.plan

    @property
    def executor(self) -> Executor | None:
        """The executor of the current graph; None if it does not run."""
        return None if self.running is None else self.running.executor

    def cluster_at(self, devices: int) -> Cluster:
        """The cluster for a search on this many devices: hardware and network facts."""
        cluster = self.cluster if self.cluster is not None else load_cluster("this-machine")
        if cluster.devices:
            return cluster
        cluster = self.hardware.cluster(devices, cluster)
        if self.links is not None and self.cluster is None:
            cluster = on_links(cluster, self.links)
        profile = self.profile_at(devices)
        if profile is not None:
            cluster = measured_cluster(cluster, profile)
        if not self.paces:
            return cluster
        is_measured = profile is not None or self.links is not None
        return at_paces(cluster, self.paces[:devices], is_measured)

    def profile_at(self, devices: int) -> Profile | None:
        """The profile of this machine with this many ranks; None if there is none, or if the job
        has a named cluster."""
        if self.cluster is not None:
            return None
        if devices not in self.profiles:
            setting = setting_of(self.hardware, devices, self.group.library)
            self.profiles[devices] = profile_for(setting)
        return self.profiles[devices]


# The state of the process: functions such as `init` and `rank` get no object, MPI starts once, and
# hooks on TensorFlow's classes hold for the whole process.
_job: Job | None = None
_everyone: Agreement | None = None  # kept until the process ends, because MPI starts once
_dry_run: DryRun | None = None
# (install, remove, whether a job of one process needs it)
_hooks: list[tuple[Callable[[], None], Callable[[], None], bool]] = []
_forgetting: list[Callable[[], None]] = []  # called at shutdown


def at_start(
    install: Callable[[], None], remove: Callable[[], None], is_for_one: bool = False
) -> None:
    """Call ``install`` when a job of several processes starts, and ``remove`` in `shutdown`.

    With ``is_for_one`` it installs when a job of one process starts, too.
    """
    _hooks.append((install, remove, is_for_one))


def at_shutdown(forget: Callable[[], None]) -> None:
    """Call ``forget`` when a job ends in `shutdown`, before its executors are closed."""
    _forgetting.append(forget)


@contextmanager
def in_dry_run(dry_run: DryRun) -> Iterator[None]:
    """A context in which the next `init` starts a dry run, without MPI.

    A script that runs in it ends with an exception of `tensoropt.frontend.job.dry_run`.
    """
    global _dry_run
    shutdown()
    _dry_run = dry_run
    try:
        yield
    finally:
        shutdown()
        _dry_run = None


def init(
    devices: int | None = None,
    cluster: str | os.PathLike[str] | None = None,
    transport: str | None = None,
    allow_copies: bool | None = None,
    save_beside: bool | None = None,
    **unknown: NoReturn,
) -> None:
    """Start TensorOpt: join the other ranks and collect facts about hardware and network.

    Under ``mpirun -np N`` there are N devices, one per process. Without it the job is a single
    process with one device, or with ``devices`` virtual ones.

    Args:
        devices: number of virtual ranks in one process; under MPI the number of ranks, which
            may be left out. The environment variable ``TENSOROPT_DEVICES`` is the default.
        cluster: name or path of a cluster file to plan for; by default this machine.
        transport: the library for collectives between processes: "mpi", or "horovod", which must be
            installed. The environment variable ``TENSOROPT_TRANSPORT`` is the default, and "mpi"
            without it. A single process does not use it.
        allow_copies: whether each of several ranks may train a separate copy outside of a plan. The
            environment variable ``TENSOROPT_ALLOW_COPIES`` (1) is the default; without it, training
            outside of a plan is an error.
        save_beside: whether a save returns once the variables are copied, and threads write the
            files while steps go on. The environment variable ``TENSOROPT_SAVE_BESIDE`` (1) is the
            default; without it, a save returns when the files are complete.

    `rank`, `size`, `local_rank`, `local_size` and `parallelize` start the job if it has not
    started. A later call may name the cluster, as long as there is no plan for another one, allow
    or refuse copies, and change ``save_beside``.

    Raises:
        OptionError: for an unknown argument or transport, if ``devices`` contradicts the number of
            ranks, if the job has started with other devices or another transport, or if
            ``TENSOROPT_TRACE`` names no folder that can be made.
        PlanError: if the cluster file is malformed.
        TransportError: if Horovod is requested and cannot be used.
        StateError: under MPI, if TensorFlow has already started its GPUs.
    """
    global _everyone, _job
    OptionError.refuse(unknown, init)
    if _job is not None:
        _adjust(_job, devices, cluster, transport, allow_copies)
        if save_beside is not None:
            _job.save_beside = save_beside
        return
    carrier = checked_transport(transport)
    if _dry_run is not None:
        _job = _dry_run_job(_dry_run)
        return
    interruption.install()
    group = world()
    if _everyone is None:
        _everyone = Agreement(group, failure.end_job)
        if group.size > 1:
            failure.install(group, _agree_on_the_end)
    count = device_count(group, devices)
    named = load_cluster(cluster) if cluster is not None else None
    check_every, check_feeds_every = check_intervals()
    is_beside = saves_beside(save_beside)
    settings = setting_lines(carrier, check_every, check_feeds_every, is_beside)
    _everyone.check("init()", settings, SAME_SETTINGS)
    if carrier == "horovod" and group.size > 1:
        horovod_module(group)
    elif carrier == "horovod":
        sys.stderr.write(
            "tensoropt: Horovod carries collectives between processes, of which there is one here; "
            "start more with mpirun\n"
        )
    keep_freed_memory()
    seed = int(group.allgather_object(secrets.randbits(31))[0])
    is_mpi = group.size > 1
    if is_mpi:
        see_own_gpu(group.local_rank())
    hardware = hardware_of(group)
    if group.rank == 0 and (idle := idle_cores(hardware, available_cores(), detect())):
        sys.stderr.write(f"tensoropt: {idle}\n")
    folder = trace_folder()
    trace = None if folder is None else StepTrace(folder, group.rank)
    _job = Job(group, is_mpi, count, hardware, named, seed, _everyone, carrier)
    _job.trace = trace
    _job.check_every = check_every if count > 1 else 0
    _job.check_feeds_every = check_feeds_every
    _job.save_beside = is_beside
    copies.decide(_job.is_mpi, count, allow_copies)
    for install, _, is_for_one in _hooks:
        if is_mpi or is_for_one:
            install()


def _adjust(
    job: Job,
    devices: int | None,
    cluster: str | os.PathLike[str] | None,
    transport: str | None,
    allow_copies: bool | None,
) -> None:
    """Apply the arguments of a call of `init` after the job has started.

    Raises:
        OptionError: if the job would have to start again.
    """
    if job.dry_run is not None:
        return
    if devices not in (None, job.devices):
        _refuse_late(f"devices={devices}", devices_of(job.devices))
    if transport is not None and checked_transport(transport) != job.transport:
        _refuse_late(f"transport={transport!r}", f"transport={job.transport!r}")
    if cluster is not None:
        named = load_cluster(cluster)
        if job.plan is not None and named != job.cluster:
            _refuse_late(f"cluster={str(cluster)!r}", "a plan for another cluster")
        job.cluster = named
    if allow_copies is not None:
        copies.decide(job.is_mpi, job.group.size, allow_copies)


def _refuse_late(argument: str, present: str) -> NoReturn:
    raise OptionError(
        f"a job starts once, at the first call of init, rank, size or parallelize. Got "
        f"init({argument}) in a job with {present}; call init with its arguments before the others."
    )


def _dry_run_job(dry_run: DryRun) -> Job:
    """The job of a dry run: one process. Nothing runs, so nothing is drawn from its seed."""
    group = Group(InProcessTransport())
    return Job(
        group=group,
        is_mpi=False,
        devices=dry_run.devices,
        hardware=hardware_of(group),
        cluster=dry_run.cluster,
        seed=0,
        agreement=Agreement(None),
        dry_run=dry_run,
    )


def _agree_on_the_end() -> None:
    """Check that the script has ended on the ranks that the plan uses, then on all ranks."""
    if _job is not None:
        _job.beside.wait()
        copies.check_end(_job.ran_plan)
    if _job is not None and _job.agreement is not _everyone:
        _job.agreement.check(SCRIPT_END)
    if _everyone is not None:
        _everyone.check(SCRIPT_END)


def current() -> Job:
    """The job.

    Raises:
        StateError: before `init`.
    """
    if _job is None:
        raise StateError(
            "TensorOpt is started before it is used. Got a call before init; call "
            "tensoropt.init() at the top of the script."
        )
    return _job


def started() -> Job:
    """The job; `init` starts it now if it has not started."""
    if _job is None:
        init()
    return current()


def shutdown() -> None:
    """Forget the job: its plan, sessions and variables. `init` may be called again afterwards.

    The script's variables get the values that parallel steps computed, so every rank must call
    this. Under MPI, a call during the handling of an exception does not contact other ranks, and
    these values are lost.
    """
    job = _job
    with ExitStack() as steps:  # the last first, and each whether or not others fail
        steps.callback(_leave)
        if job is not None:
            for running in job.graphs.values():
                steps.callback(running.executor.close)
            for forget in reversed(_forgetting):
                steps.callback(forget)
            if sys.exc_info()[0] is None or not job.is_mpi:
                steps.callback(job.beside.wait)


def _leave() -> None:
    """Remove the hooks of the job, and the job."""
    global _job
    copies.remove()
    for _, remove, _ in _hooks:
        remove()
    _job = None


def is_initialized() -> bool:
    """Whether the job has started. The question does not start it."""
    return _job is not None


def rank() -> int:
    """Number of this process among all, from 0; 0 in the single-process world."""
    return int(started().group.rank)


def size() -> int:
    """Number of devices of the job."""
    return started().devices


def local_rank() -> int:
    """Number of this process among those on its machine, from 0."""
    return int(started().group.local_rank())


def local_size() -> int:
    """Number of the job's processes on this machine; all devices in the single-process world."""
    job = started()
    return int(job.group.local_size()) if job.is_mpi else job.devices
