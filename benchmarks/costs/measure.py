"""Every rank: profile what random strategies run, predict their times, and run them in turn.

mpirun -np N python -m benchmarks.costs.measure MODEL STRATEGIES ROUNDS FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import median_low
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

import tensoropt
from benchmarks.costs.models import Job, job
from collectives import Group
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.measure import Measurer
from tensoropt.cost.model import ClusterCostModel, MeasuredCostModel
from tensoropt.cost.operator_times import OperatorTimes
from tensoropt.cost.profile import Overheads, Profile, measured_cluster
from tensoropt.execution.alone import emitted_alone
from tensoropt.execution.executor import Executor
from tensoropt.execution.world import MPIWorld
from tensoropt.frontend.hardware import rank_config
from tensoropt.frontend.job import current
from tensoropt.frontend.profiles import setting_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.measurable import measurable
from tensoropt.plan.step_time import step_time
from tensoropt.plan.steps import steps_priced_by
from tensoropt.search.from_graph import GraphProblem, graph_problem
from tensoropt.search.frontier_tracking import frontier_tracking

_LARGEST_BYTES = 16 * 2**20
_OPERATOR_SECONDS = 120.0
_PARTS, _OPERATORS_AFTER = 5, (3, 5)
"""The steps are in as many parts, with collectives measured before, between and after them, and
operators before them and after two parts: a machine is not as fast at all times, and caches that
others fill slow collectives down by a third."""
_TURN = 3
"""Steps of a strategy before the next one's turn; a job trains with one of them alone."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one step took."""

    seconds: float
    network_seconds: float


class BandwidthOnly(MeasuredCostModel):
    """Bytes divided by bandwidth, as the paper says of OptCNN and FlexFlow (section 5.2)."""

    __slots__ = ()

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """Time at the largest size's bandwidth, without latency."""
        del runs
        table = self._tables[kind, tuple(sorted(axes))]
        return bytes_ * table.nanoseconds[-1] / table.bytes[-1] / 1e9


