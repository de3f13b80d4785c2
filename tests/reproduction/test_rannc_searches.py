"""RaNNC's and GPipe's searches find what enumeration finds, and the stages that their rules say."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from reproduction.rannc.searches import alpa as two_levels
from reproduction.rannc.searches.alpa import alpa, submeshes
from reproduction.rannc.searches.galvatron import least_path, trees
from reproduction.rannc.searches.gpipe import gpipe
from reproduction.rannc.searches.rannc import form_stage, form_stage_dp
from reproduction.rannc.searches.without_blocks import SummedProfile, without_blocks
from tensoropt.errors import InfeasibleError, OptionError
from tensoropt.pipeline.stages.frontier import pipeline_frontier
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem
from tensoropt.pipeline.stages.points import StagePoints
from tests.pipeline.test_profile import BATCH, Case
from tests.pipeline.test_stages import enumerated, random_problem


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


@pytest.mark.parametrize(("seed", "stages"), [(0, 2), (1, 3), (2, 4)])
def test_algorithm_1_finds_the_least_longest_times(seed: int, stages: int) -> None:
    free = random_problem(seed, 8, 1, 150)

    def proportional(
        first: int, last: int, devices: int, size: int, copies: int
    ) -> StagePoints | None:
        points = free.profile(first, last, devices, size, copies)
        if points is None:
            return None
        forward, _, _, fixed, saved, inputs, *_ = points.values.T
        return StagePoints.of(forward, forward, fixed=fixed, saved=saved, inputs=inputs)

    problem = replace(free, profile=proportional)
    again = (stages > 1,)
    every = [
        each
        for each in enumerated(problem, False, range(stages, stages + 1), again)
        if each.schedule == "gpipe" and each.copies == 1 and each.microbatches == 2
    ]
    found = form_stage_dp(problem, stages, 2, 2)
    assert (found is None) == (not every)
    if found is not None:
        assert found in every
        assert _longest(found) == min(map(_longest, every))


def _longest(pipeline: Pipeline) -> int:
    stages = pipeline.stages
    return max(each.forward for each in stages) + max(each.backward for each in stages)


def test_algorithm_2_takes_the_fewest_machines_and_stages_that_have_room() -> None:
    def profile(first: int, last: int, devices: int, size: int, copies: int) -> StagePoints | None:
        examples, blocks = -(-size // devices), last - first + 1
        return StagePoints.plain(10 * blocks * examples, 20 * blocks * examples, 30 * blocks)

    problem = replace(random_problem(0, 8), profile=profile, memory_limit=130)
    found = form_stage(problem)
    assert (len(found.stages), found.copies, found.memory) == (2, 2, 120)
    assert all(stage.recompute for stage in found.stages)
    assert form_stage(replace(problem, memory_limit=240)).copies == 2
    assert len(form_stage(replace(problem, memory_limit=240)).stages) == 1
    larger = form_stage(replace(problem, memory_limit=90))
    assert (len(larger.stages), larger.copies) == (3, 1)
    fastest = form_stage(replace(problem, memory_limit=240), fewest=False)
    assert fastest.time <= form_stage(replace(problem, memory_limit=240)).time
    assert form_stage(problem, fewest=False).time <= found.time
    with pytest.raises(InfeasibleError, match="stages of a pipeline fit 50 bytes"):
        form_stage(replace(problem, memory_limit=50))
    with pytest.raises(InfeasibleError, match="a pipeline fits 50 bytes"):
        pipeline_frontier(replace(problem, memory_limit=50))


def test_gpipe_has_equal_stages_and_replicas() -> None:
    def profile(first: int, last: int, devices: int, size: int, copies: int) -> StagePoints | None:
        examples, layers = -(-size // devices), last - first + 1
        return StagePoints.of(
            forward=10 * layers * examples, backward=20 * layers * examples, fixed=30 * layers
        )

    problem = replace(random_problem(0, 8), profile=profile, memory_limit=125)
    found = gpipe(problem)
    assert [(each.first, each.last, each.devices) for each in found.stages] == [
        (0, 3, 1),
        (4, 7, 1),
    ]
    assert (found.copies, found.microbatches) == (2, 4)
    assert found.time == found.simulated_time()
    assert len(gpipe(replace(problem, memory_limit=100)).stages) == 4
    with pytest.raises(InfeasibleError, match="Got 8 layers on 4 devices"):
        gpipe(replace(problem, memory_limit=50))


def test_a_model_too_large_for_a_device_becomes_stages(case: Case) -> None:
    limit = int(0.8 * int(case.points(0, 5, 1, 1).column("fixed")[0]))
    problem = PipelineProblem(6, case.profile, case.links, 2, BATCH, limit)
    stages = form_stage(problem)
    assert len(stages.stages) > 1
    assert stages.memory <= limit
    frontier = pipeline_frontier(problem)
    assert any(each.memory <= stages.memory and each.time <= stages.time for each in frontier)


def test_without_blocks_is_algorithm_2_over_sums_of_components(case: Case) -> None:
    profile = SummedProfile(case.costs, case.links)
    whole = profile(0, len(case.atoms) - 1, 1, 1, 1)
    assert whole is not None
    assert (
        whole.column("fixed")[0] > case.points(0, 5, 1, 1).column("fixed")[0]
    )  # each has memory of its own
    limit = int(0.6 * int(whole.column("fixed")[0]))
    problem = PipelineProblem(len(case.atoms), profile, case.links, 1, 4, limit)
    found = without_blocks(problem)
    assert len(found.stages) > 1
    assert found.memory <= limit
    table = form_stage(problem)
    assert (found.time, found.memory) == (table.time, table.memory)
    with pytest.raises(OptionError, match="give a SummedProfile"):
        without_blocks(replace(problem, profile=case.profile))


@pytest.mark.parametrize("memory", [10**9, 90, 20])
def test_alpas_stages_have_the_least_latency(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_levels, "_LONGEST", 10**6)
    free, microbatches = random_problem(7, 4, 1, memory), 2

    def without_sending(
        first: int, last: int, devices: int, size: int, copies: int
    ) -> StagePoints | None:
        points = free.profile(first, last, devices, size, copies)
        return None if points is None else StagePoints(points.values * ([1] * 6 + [0] * 8))

    problem = replace(free, profile=without_sending)

    def latency(pipeline: Pipeline) -> float:
        each = [one.forward + one.backward + one.once / microbatches for one in pipeline.stages]
        return sum(each) + (microbatches - 1) * max(each)

    every = [
        latency(one)
        for one in enumerated(problem, False, range(1, 5), (False, True))
        if (one.schedule, one.copies, one.microbatches) == ("1f1b", 1, microbatches)
        and {stage.devices for stage in one.stages} <= set(submeshes(problem))
    ]
    if every:
        assert latency(alpa(problem, (microbatches,))) == min(every)
    else:
        with pytest.raises(InfeasibleError, match="the stages of a pipeline fit 20 bytes"):
            alpa(problem, (microbatches,))


def test_galvatron_has_the_trees_of_its_paper() -> None:
    assert 1 + sum(len(list(trees(devices))) for devices in (2, 4, 8)) == 22


@pytest.mark.parametrize("most", [30, 14, 2])
def test_galvatrons_layers_have_the_least_time_that_fits(most: int) -> None:
    rng = np.random.default_rng(most)
    time, change = rng.integers(1, 40, (4, 3)) * 1.0, rng.integers(0, 20, (3, 3))
    size, layers = rng.integers(1, 8, (4, 3)), np.arange(4)

    def total(path: tuple[int, ...]) -> float:
        return float(time[layers, path].sum() + change[path[:-1], path[1:]].sum())

    fitting = [path for path in product(range(3), repeat=4) if size[layers, path].sum() <= most]
    found = least_path(time, size, change, most)
    if fitting:
        assert found is not None
        assert size[layers, found].sum() <= most
        assert total(tuple(found)) == min(map(total, fitting))
    else:
        assert found is None
