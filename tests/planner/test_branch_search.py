"""A lower bound of branches side by side excludes only divisions that are too slow."""

from __future__ import annotations

import pytest

from benchmarks.search.zoo.measuring import request_of
from tensoropt.cost.cluster import load_cluster
from tensoropt.pipeline.branches.divisions import Side
from tensoropt.pipeline.branches.least_time import LeastTime
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.planner.request import Request
from tensoropt.planner.searches import branch_search
from tensoropt.planner.searches.branch_search import branches_side_by_side
from tensoropt.planner.searches.pipeline_search import PipelineSearch


def small(name: str) -> Request:
    return request_of(name, 2, load_cluster("2x8-v100"), 4)


def least(request: Request, search: PipelineSearch, pipeline: Pipeline) -> int:
    """The lower bound of the division of a pipeline's devices."""
    costs, block = search.parts.costs, search.block.tolist()
    sides = [
        Side(
            stage.devices,
            tuple(
                tuple(place for place, own in enumerate(block) if own == number)
                for number in range(stage.first, stage.last + 1)
            ),
        )
        for stage in pipeline.stages
    ]
    edges = [(maker, reader) for maker, reader, _ in costs.atoms.edges]
    overhead = request.cluster_at(4).device.operator_overhead_seconds * 1e9
    return LeastTime(costs, overhead).of(sides, edges)


@pytest.mark.parametrize("name", ["dropout_lstm", "encoder_decoder", "gan", "tables"])
def test_no_pipeline_is_faster_than_the_bound_of_its_division(name: str) -> None:
    request = small(name)
    found = branches_side_by_side(request, None).pipelines
    assert found
    for search, pipeline in found:
        bound = least(request, search, pipeline)
        assert 0.5 * pipeline.time < bound <= pipeline.time


def test_divisions_whose_bound_is_too_slow_are_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    request = small("gan")
    found = branches_side_by_side(request, None).pipelines
    search, fastest = min(found, key=lambda each: each[1].time)
    start = search.step_nanoseconds
    again = branches_side_by_side(request, fastest.time + start + 1).pipelines
    assert fastest.time in [pipeline.time for _, pipeline in again]
    bounds = [least(request, *each) for each in found]
    monkeypatch.setattr(branch_search, "PipelineSearch", None)  # a price would raise an error
    assert not branches_side_by_side(request, min(bounds) + start).pipelines
