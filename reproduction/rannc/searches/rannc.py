"""RaNNC's search for stages: Algorithms 1 and 2 (section III-C)."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import InfeasibleError
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem
from tensoropt.pipeline.stages.table import StageTable, stage_of
from tensoropt.transformations.staged.order_of_passes import Schedule, in_flight

__all__ = ["Solve", "Tables", "form_stage", "form_stage_dp"]


Tables = dict[int, StageTable]
Solve = Callable[[PipelineProblem, int, int, int, Schedule, Tables], "Pipeline | None"]
"""`form_stage_dp` or a function that replaces it."""


def form_stage(
    problem: PipelineProblem,
    schedule: Schedule = "gpipe",
    solve: Solve | None = None,
    *,
    fewest: bool = True,
) -> Pipeline:
    """Algorithm 2: stages, replicas, microbatches and copies of the pipeline, aligned to machines.

    A copy of the pipeline has the fewest machines that hold the model, and the fewest stages on
    these. The number of microbatches is the fastest power of two.

    Args:
        problem: the blocks.
        schedule: determines how many microbatches a stage holds.
        solve: finds a given number of stages; by default `form_stage_dp`.
        fewest: whether the fewest stages that fit are taken, as in the paper; otherwise the fastest
            of all numbers of stages.

    Raises:
        InfeasibleError: if no stages fit the memory.
    """
    machine, solve = problem.links.machine, solve or form_stage_dp
    found = list[Pipeline]()
    per_copy = 1
    while per_copy <= problem.machines:
        devices, copies = machine * per_copy, problem.machines // per_copy
        tables: Tables = {}
        for stages in range(machine * (per_copy - 1) + 1, devices + 1):
            microbatches = 1
            while microbatches <= problem.batch // copies:
                solution = solve(problem, stages, per_copy, microbatches, schedule, tables)
                if solution is not None:
                    found.append(solution)
                microbatches *= 2
            if found and fewest:
                return min(found, key=lambda each: each.time)
        per_copy *= 2
    if found:
        return min(found, key=lambda each: each.time)
    raise InfeasibleError(
        f"the stages of a pipeline fit {problem.memory_limit} bytes of each device. Got none that "
        f"do, of {problem.blocks} blocks on {problem.devices} devices; use more devices, a smaller "
        "batch or more blocks."
    )


def form_stage_dp(
    problem: PipelineProblem,
    stages: int,
    machines: int,
    microbatches: int,
    schedule: Schedule = "gpipe",
    tables: Tables | None = None,
) -> Pipeline | None:
    """Algorithm 1: the stages with the least sum of the longest forward and the longest backward
    time.

    State: (s, b, d), the first b blocks as s stages on d devices. Its value is the sum of the
    longest forward and the longest backward time so far; the least value of several ways is kept.
    That is exact if both times order the ways alike, as in the paper. Otherwise the sum alone does
    not order the ways; `tensoropt.pipeline.stages.frontier` is always exact. Two or more stages
    recompute, as in section IV-A. The paper prunes numbers of devices without a solution for fewer
    blocks; here those states are skipped. O(s b^2 d^2).

    Args:
        problem: the blocks; a microbatch is the batch divided by copies and microbatches.
        stages: number of stages.
        machines: machines of one copy of the pipeline.
        microbatches: number of microbatches.
        schedule: determines how many microbatches a stage holds.
        tables: tables of stages by twice the microbatches, plus 1 with recomputation; kept for the
            next number of stages.

    Returns:
        The pipeline, None if there is none.
    """
    copies = problem.machines // machines
    devices = machines * problem.links.machine
    microbatch = problem.batch // copies // microbatches
    if microbatch < 1 or stages > min(problem.blocks, devices):
        return None
    tables = {} if tables is None else tables
    again, sizes = stages > 1, range(1, devices + 1)
    key = 2 * microbatches + again
    if key not in tables:
        tables[key] = StageTable.of(problem, sizes, microbatch, copies, (again,))
    table = tables[key]
    held = [in_flight(schedule, stage, stages, microbatches) for stage in range(stages)]
    numbers = devices, problem.links.machine, problem.memory_limit
    came = _form(table.begin, table.values, np.array(held, dtype=np.int64), *numbers)
    block, device = problem.blocks, devices
    if came[stages, block, device, 2] < 0:
        return None
    found = []
    for stage in range(stages, 0, -1):
        before, device_before, row = came[stage, block, device]
        place = int(before), int(block) - 1, int(device - device_before)
        values = table.values[int(row)]
        found.append(stage_of(problem, values, place, int(device_before), held[stage - 1]))
        block, device = before, device_before
    return Pipeline.of(found[::-1], copies, microbatches, schedule)


@numba.njit(cache=True, nogil=True)
def _form(
    begin: Int64Array,
    values: Int64Array,
    held: Int64Array,
    devices: int,
    machine: int,
    memory_limit: int,
) -> Int64Array:
    """int64[stages + 1, blocks + 1, devices + 1, 3]: for each state the blocks and devices
    before its last stage, and the row of that stage; -1 if no way leads to the state."""
    stages, blocks = held.size, begin.shape[0]
    most = np.iinfo(np.int64).max
    shape = (stages + 1, blocks + 1, devices + 1)
    value = np.full(shape, most, np.int64)
    forward, backward = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    came = np.full((stages + 1, blocks + 1, devices + 1, 3), -1, np.int64)
    value[0, 0, 0] = 0
    for s in range(1, stages + 1):
        for b in range(s, blocks - stages + s + 1):
            for d in range(s, devices - stages + s + 1):
                on = 1 if d % machine == 0 else 0
                for earlier in range(s - 1, b):
                    for used in range(s - 1, d):
                        if value[s - 1, earlier, used] == most:
                            continue
                        back = 1 if used % machine == 0 else 0
                        first, size = earlier, d - used - 1
                        for row in range(begin[first, b - 1, size], begin[first, b - 1, size + 1]):
                            own = values[row]
                            flying = held[s - 1]
                            if own[7] == 1:
                                memory = own[3] + own[5] * flying + own[4]
                            else:
                                memory = own[3] + own[4] * flying
                            if memory > memory_limit:
                                continue
                            f = max(forward[s - 1, earlier, used], own[0] + own[8 + on])
                            g = max(backward[s - 1, earlier, used], own[1] + own[10 + back])
                            if f + g < value[s, b, d]:
                                value[s, b, d] = f + g
                                forward[s, b, d], backward[s, b, d] = f, g
                                came[s, b, d, 0] = earlier
                                came[s, b, d, 1] = used
                                came[s, b, d, 2] = row
    return came
