"""Alpa's two levels (Zheng et al. 2022): stages by dynamic programming, each split by an integer
program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.errors import InfeasibleError
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem
from tensoropt.pipeline.stages.table import (
    BACKWARD,
    FIXED,
    FORWARD,
    INPUTS,
    ONCE,
    RECOMPUTES,
    SAVED,
    SENDING_BACK,
    stage_of,
    stage_rows,
)

__all__ = ["alpa", "submeshes"]

_LONGEST = 64
"""Values of the longest latency that are tried; Alpa skips values that differ little, too."""


def alpa(problem: PipelineProblem, numbers_of_microbatches: Sequence[int]) -> Pipeline:
    """The pipeline with the least latency (Alpa, section 5.2).

    A step of B microbatches takes the sum of the stages' latencies and B - 1 times the longest of
    them (equation 2). For each longest latency a dynamic program finds the least sum (equation 3).
    State: (s, k, d), the last s stages, from block k on, on d devices. A stage holds as many
    microbatches as there are stages from it on (1F1B). Submeshes are powers of two of a machine's
    devices, or whole machines. Stages keep the tensors of the backward pass or recompute, whichever
    is faster and fits. Alpa does not count sending between stages in its search; the returned
    pipeline's time does. Its number of microbatches is the user's; the fastest of several is taken.
    O(S K^2 D) for each longest latency and each of the submeshes.

    Args:
        problem: the blocks; its profile has one point for each stage.
        numbers_of_microbatches: those that are tried.

    Raises:
        InfeasibleError: if no pipeline fits the memory.
    """
    found = [pipeline for count in numbers_of_microbatches for pipeline in _fastest(problem, count)]
    if not found:
        raise InfeasibleError(
            f"the stages of a pipeline fit {problem.memory_limit} bytes of each device. Got none "
            f"that do, of {problem.blocks} blocks on {problem.devices} devices; use more devices."
        )
    return min(found, key=lambda each: each.time)


def submeshes(problem: PipelineProblem) -> tuple[int, ...]:
    """The numbers of devices of a stage: powers of two in a machine, then whole machines."""
    machine = problem.links.machine
    within = [1 << n for n in range(machine.bit_length()) if 1 << n < machine]
    return (*within, *(machine * count for count in range(1, problem.machines + 1)))


def _fastest(problem: PipelineProblem, microbatches: int) -> Iterator[Pipeline]:
    """Yield the fastest pipeline of a number of microbatches, if one fits."""
    if problem.batch % microbatches:
        return
    rows = _rows(problem, problem.batch // microbatches)
    time = rows[..., FORWARD] + rows[..., BACKWARD] + rows[..., ONCE] / microbatches
    latencies, ways = [], []  # by held microbatches - 1, each [submesh, first, last]
    for held in range(1, problem.devices + 1):
        flying = min(held, microbatches)
        again = rows[..., RECOMPUTES] == 1
        kept = np.where(again, rows[..., INPUTS], rows[..., SAVED]) * flying
        memory = rows[..., FIXED] + kept + again * rows[..., SAVED]
        own = np.where((memory <= problem.memory_limit) & (time > 0), time, np.inf)
        latencies.append(own.min(axis=-1))
        ways.append(own.argmin(axis=-1))
    known = np.unique(np.stack(latencies))
    known = known[np.isfinite(known)]
    chosen: list[tuple[int, int, int]] = []
    best = np.inf
    for longest in known[np.unique(np.linspace(0, known.size - 1, _LONGEST).astype(int))]:
        if (microbatches - 1) * longest >= best:
            break
        total, stages = _least_sum(problem, latencies, longest)
        if total + (microbatches - 1) * longest < best:
            best, chosen = total + (microbatches - 1) * longest, stages
    if chosen:
        sizes, offset, made = submeshes(problem), 0, []
        for number, (submesh, first, last) in enumerate(chosen):
            held = len(chosen) - number
            row = rows[submesh, first, last, ways[held - 1][submesh, first, last]]
            place = first, last, sizes[submesh]
            made.append(stage_of(problem, row, place, offset, min(held, microbatches)))
            offset += sizes[submesh]
        yield Pipeline.of(made, 1, microbatches, "1f1b")


def _rows(problem: PipelineProblem, microbatch: int) -> Int64Array:
    """int64[submesh, first, last, 2, 12]: `stage_rows` of every stage, keeping tensors and
    recomputing; zeros if a submesh cannot run the microbatch."""
    sizes, blocks = submeshes(problem), problem.blocks
    rows = np.zeros((len(sizes), blocks, blocks, 2, SENDING_BACK + 2), np.int64)
    for number, devices in enumerate(sizes):
        for first in range(blocks):
            for last in range(first, blocks):
                points = problem.profile(first, last, devices, microbatch, 1)
                if points is not None:
                    for again in (False, True):
                        row = stage_rows(problem, points, devices, again)[0]
                        rows[number, first, last, int(again)] = row
    return rows


def _least_sum(
    problem: PipelineProblem, latencies: Sequence[Float64Array], longest: float
) -> tuple[float, list[tuple[int, int, int]]]:
    """The least sum of latencies with no stage above the longest, and the stages in order: submesh,
    first block and last block.

    Args:
        problem: the blocks and devices.
        latencies: by the microbatches that a stage holds, less one: float64[submesh, first, last].
        longest: the longest latency of a stage.
    """
    blocks, devices, sizes = problem.blocks, problem.devices, submeshes(problem)
    after = np.full((blocks + 1, devices + 1), np.inf)  # of s - 1 stages: [first block, devices]
    after[blocks, 0] = 0
    came: list[Int64Array] = []  # [first block, devices]: submesh * blocks + last block
    best, stages = np.inf, 0
    for number in range(1, min(blocks, devices) + 1):
        own = np.where(latencies[number - 1] <= longest, latencies[number - 1], np.inf)
        value, way = np.full_like(after, np.inf), np.full(after.shape, -1, np.int64)
        for submesh, size in enumerate(sizes):
            # [first, last, devices]
            sums = own[submesh][:, :, None] + after[None, 1:, : devices + 1 - size]
            last, least = sums.argmin(axis=1), sums.min(axis=1)
            better = least < value[:blocks, size:]
            value[:blocks, size:] = np.where(better, least, value[:blocks, size:])
            coded = submesh * blocks + last
            way[:blocks, size:] = np.where(better, coded, way[:blocks, size:])
        came.append(way)
        if value[0, devices] < best:
            best, stages = value[0, devices], number
        after = value
        if not np.isfinite(after).any():
            break
    found, first, left = [], 0, devices
    for held in range(stages, 0, -1):
        submesh, last = divmod(int(came[held - 1][first, left]), blocks)
        found.append((submesh, first, last))
        first, left = last + 1, left - sizes[submesh]
    return float(best), found
