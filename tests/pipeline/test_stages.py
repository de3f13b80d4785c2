"""Stages found by dynamic programs are those that enumeration finds; schedules do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import ceil
from typing import Any

import numpy as np
import pytest

from tensoropt.cost.cluster import Level
from tensoropt.errors import InfeasibleError
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.stages.frontier import Counts, pipeline_frontier
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.points import StagePoints
from tensoropt.pipeline.stages.unlike_devices import StageKind, UnlikeDevices
from tensoropt.search.watch import Watch
from tensoropt.transformations.staged.devices import devices_of_stage
from tensoropt.transformations.staged.order_of_passes import SCHEDULES
from tensoropt.transformations.staged.simulated_time import (
    SharedCores,
    simulated_step,
    step_nanoseconds,
)

WITHIN = Level("device", 2, 2e-9, 1e9, False)
ACROSS = Level("machine", 2, 9e-9, 0.5e9, True)


def random_problem(seed: int, blocks: int, points: int = 2, memory: int = 10**9) -> PipelineProblem:
    """Two machines of two devices, and whatever costs; 8 examples."""

    def profile(first: int, last: int, devices: int, size: int, copies: int) -> StagePoints | None:
        if size < devices:
            return None
        rng = np.random.default_rng([seed, first, last, devices, size, copies])
        return StagePoints(rng.integers(1, 40, (points, 14)))

    return PipelineProblem(blocks, profile, Links(2, WITHIN, ACROSS, 0.0, 1e-9), 2, 8, memory)


def of_unlike_devices(seed: int, blocks: int, memory: int) -> PipelineProblem:
    """The same with a slow device of little memory on one machine, and two on the other."""
    slow, fast = StageKind(0.5, 40), StageKind(1.0, 100)
    unlike = UnlikeDevices((slow, slow, fast, slow), 2)
    fast_profile = random_problem(seed + 1, blocks, 1).profile
    problem = random_problem(seed, blocks, 1, memory)
    return replace(problem, unlike=unlike, faster={1.0: fast_profile})


def orders(problem: PipelineProblem, copies: int) -> list[tuple[int, ...]]:
    """The orders of devices that are tried."""
    if problem.unlike is None:
        return [()]
    return [each.order for each in problem.unlike.placements(copies)]


def cuts(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a sum of so many."""
    for inner in combinations(range(1, total), parts - 1):
        ends = (0, *inner, total)
        yield tuple(b - a for a, b in pairwise(ends))


def enumerated(
    problem: PipelineProblem, aligned: bool, counts: range, again: tuple[bool, ...]
) -> Iterator[Pipeline]:
    """Every pipeline, priced here anew."""
    machine = problem.links.machine
    copies_and_orders = [(copies, order) for copies in (2, 1) for order in orders(problem, copies)]
    for (copies, order), microbatches in product(copies_and_orders, (1, 2, 4, 8)):
        devices = problem.machines // copies * machine
        size = problem.batch // copies // microbatches
        for count in counts:
            for blocks, taken in product(cuts(problem.blocks, count), cuts(devices, count)):
                offsets = [sum(taken[:n]) for n in range(count)]
                if aligned and not all(map(_aligned, offsets, taken, [machine] * count)):
                    continue
                firsts = [sum(blocks[:n]) for n in range(count)]
                places = [(f, f + b - 1) for f, b in zip(firsts, blocks, strict=True)]
                kinds = [_least_kind(problem, n, taken, copies, order) for n in range(count)]
                profiles = [
                    problem.profile_of(kind)(f, last, d, size, copies) if size else None
                    for (f, last), d, kind in zip(places, taken, kinds, strict=True)
                ]
                choices = [list(product(range(len(p)), again)) for p in profiles if p is not None]
                if len(choices) < count:
                    continue
                for chosen, schedule in product(product(*choices), SCHEDULES):
                    stages = []
                    for number, (point, recompute) in enumerate(chosen):
                        p = profiles[number]
                        assert p is not None
                        held = microbatches
                        if schedule == "1f1b" or count == 1:
                            held = min(count - number, microbatches)
                        f, b, once, fixed, saved, inputs, *sent = p.values[point].tolist()
                        memory = fixed + saved * held
                        if recompute:
                            b, memory = b + f, fixed + inputs * held + saved
                        end = offsets[number] + taken[number]
                        on, back = end % machine == 0, offsets[number] % machine == 0
                        across = [sent[n] + sent[n + 4] for n in range(4)]
                        f += _send(*(across if on else sent)[0:4:2], taken[number], on)
                        b += _send(*(across if back else sent)[1:4:2], taken[number], back)
                        stages.append(
                            Stage(*places[number], taken[number], point, recompute, f, b, once,
                                  memory)
                        )  # fmt: skip
                    most = None
                    if problem.unlike is not None:
                        most = max(
                            ceil(Fraction(stage.memory * problem.unlike.least_limit, kind.limit))
                            for stage, kind in zip(stages, kinds, strict=True)
                            if kind is not None
                        )
                    found = Pipeline.of(stages, copies, microbatches, schedule, most, order)
                    if found.memory <= problem.memory_limit:
                        yield found


def _least_kind(
    problem: PipelineProblem, number: int, taken: tuple[int, ...], *rest: Any
) -> StageKind | None:
    if problem.unlike is None:
        return None
    kinds = problem.unlike.kinds
    used = [kinds[device] for device in devices_of_stage(number, taken, *rest)]
    return StageKind(min(kind.speed for kind in used), min(kind.limit for kind in used))


