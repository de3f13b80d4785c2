"""Every rank: measure the operators of random strategies, predict their times, and run them in
turn.

The slowdown of operators in steps is learnt from other strategies, which run between them.

mpirun -np N python -m benchmarks.costs.measure MODEL STRATEGIES ROUNDS FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from statistics import median_low
from typing import Any

import tensoropt
from benchmarks.costs.models import Job, job
from collectives import Group
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.machine_profile import Overheads, Profile, measured_cluster
from tensoropt.cost.measuring.measure import Measurer
from tensoropt.cost.model import ClusterCostModel, MeasuredCostModel
from tensoropt.cost.slowdown_in_steps import MeasuredStep
from tensoropt.execution.lowering.alone import AS_IN_STEPS
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.hardware import rank_config
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.profile_files import setting_of
from tensoropt.frontend.measuring.reference_steps import references
from tensoropt.frontend.measuring.step_timing import TimedStep, median_step, timed_step
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.operators_to_measure import measurable
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.prices.step_time import step_time
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.random_strategies import random_strategies

_LARGEST_BYTES = 64 * 2**20
_OPERATOR_SECONDS = 120.0
_PARTS, _OPERATORS_AFTER = 5, (3, 5)
"""The number of parts of the steps, and the parts after which operators are measured.

Collectives are measured before, between and after the parts, operators before them and after two of
them, because the speed of a machine changes, and caches that other data fill slow collectives down
by a third.
"""
_CROWDED_PARTS, _CROWDED_OPERATORS_AFTER = 3, (2,)
"""The same numbers if ranks share cores, where all measurements take several times longer."""
_SEED = 7
_TURN = 5
"""Steps of a strategy in a turn; a job would train with one strategy."""


class BandwidthOnly(MeasuredCostModel):
    """Network time as bytes divided by bandwidth, as in OptCNN and FlexFlow (section 5.2)."""

    __slots__ = ()

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """Time at the bandwidth of the largest size, without latency."""
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
    guess = graph_problem(
        AnnotatedGraph.of(step.graph, mesh, ClusterCostModel(cluster, mesh), step.batched)
    )
    wanted = [*strategies_of(guess, count), *references(guess)]
    configurations = [guess.configurations(numbers) for numbers in wanted]
    crowded = max(hardware.ranks_per_host) > hardware.cores_per_host
    parts = _CROWDED_PARTS if crowded else _PARTS
    operators_after = _CROWDED_OPERATORS_AFTER if crowded else _OPERATORS_AFTER
    profiles = [_profiled(group, folder / "profile-0.json", mesh, cluster, step, configurations)]
    price = _model(MeasuredCostModel, cluster, mesh, profiles[0]).collective_nanoseconds
    runs = [_Run(step, MPIWorld(mesh, group), chosen, price) for chosen in configurations]
    for part in range(1, parts + 1):
        for number in range(-(-rounds // parts) + 1):
            for run in runs:
                run.turn(group, _TURN if number else 1)
        kept = folder / f"profile-{part}.json"
        own = configurations if part in operators_after else ()
        profiles.append(_profiled(group, kept, mesh, cluster, step, own))
    alone = _averaged(profiles)
    before = _model(MeasuredCostModel, cluster, mesh, alone)
    profile = replace(alone, steps=tuple(run.median_step(before) for run in runs[count:]))
    model = _model(MeasuredCostModel, cluster, mesh, profile)
    plain = _model(BandwidthOnly, cluster, mesh, alone)
    rows = []
    for run in runs[:count]:
        rows.append(
            {
                "predicted": _predicted(run, model),
                "predicted_alone": _predicted(run, before),
                "bandwidth_only": _predicted(run, plain),
                "seconds": [sample.seconds for sample in run.samples],
                "network_seconds": [sample.network_seconds for sample in run.samples],
            }
        )
    if group.rank == 0:
        profile.save(folder / f"{name}-profile.json")
        (folder / f"{name}.json").write_text(json.dumps(rows))


def strategies_of(problem: GraphProblem, count: int) -> list[list[int]]:
    """The random strategies, the same ones in every process."""
    return random_strategies(problem, count, _SEED)


def _profiled(
    group: Group,
    kept: Path,
    mesh: Mesh,
    cluster: Cluster,
    step: Job,
    configurations: Sequence[Any],
) -> Profile:
    """The measurements of the operators and collectives of the strategies."""
    setting = setting_of(current().hardware, group.size, group.library)
    profile = Profile(setting, mesh.axes)
    config = rank_config(current().hardware)
    config.graph_options.rewrite_options.disable_meta_optimizer = True

    def silent(what: str, done: int, all_: int) -> None:
        del what, done, all_

    measurer = Measurer(group, profile, kept, config, silent, AS_IN_STEPS)
    measurer.collectives(measurer.wanted(_largest_bytes(step)))
    agreement = current().agreement
    measurer.overheads(lambda: agreement.check("run(step)", ["feed_dict of 'x', shape [1]"]))
    if configurations:
        wanted = measurable(
            step.graph, mesh, cluster.device, step.batched, strategies=configurations
        )
        measurer.operators(step.script, wanted, mesh, cluster.device, _OPERATOR_SECONDS)
    measurer.finish()
    return measurer.profile


def _largest_bytes(step: Job) -> int:
    """A power of 2 that the bytes of a collective of the step hardly exceed: the gradients of
    all weights, or the largest tensor."""
    tensors = [spec for operator in step.graph for spec in operator.outputs if -1 not in spec.shape]
    most = max(4 * step.parameters, *(spec.bytes for spec in tensors))
    return min(_LARGEST_BYTES, 1 << (most - 1).bit_length())


def _model(
    kind: type[MeasuredCostModel], cluster: Cluster, mesh: Mesh, profile: Profile
) -> MeasuredCostModel:
    measured = measured_cluster(cluster, profile)
    return kind(
        measured,
        mesh,
        profile.operator_times(measured.device),
    )


def _averaged(profiles: Sequence[Profile]) -> Profile:
    """The medians of the measurements before, between and after the steps."""
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
        self.plan_steps = steps = ReshardSteps(world.mesh, price)
        self.strategy = Strategy(step.graph, world.mesh, configurations, step.batched)
        self.samples: list[TimedStep] = []
        self._step = step
        self._world = world
        self._executor = Executor(
            step.script,
            Pipeline.of_mesh(world, configurations, steps),
            StepOptions(step.batched, 1, rank_config(current().hardware)),
            current().agreement,
        )

    def turn(self, group: Group, steps: int) -> None:
        """Run some steps and record all but the first, which emits the program at first and has
        cold caches later."""

        def run() -> object:
            return self._executor.run([], [self._step.train], self._step.feeds)

        self.samples += [timed_step(self._world, group, run) for _ in range(steps)][1:]

    def median_step(self, cost: ClusterCostModel) -> MeasuredStep:
        """The median measured step, beside the prediction of a cost model."""
        time = step_time(self.strategy, cost, self.plan_steps)
        digest = self._step.graph.digest()
        return median_step(self.samples, digest, time, cost)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
