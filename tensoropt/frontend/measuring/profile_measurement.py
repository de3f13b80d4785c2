"""Measurement of this machine's profile: ``tensoropt profile``."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from pathlib import Path
from time import monotonic

import tensorflow as tf

from collectives import Group, world
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.machine_profile import Profile, Setting
from tensoropt.cost.measured_links import on_links
from tensoropt.cost.measuring.measure import Measurer, Progress, WantedCollective
from tensoropt.cost.measuring.measure_grid import differentiable_inputs, operator_grid
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import LocalOperator
from tensoropt.errors import PlanError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.alone import AS_IN_STEPS
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.hardware import hardware_of, rank_config
from tensoropt.frontend.job.profile_files import FOLDER_VARIABLE, profile_path, setting_of
from tensoropt.frontend.measuring.links import links_of
from tensoropt.frontend.measuring.reference_steps import StepsRequest, measured_steps, references
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.operators_to_measure import measurable
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem

__all__ = ["ProfileRequest", "Profiled", "by_importance", "measure_profile"]

_COLLECTIVES_SHARE = 2 / 3
"""Share of the network's time for collectives alone, if a script's steps are measured, too."""


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The settings of a measurement.

    Attributes:
        path: the file of the profile; None for the default file.
        force: whether to start anew if the file exists.
        largest_bytes: largest size of measured collectives.
        seconds: time for the operators of a script, or of the grid.
        network_seconds: time for collectives, and for starting steps of the script.
        step: returns a script's graph and its training step; if None, common operators are
            measured.
    """

    path: Path | None
    force: bool
    largest_bytes: int
    seconds: float
    network_seconds: float = inf
    step: Callable[[], tuple[tf.Graph, Request]] | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """The result of a measurement, the same on every rank.

    Attributes:
        profile: the whole profile, including earlier measurements.
        path: the file in which rank 0 keeps it.
        measured: number of measurements made this time.
        left: number of operators for which there was no time.
        left_collectives: the collectives for which there was no time.
        not_run: the reason why the script's steps could not be run and measured; empty if they ran.
        seconds: duration of the measurement.
    """

    profile: Profile
    path: Path
    measured: int
    left: int
    left_collectives: tuple[WantedCollective, ...]
    not_run: str
    seconds: float


def measure_profile(request: ProfileRequest, progress: Progress) -> Profiled:
    """Measure the missing parts of this machine's profile for this number of ranks.

    Every rank must call this.

    Raises:
        PlanError: on every rank, if the file is damaged or of another setting.
    """
    started = monotonic()
    group = world()
    hardware = hardware_of(group)
    setting = setting_of(hardware, group.size, group.library)
    path = request.path or profile_path(setting)
    cluster = hardware.cluster(group.size, load_cluster("this-machine"))
    if len(hardware.ranks_per_host) > 1:
        cluster = on_links(cluster, links_of(group, hardware, "mpi"))
    mesh = cluster.mesh(group.size)
    stored = _stored_profile(group, path, setting, mesh, request.force)
    if not stored.complete:
        _warn_of_load(group)
    config = rank_config(hardware)
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # as the executor's
    measurer = Measurer(group, stored, path, config, progress, AS_IN_STEPS)
    step = None if request.step is None else request.step()
    network_until = monotonic() + request.network_seconds
    left_collectives: list[WantedCollective] = []
    if group.size > 1:
        wanted = measurer.wanted(request.largest_bytes)
        if wanted and request.network_seconds < inf:  # ordering takes seconds, in which others wait
            planned = None if step is None else replace(step[1], cluster_at=lambda _: cluster)
            wanted = _by_importance(group, wanted, planned)
        share = 1.0 if step is None else _COLLECTIVES_SHARE
        price = ClusterCostModel(cluster, mesh).network_seconds
        left_collectives = measurer.collectives(wanted, share * request.network_seconds, price)
    ended = monotonic()
    agreement = Agreement(group)
    measurer.overheads(lambda: agreement.check("run(step)", ["feed_dict of 'x', shape [1]"]))
    script, operators, split_over = _operators(step, mesh, cluster)
    left = measurer.operators(script, operators, split_over, cluster.device, request.seconds)
    not_run = ""
    if step is not None and group.size > 1 and not _has_steps(measurer.profile, step[1]):
        network_until += monotonic() - ended  # operators have seconds of their own
        steps_request = StepsRequest(group, hardware, *step, cluster, measurer.profile)
        steps, not_run = measured_steps(steps_request, progress, network_until)
        measurer.add_steps(steps)
    measurer.finish()
    took = monotonic() - started
    return Profiled(
        measurer.profile, path, measurer.measured, left, tuple(left_collectives), not_run, took
    )


def _warn_of_load(group: Group) -> None:
    """Write a line if more programs want to run on a machine than it has cores."""
    of_ranks = group.allgather_object((os.getloadavg()[0], os.cpu_count() or 1))
    machines = dict(zip(group.hosts, of_ranks, strict=True))
    busy = [
        f"{load:.1f} on {n} cores of {host}" for host, (load, n) in machines.items() if load > n
    ]
    if busy and group.rank == 0:
        sys.stderr.write(
            "tensoropt: a machine that is measured does nothing else, or its numbers are noisy. "
            f"Got a load average of {', '.join(busy)}; end other programs, and measure with "
            "--force.\n"
        )