def main(name: str, count: int, rounds: int, folder: Path) -> None:
    """Predict and measure the strategies of one model; rank 0 writes the result."""
    tensoropt.init()
    group, hardware = current().group, current().hardware
    step = job(name)
    cluster = hardware.cluster(group.size, load_cluster("this-machine"))
    mesh = cluster.mesh(group.size)
    guess = graph_problem(step.graph, mesh, ClusterCostModel(cluster, mesh), step.batched)
    strategies = drawn(guess, count)
    configurations = [guess.configurations(numbers) for numbers in strategies]
    profiles = [_profiled(group, folder / "profile-0.json", mesh, cluster, step, configurations)]
    price = _model(MeasuredCostModel, cluster, mesh, profiles[0]).collective_nanoseconds
    runs = [_Run(step, MPIWorld(mesh, group), chosen, price) for chosen in configurations]
    samples: list[list[Sample]] = [[] for _ in runs]
    for part in range(1, _PARTS + 1):
        for number in range(-(-rounds // _PARTS) + 1):
            for run, taken in zip(runs, samples, strict=True):
                turn = [run.step(group) for _ in range(_TURN if number else 1)]
                taken += turn[1:]  # the first emits the program; later it finds others' memory
        kept = folder / f"profile-{part}.json"
        own = configurations if part in _OPERATORS_AFTER else ()
        profiles.append(_profiled(group, kept, mesh, cluster, step, own))
    profile = _averaged(profiles)
    model = _model(MeasuredCostModel, cluster, mesh, profile)
    plain = _model(BandwidthOnly, cluster, mesh, profile)
    rows = []
    for run, taken in zip(runs, samples, strict=True):
        rows.append(
            {
                "predicted": _predicted(run, model),
                "bandwidth_only": _predicted(run, plain),
                "seconds": [sample.seconds for sample in taken],
                "network_seconds": [sample.network_seconds for sample in taken],
            }
        )
    if group.rank == 0:
        (folder / f"{name}.json").write_text(json.dumps(rows))


def drawn(problem: GraphProblem, count: int) -> list[list[int]]:
    """As many random strategies, the same ones in every process.

    Each begins at a random point of the frontier, and some of its operators get any configuration
    instead, so many that the share of edges with two ends as on the frontier is random, from none
    to all: where all get any, hundreds of operators average out and all strategies take nearly the
    same time.
    """
    random = np.random.default_rng(7)
    frontier = frontier_tracking(problem.problem).strategies
    options = np.array([len(choice.options) for choice in problem.choices])
    found = []
    for _ in range(count):
        point = frontier[random.integers(len(frontier))]
        changed = random.random(options.size) > random.random() ** 0.5
        found.append(np.where(changed, random.integers(options), point).tolist())
    return found


def _profiled(
    group: Group,
    kept: Path,
    mesh: Mesh,
    cluster: Cluster,
    step: Job,
    configurations: Sequence[Any],
) -> Profile:
    """What the strategies run, measured."""
    setting = setting_of(current().hardware, group.size, group.library)
    profile = Profile(setting, mesh.axes)
    config = rank_config(current().hardware)
    config.graph_options.rewrite_options.disable_meta_optimizer = True

    def silent(what: str, done: int, all_: int) -> None:
        del what, done, all_

    measurer = Measurer(group, profile, kept, config, silent, emitted_alone)
    measurer.collectives(_LARGEST_BYTES)
    agreement = current().agreement
    measurer.overheads(lambda: agreement.check("run(step)", ["feed_dict of 'x', shape [1]"]))
    if configurations:
        wanted = measurable(
            step.graph, mesh, cluster.device, step.batched, strategies=configurations
        )
        measurer.operators(step.script, wanted, mesh, cluster.device, _OPERATOR_SECONDS)
    measurer.finish()
    return measurer.profile


def _model(
    kind: type[MeasuredCostModel], cluster: Cluster, mesh: Mesh, profile: Profile
) -> MeasuredCostModel:
    measured = measured_cluster(cluster, profile)
    return kind(measured, mesh, OperatorTimes(profile.operators, measured.device))


def _averaged(profiles: Sequence[Profile]) -> Profile:
    """What was usual in measurements with the steps between them."""
    overheads = [astuple(each.overheads) for each in profiles if each.overheads is not None]
    return replace(
        profiles[0],
        collectives=tuple(one for each in profiles for one in each.collectives),
        operators=tuple(one for each in profiles for one in each.operators),
        overheads=Overheads(*(median_low(own) for own in zip(*overheads, strict=True))),
    )


def _predicted(run: _Run, cost: ClusterCostModel) -> dict[str, float]:
    """Seconds of the step and of its collectives."""
    time = step_time(run.strategy, cost, run.plan_steps)
    return {"seconds": time.total / 1e9, "network_seconds": time.network / 1e9}


class _Run:
    """One strategy, ready to run."""

    def __init__(self, step: Job, world: MPIWorld, configurations: Any, price: Price) -> None:
        self.plan_steps = steps = steps_priced_by(world.mesh, price)
        self.strategy = Strategy(step.graph, world.mesh, configurations, step.batched)
        self._step = step
        self._world = world
        self._executor = Executor(
            step.script,
            world,
            configurations,
            step.batched,
            steps,
            current().agreement,
            1,
            rank_config(current().hardware),
        )

    def step(self, group: Group) -> Sample:
        """Run it once; the slowest rank's time, and the network's.

        The network's time is that from when the last rank arrives at a collective to its end.
        """
        self._world.timeline = []
        group.barrier()
        started = perf_counter()
        self._executor.run([], [self._step.train], self._step.feeds)
        seconds = perf_counter() - started
        times: npt.NDArray[np.float64] = np.array(self._world.timeline, np.float64).reshape(-1, 2)
        everyone = group.allgather(times[None])  # one clock: the ranks share the machine
        network = np.maximum(everyone[:, :, 1].max(0) - everyone[:, :, 0].max(0), 0).sum()
        slowest = group.allreduce(np.array([seconds]), "max")[0]
        return Sample(float(slowest), float(network))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
