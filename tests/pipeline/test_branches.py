"""Where a step forks, how devices are divided among branches, and what a step takes then."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tensoropt.pipeline.branches.decomposition import decomposed
from tensoropt.pipeline.branches.divisions import Divisions, Side, Work
from tensoropt.pipeline.branches.forks import Fork, forked, sharing_together
from tensoropt.pipeline.branches.side_by_side import blocks_of, in_order
from tensoropt.pipeline.stages.pipeline import Pipeline, Stage
from tensoropt.transformations.staged.simulated_time import (
    SharedCores,
    StagePart,
    simulated_side_by_side,
)

Edges = list[tuple[int, int]]


def drawn(random: np.random.Generator) -> tuple[list[float], Edges]:
    count = int(random.integers(2, 14))
    edges = [(a, b) for b in range(count) for a in range(b) if random.random() < 0.2]
    return random.integers(1, 20, count).astype(float).tolist(), edges


def check_fork(fork: Fork, edges: Edges) -> int:
    """Returns how deep forks are nested."""
    if not fork.branches:
        return 0
    parts = [fork.stem, *(branch.places for branch in fork.branches), fork.rest]
    assert sorted(place for part in parts for place in part) == list(fork.places)
    part_of = {place: number for number, part in enumerate(parts) for place in part}
    for a, b in edges:
        if a in part_of and b in part_of and part_of[a] != part_of[b]:
            assert part_of[a] < part_of[b]
            assert part_of[a] == 0 or part_of[b] == len(parts) - 1
    return 1 + max(check_fork(branch, edges) for branch in fork.branches)


def test_forks_of_random_steps() -> None:
    random, depths = np.random.default_rng(5), [0, 0, 0]
    for _ in range(200):
        work, edges = drawn(random)
        fork = forked(decomposed(range(len(work)), edges), work)
        depths[min(2, check_fork(fork, edges))] += 1
    assert min(depths) > 10


def test_small_branches_run_with_the_rest() -> None:
    # Two towers, 0 1 and 2 within a branch that 3 ends, beside a small one, 4; 5 joins them.
    edges = [(0, 1), (1, 3), (2, 3), (3, 5), (4, 5)]
    fork = forked(decomposed(range(6), edges), [5.0, 5.0, 8.0, 1.0, 0.01, 1.0])
    assert fork == Fork((0, 1, 2, 3, 4, 5), (), (Fork((0, 1)), Fork((2,))), (3, 4, 5))
    assert forked(decomposed(range(3), [(0, 2), (1, 2)]), [9.0, 0.01, 5.0]).branches == ()


def test_branches_that_share_a_state_are_together_too() -> None:
    branches = Fork((0,)), Fork((1,)), Fork((2,))
    fork = Fork((0, 1, 2, 3), (), branches, (3,))
    both = Fork((0, 2), (), (branches[0], branches[2]))
    assert sharing_together(fork, [(0, 2), (1, 3)]) == Fork(
        fork.places, (), (both, branches[1]), (3,)
    )
    assert sharing_together(fork, [(3,)]) is None
    assert sharing_together(fork, [(0, 1, 2)]) is None
    work = Work(np.zeros(4), np.array([8.0, 5.0, 5.0, 2.0]))
    for states, bounds in (([], [12.0]), ([(0, 2)], [12.0, 15.0])):
        found = Divisions(work, (1,), states).of(fork, 2)
        assert [each.bound for each in found] == bounds
    assert {side.pieces[0] for side in found[1].sides} == {(0, 2), (1,)}


def parts_of(
    sides: tuple[Side, ...], edges: Edges, work: Work, components: int
) -> list[list[StagePart]]:
    """The parts of stages that go forward alone."""
    block = blocks_of(sides, components)
    numbers = [(stage, n) for stage, side in enumerate(sides) for n in range(len(side.pieces))]
    found: list[list[StagePart]] = []
    for stage, side in enumerate(sides):
        found.append([])
        for number, piece in enumerate(side.pieces):
            own = numbers.index((stage, number))
            needs = {numbers[block[a]] for a, b in edges if block[b] == own}
            needs = {each for each in needs if each[0] != stage}
            time = round(work.of(piece, side.devices))
            found[-1].append(StagePart(time, 0, tuple(sorted(needs))))
    return found


def test_divisions_of_random_steps_can_run_within_their_bounds() -> None:
    random, sides_found = np.random.default_rng(7), set[int]()
    for _ in range(60):
        work, edges = drawn(random)
        fork = forked(decomposed(range(len(work)), edges), work)
        if not fork.branches:
            continue
        priced = Work(np.full(len(work), 1e3), 1e6 * np.array(work))
        devices = int(random.integers(2, 7))
        for each in Divisions(priced, range(1, 7)).of(fork, devices)[:10]:
            assert sum(side.devices for side in each.sides) == devices
            places = [place for side in each.sides for piece in side.pieces for place in piece]
            assert sorted(places) == list(range(len(work)))
            sides = in_order(each.sides, edges, 6)
            if sides is None:  # stem and rest of nested forks can need each other's side
                continue
            time = simulated_side_by_side(
                parts_of(sides, edges, priced, len(work)), [0] * len(sides)
            )
            assert time <= each.bound + 20
            sides_found.add(len(sides))
    assert {2, 3, 4} <= sides_found


def test_a_division_of_towers_is_near_the_best() -> None:
    random = np.random.default_rng(11)
    for _ in range(20):
        count, devices = int(random.integers(2, 5)), int(random.integers(2, 6))
        towers = random.integers(1, 30, count).tolist()
        fork = Fork(tuple(range(count)), (), tuple(Fork((n,)) for n in range(count)))
        work = Work(np.zeros(count), np.array(towers, float))
        found = min(each.bound for each in Divisions(work, range(1, 7)).of(fork, devices))
        best = np.inf
        for placed in product(range(count), repeat=count):
            sides = [
                sum(tower for tower, side in zip(towers, placed, strict=True) if side == number)
                for number in range(count)
                if number in placed
            ]
            for sizes in product(range(1, devices), repeat=len(sides)):
                if sum(sizes) == devices:
                    best = min(best, max(a / b for a, b in zip(sides, sizes, strict=True)))
        assert best <= found <= 4 / 3 * best + 1e-9


def test_stages_lie_within_machines() -> None:
    one, two, three = (Side(n, ((n,),)) for n in (1, 2, 3))
    assert in_order((one, three, two), [], 3) == (three, two, one)
    assert in_order((one, three, two), [(1, 2)], 3) == (three, one, two)
    assert in_order((one, three), [(1, 3)], 3) is None
    assert in_order((one, two), [(1, 2), (2, 1)], 3) is None


def stage(forward: int, backward: int, once: int) -> Stage:
    return Stage(0, 0, 1, 0, False, forward, backward, once, 5)


@pytest.mark.parametrize(
    ("first", "time"),
    [(stage(30, 70, 5), 50 + 10 + 20 + 75), (stage(55, 50, 5), 55 + 10 + 20 + 68)],
)
def test_a_step_waits_for_the_longer_side_each_way(first: Stage, time: int) -> None:
    """30 and 50 forward, then 10 and 20 of the rest, back 70 and 60; and what comes once."""
    parts = [
        [StagePart(first.forward, first.backward)],
        [StagePart(50, 60), StagePart(10, 20, ((0, 0),))],
    ]
    pipeline = Pipeline.side_by_side((first, stage(60, 80, 8)), parts)
    assert (pipeline.time, pipeline.memory) == (time, 5)
    assert pipeline.simulated_time() == time
    assert pipeline.simulated_time(SharedCores(2, (1, 1))) == time


def test_stages_that_share_a_core_are_faster_where_others_wait() -> None:
    parts = [[StagePart(30, 70)], [StagePart(50, 60), StagePart(10, 20, ((0, 0),))]]
    alone = simulated_side_by_side(parts, (0, 0), SharedCores(1, (1, 1)))
    # Times are those of two devices on one core; one alone is twice as fast.
    assert alone == 30 + 20 / 2 + (10 + 20) / 2 + 60 + 10 / 2


def test_a_stage_waits_for_the_parts_that_it_reads_alone() -> None:
    """A stem of 5 that both branches read; the second stage does not wait for the first's 40."""
    parts = [
        [StagePart(5, 6), StagePart(40, 50)],
        [StagePart(20, 30, ((0, 0),)), StagePart(7, 8, ((0, 1),))],
    ]
    # Forward 5, then 40 beside 20, then 7; back 8, then 50 beside 30, then 6.
    assert simulated_side_by_side(parts, (0, 0)) == 5 + 40 + 7 + 8 + 50 + 6
