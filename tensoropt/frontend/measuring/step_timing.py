"""The times of steps that all ranks run, and of each of their collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt

from collectives import Group
from collectives.bandwidth.timing import seconds_taken
from collectives.group import job_facts
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.slowdown_in_steps import MeasuredStep, usual_step
from tensoropt.execution.world.mpi_world import Call, MPIWorld
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import StepTraffic
from tensoropt.planner.prices.step_parts import StepTime

__all__ = ["TimedStep", "in_common_order", "median_step", "timed_step"]


@dataclass(frozen=True, slots=True, eq=False)
class TimedStep:
    """The times of one step, the same on every rank.

    Attributes:
        seconds: time of the step on the slowest rank.
        worked: the core time of the step, if ranks share cores and that of each collective is
            known; otherwise ``seconds``.
        calls: float64[C], seconds of each collective, counted from the arrival of the last rank; if
            ranks share cores, the core time in it (`collectives.bandwidth.timing.seconds_taken`).
        moves: the moves of each collective.
        rest: core time of the step outside collectives, if the network's threads run those between
            machines and each rank has one core at most; otherwise None. It has no time of waiting,
            so it is known even where the network takes most of a step.
    """

    seconds: float
    worked: float
    calls: npt.NDArray[np.float64]
    moves: tuple[tuple[StepTraffic, ...], ...]
    rest: float | None = None

    @property
    def network_seconds(self) -> float:
        """The time of all collectives."""
        return float(self.calls.sum())


def timed_step(world: MPIWorld, group: Group, run: Callable[[], object]) -> TimedStep:
    """Run and time a step. Collective: every rank of the group calls it.

    Args:
        world: the world in which the step runs.
        group: the ranks of that world.
        run: runs the step.
    """
    timeline: list[Call] = []
    world.timeline = timeline
    group.barrier()
    started, started_working = perf_counter(), process_time()
    try:
        run()
    finally:
        world.timeline = None
    own_seconds, own_work = perf_counter() - started, process_time() - started_working
    timeline = in_common_order(timeline)
    times = np.array([call[:2] for call in timeline], np.float64).reshape(1, -1, 2)
    everyone = group.allgather(times)
    if len(set(group.hosts)) == 1:  # one clock
        calls = everyone[:, :, 1].max(0) - everyone[:, :, 0].max(0)
    else:
        calls = _of_groups(everyone[:, :, 1] - everyone[:, :, 0], timeline, world.mesh)
    seconds = worked = float(group.allreduce(np.array([own_seconds]), "max")[0])
    rest, facts = None, job_facts()
    if facts.shares_cores(group.ranks) or len(set(group.hosts)) > 1:
        of_calls = [np.nan if call.worked is None else call.worked for call in timeline]
        beside = sum(call.beside for call in timeline)  # of the network's threads
        *in_calls, of_step, beside = seconds_taken([*of_calls, own_work, beside], group)
        spent = np.array(in_calls)
        if facts.shares_cores(group.ranks):
            worked = worked if np.isnan(spent).any() else float(of_step)
            calls = np.where(np.isnan(spent), calls, spent)
        if np.isnan(spent).any() and all(facts.core_share(rank) <= 1 for rank in group.ranks):
            rest = float(of_step - np.nansum(spent) - beside)
    moves = tuple(call.moves for call in timeline)
    return TimedStep(seconds, worked, np.maximum(calls, 0), moves, rest)


def _of_groups(
    seconds: npt.NDArray[np.float64], timeline: Sequence[Call], mesh: Mesh
) -> npt.NDArray[np.float64]:
    """Return float64[C], the seconds of each call, given those of each rank, float64[R, C].

    In a group the member that arrives last waits for no other, so the least time counts. Groups
    that share a link get it in turns, so the mean over groups counts.
    """
    times = np.empty(len(timeline))
    for number, call in enumerate(timeline):
        axes = tuple(sorted({axis for move in call.moves for axis in move.axes}))
        groups = mesh.partition(axes)
        times[number] = np.mean([seconds[list(ranks), number].min() for ranks in groups])
    return times


def in_common_order(timeline: Sequence[Call]) -> list[Call]:
    """Return a rank's calls by record, in an order that all ranks share.

    Calls of one record stay in the order in which they ran. The order of a timeline differs between
    ranks where the same collective runs within a machine on some ranks and across machines on
    others.
    """
    return sorted(timeline, key=lambda call: call.record)


def median_step(
    steps: Sequence[TimedStep],
    graph: str,
    alone: StepTime,
    cost: ClusterCostModel,
    microbatches: int = 1,
    reread_bytes: int = 0,
) -> MeasuredStep:
    """The medians of the step's time and of its time in collectives, over steps of one strategy.

    The time in collectives is divided among them in proportion to the median of each.

    Args:
        steps: steps of one program.
        graph: digest of its graph.
        alone: the predicted time.
        cost: the cost model of the prediction.
        microbatches: number of microbatches of a step.
        reread_bytes: see `MeasuredStep`.
    """
    calls = np.median([step.calls for step in steps], axis=0)
    network = float(np.median([step.network_seconds for step in steps]))
    if calls.sum():
        calls *= network / calls.sum()
    rests = [step.rest for step in steps if step.rest is not None]
    return usual_step(
        graph,
        float(np.median([step.worked for step in steps])),
        alone.total - alone.network + alone.hidden - alone.coordination,
        alone.coordination,
        list(zip(steps[0].moves, calls.tolist(), strict=True)),
        lambda move: cost.collective_nanoseconds(*move[:3]),
        microbatches,
        reread_bytes,
        alone.hidden / max(alone.network, 1),
        float(np.median(rests)) if rests else None,
    )
