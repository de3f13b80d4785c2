"""GPipe's pipelines (Huang et al. 2019), as RaNNC compares with them (section IV-A)."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.errors import InfeasibleError
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.table import stage_of, stage_rows
from tensoropt.transformations.staged.order_of_passes import Schedule, in_flight

__all__ = ["gpipe"]


def gpipe(
    problem: PipelineProblem,
    schedule: Schedule = "gpipe",
    numbers_of_stages: Sequence[int] = (2, 4, 8, 16),
) -> Pipeline:
    """The fastest pipeline whose stages have equally many blocks and replicas.

    GPipe has no automatic partitioning, so the blocks of the problem are a model's layers; the
    first and the last block also have the operators before and after the layers. The number of
    stages divides the blocks and the devices. Stages recompute. The number of microbatches is the
    fastest power of two.

    Args:
        problem: the layers.
        schedule: schedule of the passes.
        numbers_of_stages: the numbers of stages that are tried; by default RaNNC's.

    Raises:
        InfeasibleError: if no pipeline fits the memory.
    """
    found = []
    for stages in numbers_of_stages:
        machines = _machines(problem, stages)
        if problem.blocks % stages or machines is None:
            continue
        microbatches = 1
        while microbatches <= problem.batch // (problem.machines // machines):
            pipeline = _equal(problem, stages, machines, microbatches, schedule)
            if pipeline is not None:
                found.append(pipeline)
            microbatches *= 2
    if not found:
        tried = ", ".join(map(str, numbers_of_stages))
        raise InfeasibleError(
            f"equal stages divide the layers and fit {problem.memory_limit} bytes of each device. "
            f"Got {problem.blocks} layers on {problem.devices} devices, and no such stages among "
            f"{tried}; use more devices or a smaller batch."
        )
    return min(found, key=lambda each: each.time)


def _machines(problem: PipelineProblem, stages: int) -> int | None:
    """The fewest machines whose devices make equally many replicas of each stage."""
    for machines in range(1, problem.machines + 1):
        if problem.machines % machines == 0 and machines * problem.links.machine % stages == 0:
            return machines
    return None


def _equal(
    problem: PipelineProblem, stages: int, machines: int, microbatches: int, schedule: Schedule
) -> Pipeline | None:
    copies = problem.machines // machines
    devices = machines * problem.links.machine // stages
    layers = problem.blocks // stages
    found: list[Stage] = []
    for stage in range(stages):
        first = stage * layers
        place = first, first + layers - 1, devices
        points = problem.profile(*place, problem.batch // copies // microbatches, copies)
        if points is None:
            return None
        held = in_flight(schedule, stage, stages, microbatches)
        ways = [
            stage_of(problem, row, place, stage * devices, held)
            for row in stage_rows(problem, points, devices, recompute=True)
        ]
        ways = [way for way in ways if way.memory <= problem.memory_limit]
        if not ways:
            return None
        found.append(min(ways, key=lambda way: way.forward + way.backward))
    return Pipeline.of(found, copies, microbatches, schedule)
