"""Where a step falls into branches, what sides are made of them, and what a step takes then."""

from __future__ import annotations

import numpy as np

from tensoropt.pipeline.branches.forks import REST, Fork, find_fork, two_sides
from tensoropt.pipeline.stages.pipeline import Pipeline, Stage
from tensoropt.transformations.staged.schedule import SharedCores, simulated_step


def beside_largest(parts: list[set[int]], work: list[float]) -> float:
    sums = sorted((sum(work[place] for place in part) for part in parts), reverse=True)
    return sum(sums[1:])


def fallen_apart(kept: set[int], edges: list[tuple[int, int]]) -> list[set[int]]:
    """The connected parts of some components."""
    found: list[set[int]] = []
    for place in sorted(kept):
        own = {place}
        linked = [e for e in edges if place in e and set(e) <= kept]
        own.update(each for edge in linked for each in edge)
        for other in [part for part in found if part & own]:
            found.remove(other)
            own |= other
        found.append(own)
    return found


def test_a_fork_has_most_work_beside_its_largest_branch() -> None:
    random = np.random.default_rng(5)
    forks = 0
    for _ in range(200):
        count = int(random.integers(2, 9))
        edges = [(a, b) for b in range(count) for a in range(b) if random.random() < 0.3]
        work = random.integers(1, 20, count).astype(float).tolist()
        best = beside_largest(fallen_apart(set(range(count)), edges), work)
        for join in range(count):
            before = fallen_apart(set(range(join)), edges)
            if sum(any((a, join) in edges for a in part) for part in before) < 2:
                continue
            behind = {join}
            for a, b in sorted(edges):
                behind |= {b} if a in behind else set()
            best = max(best, beside_largest(fallen_apart(set(range(count)) - behind, edges), work))
        fork = find_fork(work, edges)
        if fork is None:
            assert best <= 0.01 * sum(work)
            continue
        forks += 1
        parts = [set(np.flatnonzero(fork.branch == n).tolist()) for n in range(fork.count)]
        assert beside_largest(parts, work) == best
        for a, b in edges:
            assert fork.branch[a] == fork.branch[b] or fork.branch[b] == -1
    assert forks > 100


def test_sides_are_as_long_as_their_devices_make_them() -> None:
    fork = Fork(np.array([0, 1, 2, 3, -1]), 4)
    work = [6.0, 4.0, 2.0, 0.001, 9.0]
    assert two_sides(fork, work, (1, 1)) is not None
    assert two_sides(fork, work, (1, 1)).tolist() == [0, 1, 1, 1, REST]  # type: ignore[union-attr]
    assert two_sides(fork, work, (1, 3)).tolist() == [1, 1, 0, 1, REST]  # type: ignore[union-attr]
    assert two_sides(fork, [6.0, 0.001, 0.001, 0.001, 9.0], (1, 1)) is None


def test_a_step_waits_for_the_longer_side_each_way() -> None:
    def stage(forward: int, backward: int, once: int) -> Stage:
        return Stage(0, 0, 1, 0, False, forward, backward, once, 5)

    # 30 and 50 forward, then 10 and 20 of the rest, back 70 and 60; and what comes once.
    for first, second, time in (
        (stage(30, 70, 5), stage(50 + 10, 20 + 60, 8), 50 + 10 + 20 + 75),
        (stage(55, 50, 5), stage(50 + 10, 20 + 60, 8), 55 + 10 + 20 + 68),
    ):
        pipeline = Pipeline.side_by_side((first, second), 50, 60)
        assert (pipeline.time, pipeline.memory) == (time, 5)
        assert pipeline.simulated_time() == time
        assert pipeline.simulated_time(SharedCores(2, (1, 1))) == time
    alone = simulated_step(
        "side_by_side", 1, (30, 60), (70, 80), (0, 0), SharedCores(1, (1, 1)), (50, 60)
    )
    # Times are those of two devices on one core; one alone is twice as fast.
    assert alone == 30 + 20 / 2 + (10 + 20) / 2 + 60 + 10 / 2