def _by_importance(
    group: Group, wanted: list[WantedCollective], request: Request | None
) -> list[WantedCollective]:
    """Collectives in the order that the first rank finds, on every rank."""
    order = on_first_rank(
        group, lambda: [wanted.index(each) for each in by_importance(wanted, request)]
    )
    return [wanted[number] for number in order]


def _stored_profile(group: Group, path: Path, setting: Setting, mesh: Mesh, force: bool) -> Profile:
    """The profile in rank 0's file, on every rank; an empty one without a file."""
    answer: dict[str, object] = {}
    if group.rank == 0:
        try:
            _make_folder(path.parent)
            if path.exists() and not force:
                answer = {"profile": Profile.load(path, setting).to_json()}
        except PlanError as error:
            answer = {"error": str(error)}
    answer = group.allgather_object(answer)[0]
    if "error" in answer:
        raise PlanError(str(answer["error"]))
    if "profile" in answer:
        return Profile.from_json(answer["profile"], str(path))
    return Profile(setting, mesh.axes)


def _make_folder(folder: Path) -> None:
    """Make the folder of a profile, before the measurements that it is to keep.

    Raises:
        PlanError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK) else "this user cannot write it"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise PlanError(
            f"a profile is kept in a folder that can be written. Got {str(folder)!r}: {reason}; "
            f"name a file by --output, or another folder in {FOLDER_VARIABLE}."
        )


def _has_steps(profile: Profile, request: Request) -> bool:
    digest = request.graph.digest()
    return any(step.graph == digest for step in profile.steps)


def _operators(
    step: tuple[tf.Graph, Request] | None, mesh: Mesh, cluster: Cluster
) -> tuple[tf.Graph, tuple[LocalOperator, ...], Mesh]:
    """The graph of the operators to time, the operators, and the mesh that splits them."""
    if step is None:
        script, names = operator_grid()
        graph = import_graph(script, names)
        alone = Mesh(())
        operators = measurable(
            graph, alone, cluster.device, differentiated=differentiable_inputs(graph)
        )
        return script, operators, alone
    script, request = step
    operators = measurable(request.graph, mesh, cluster.device, request.batch_placeholders)
    return script, operators, mesh


_Collective = tuple[str, tuple[int, ...], int]
"""A kind, ascending mesh axes, and the rounded power of 2 of the bytes."""
_KINDS = ("allreduce", "allgather", "reduce_scatter", "alltoall", "exchange", "broadcast")
"""Kinds by the time that steps usually spend in them, the most first."""
_COARSE = 4
"""Without a script, every fourth power of 2 is measured before the sizes between."""


def by_importance(
    wanted: Sequence[WantedCollective], request: Request | None
) -> list[WantedCollective]:
    """Return collectives in the order of the time that steps of a script spend in them.

    The smallest collective of each kind comes first, because it is the latency of all small ones.
    The steps are those of data parallelism and of random strategies, priced without measurements.
    A collective that no step needs comes last; so do all if there is no script.

    Args:
        wanted: the collectives to measure.
        request: the script's step; None without a script.
    """
    seconds = {} if request is None else _seconds_of_steps(request)

    smallest: dict[tuple[str, tuple[int, ...]], int] = {}
    for each in wanted:
        least = smallest.setdefault((each.kind, each.axes), each.wanted_bytes)
        smallest[each.kind, each.axes] = min(least, each.wanted_bytes)

    def key(collective: WantedCollective) -> tuple[float, ...]:
        power = round(log2(collective.wanted_bytes))
        # Sizes between two measured ones are interpolated, so both neighbours are needed.
        time = sum(
            seconds.get((collective.kind, collective.axes, near), 0.0)
            for near in (power - 1, power, power + 1)
        )
        between = power % _COARSE != 0
        is_larger = collective.wanted_bytes > smallest[collective.kind, collective.axes]
        return (is_larger, -time, between, _KINDS.index(collective.kind), -power)

    return sorted(wanted, key=key)


def _seconds_of_steps(request: Request) -> Mapping[_Collective, float]:
    """Return the seconds of all collectives of the steps."""
    cost = request.cost_model(request.devices)
    recorded = _Recording(cost.cluster, cost.mesh)
    problem = graph_problem(
        AnnotatedGraph.of(request.graph, cost.mesh, cost, request.batch_placeholders)
    )
    for numbers in references(problem):
        configurations = problem.configurations(numbers)
        strategy = Strategy(request.graph, cost.mesh, configurations, request.batch_placeholders)
        step_time(strategy, recorded, reads=request.reads)
    return recorded.seconds


class _Recording(ClusterCostModel):
    """A cost model that adds up the time of the collectives that it is asked for."""

    __slots__ = ("seconds",)

    def __init__(self, cluster: Cluster, mesh: Mesh) -> None:
        super().__init__(cluster, mesh)
        self.seconds = defaultdict[_Collective, float](float)

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """See `ClusterCostModel.network_seconds`."""
        time = super().network_seconds(kind, axes, bytes_, runs)
        self.seconds[kind, tuple(sorted(axes)), round(log2(max(bytes_, 1)))] += time
        return time