def _send(bytes_: int, tensors: int, devices: int, across: bool) -> int:
    if bytes_ == 0:
        return 0
    return 10 * tensors + 2 * bytes_ * min(devices, 2) if across else 3 * tensors + bytes_


def _aligned(offset: int, devices: int, machine: int) -> bool:
    if devices <= machine:
        return offset // machine == (offset + devices - 1) // machine
    return offset % machine == 0 and devices % machine == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_frontier_is_that_of_all_pipelines(seed: int) -> None:
    blocks = 2 + seed
    problem = random_problem(seed, blocks, 2 if blocks < 5 else 1, 10**9 if seed % 2 else 120)
    every = list(enumerated(problem, True, range(1, min(blocks, 4) + 1), (False, True)))
    found = pipeline_frontier(problem)
    assert [(each.memory, each.time) for each in found] == _best(every)
    assert set(found) <= set(every)
    wanted = [each for each in every if len(each.stages) == 2 and each.microbatches in (2, 4)]
    of_two = pipeline_frontier(problem, counts=Counts((2, 2), (2, 4, 1000)))
    assert [(each.memory, each.time) for each in of_two] == _best(wanted)


def test_the_search_of_stages_ends_with_its_time() -> None:
    problem = random_problem(3, 5)
    whole = pipeline_frontier(problem)
    (one,) = known = whole[:1]
    numbers = iter(range(10**6))
    found = {}
    for seconds in (0, 5, 20, 10**6):
        # The clock goes on by a second whenever it is read.
        with Watch(seconds=seconds, clock=lambda: float(next(numbers))) as watch:
            found[seconds] = pipeline_frontier(problem, known=known)
        assert watch.ran_out == (seconds < 10**6)
        assert one in found[seconds]
    assert found[0] == known
    assert found[10**6] == whole
    with Watch(seconds=0):
        assert pipeline_frontier(problem)  # nothing is known, so the search goes on
        with pytest.raises(InfeasibleError):
            pipeline_frontier(replace(problem, time_limit=10**12))


@pytest.mark.parametrize("memory", [30, 10**9])
def test_stages_take_the_devices_that_suit_them(memory: int) -> None:
    problem = of_unlike_devices(5, 4, memory)
    every = list(enumerated(problem, True, range(1, 5), (False, True)))
    found = pipeline_frontier(problem)
    assert [(each.memory, each.time) for each in found] == _best(every)
    assert set(found) <= set(every)
    assert {each.order for each in found} > {()}


def test_machines_stay_whole_and_copies_have_machines_of_each_kind() -> None:
    slow, fast = StageKind(0.5, 1), StageKind(1.0, 1)
    unlike = UnlikeDevices((slow, slow, slow, slow, fast, fast, fast, fast), 2)
    found = {each.order: each.places for each in unlike.placements(2)}
    assert found == {
        (): (slow,) * 4,
        (0, 1, 4, 5, 2, 3, 6, 7): (slow, slow, fast, fast),
        (4, 5, 0, 1, 6, 7, 2, 3): (fast, fast, slow, slow),
    }


def _best(every: list[Pipeline]) -> list[tuple[int, int]]:
    best: list[tuple[int, int]] = []
    for memory, time in sorted((each.memory, each.time) for each in every):
        if not best or time < best[-1][1]:
            best.append((memory, time))
    return best


def test_a_step_takes_what_its_schedule_says() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        stages, microbatches = int(rng.integers(1, 6)), int(rng.integers(1, 9))
        f, b, once = rng.integers(1, 30, (3, stages)).tolist()
        zeros = [0] * stages
        flow = step_nanoseconds("gpipe", microbatches, f, b, zeros)
        assert simulated_step("gpipe", microbatches, f, b, zeros) == flow
        bound = step_nanoseconds("gpipe", microbatches, f, b, once)
        assert simulated_step("gpipe", microbatches, f, b, once) <= bound
        alike = [7] * stages, [14] * stages, zeros
        step = step_nanoseconds("1f1b", microbatches, *alike)
        assert simulated_step("1f1b", microbatches, *alike) == step
        assert simulated_step("1f1b", microbatches, f, b, zeros) >= microbatches * max(
            one + other for one, other in zip(f, b, strict=True)
        )


def test_stages_that_wait_leave_shared_cores_to_others() -> None:
    times = [7, 7], [14, 14], [4, 4]
    alone = simulated_step("1f1b", 3, *times)
    assert alone == 7 + 7 + 14 + 14 + 2 * 21 + 4
    two = SharedCores(2, (2, 2))
    # Never do both stages wait: the cores compute all the time.
    assert simulated_step("1f1b", 3, *times, two) == 3 * 21 + 4
    # One device of each stage leaves half of the cores idle where it computes alone.
    assert simulated_step("1f1b", 3, *times, SharedCores(2, (1, 1))) == alone
    assert simulated_step("1f1b", 3, *times, SharedCores(8, (2, 2))) == alone
    assert alone > simulated_step("1f1b", 3, *times, SharedCores(3, (2, 2))) > 3 * 21 + 4
    # What a stage does alone is twice as fast.
    assert simulated_step("1f1b", 1, [7, 7], [14, 14], [0, 0], two) == 2 * (3.5 + 7)
