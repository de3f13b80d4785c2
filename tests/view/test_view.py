"""The view of a plan: every number in it is the plan's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tensoropt.plan import Plan
from tensoropt.plan.details import OtherStrategy
from tensoropt.plan.point_peak import PointPeak
from tensoropt.report.views.difference import difference_report
from tensoropt.view import PlanView, view_of
from tensoropt.view.difference import difference
from tests.plan.small_plans import a_plan, staged_plan
from tests.view.small_steps import (
    BATCH,
    DEVICES,
    LAYERS,
    WIDTH,
    planned,
    planned_in_microbatches,
    planned_in_stages,
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned()


def test_a_view_is_json_and_comes_back(plan: Plan) -> None:
    for some in (plan, planned_in_stages(), a_plan(), staged_plan()):
        view = view_of(some)
        assert PlanView.from_json(json.loads(json.dumps(view.to_json()))) == view
        assert Plan.from_json(json.loads(json.dumps(some.to_json()))) == some


def test_like_layers_are_one_row_with_the_sum_of_their_operators(plan: Plan) -> None:
    view = view_of(plan)
    dense = [row for row in view.layers if row.name.startswith("model/dense")]
    assert sum(row.count for row in dense) == LAYERS
    for row in dense:
        assert view.layer(row.names[-1]) == row
        assert "MatMul" in row.types
        assert any(name.startswith("Momentum/update_") for name in row.operators)
        assert any("gradient" in name for name in row.operators)
    shown = {name for row in view.layers for name in row.operators}
    time = {operator.name: operator.time_nanoseconds for operator in plan.operators}
    assert sum(row.operators_nanoseconds for row in view.layers) == sum(time[n] for n in shown)
    assert sum(time.values()) == sum(time[n] for n in shown)


def test_a_division_names_its_dimensions_and_devices(plan: Plan) -> None:
    view = view_of(plan)
    names = {each.name for operator in plan.operators for each in operator.dimensions}
    assert {"batch", "columns", "rows", "vocabulary", "classes"} <= names
    assert [(level.name, level.count) for level in view.summary.levels] == [
        ("machine", 2),
        ("device", 2),
    ]
    for row in view.layers:
        assert all(DEVICES % split.pieces == 0 for split in row.splits)
        assert row.words


def test_communication_adds_up_to_the_network_time_of_the_step(plan: Plan) -> None:
    view = view_of(plan)
    assert view.communication
    assert sum(each.nanoseconds for each in view.communication) == plan.network_nanoseconds
    assert sum(row.network_nanoseconds for row in view.layers) == plan.network_nanoseconds
    assert sum(part.nanoseconds for part in view.summary.time) == plan.executed_nanoseconds
    for each in view.communication:
        assert each.group * each.groups == DEVICES
        assert view.layer(each.source)


def test_memory_adds_up_to_the_peak(plan: Plan) -> None:
    memory = view_of(plan).memory
    assert plan.peak_is_estimated
    assert memory.peak_bytes == plan.peak_bytes == sum(share.bytes for share in memory.peak)
    assert max(sum(each.bytes) for each in memory.step) == plan.peak_bytes
    held = {share.holder: share.bytes for share in memory.peak}
    assert held["weights"] >= LAYERS * WIDTH * WIDTH * 4 // DEVICES
    assert held["slots"] == held["weights"]  # Momentum has one for each weight


def test_the_memory_of_microbatches_adds_up_to_the_peak() -> None:
    plan = planned_in_microbatches()
    view = view_of(plan)
    assert plan.microbatches == 4
    assert view.memory.peak_bytes == plan.peak_bytes == sum(each.bytes for each in view.memory.peak)
    assert max(sum(each.bytes) for each in view.memory.step) == plan.peak_bytes
    assert sum(each.nanoseconds for each in view.communication) == plan.network_nanoseconds


def test_stages_send_what_they_read_and_their_passes_take_the_step() -> None:
    plan = planned_in_stages()
    view, cluster = view_of(plan), plan.cluster
    sent = [each for each in view.communication if each.purpose == "between stages"]
    back = [each for each in view.communication if each.purpose == "back between stages"]
    examples = BATCH // plan.microbatches
    (out,), (gradient,) = sent, back
    stage = plan.stages[0]
    assert out.bytes == gradient.bytes == examples * WIDTH * 4  # whole on each device of its stage
    assert not any(plan.configurations[name].splits[0] for name in out.tensors)
    assert out.times == gradient.times == plan.microbatches
    link = cluster.levels[0]
    devices = stage.mesh.size if link.shared_by_group else 1
    seconds = link.latency_seconds + devices * out.bytes / link.bandwidth_bytes_per_second
    seconds += cluster.device.operator_overhead_seconds
    assert out.nanoseconds == pytest.approx(plan.microbatches * seconds * 1e9, rel=1e-3)
    end = max(each.end for each in view.schedule)
    assert plan.executed_nanoseconds == end + round(cluster.step_overhead_seconds * 1e9)


def test_the_plan_and_data_parallelism_are_points_beside_the_frontier(plan: Plan) -> None:
    points = view_of(plan).frontier
    (chosen,) = [point for point in points if point.kind == "plan"]
    own = plan.memory_bytes, plan.executed_nanoseconds
    assert (chosen.memory_bytes, chosen.nanoseconds) == own
    (parallel,) = [point for point in points if point.kind == "data parallelism"]
    assert any(
        memory <= parallel.memory_bytes and time <= parallel.nanoseconds
        for memory, time in plan.frontier
    )
    on_frontier = [point for point in points if point.number is not None]
    assert sorted((p.memory_bytes, p.nanoseconds) for p in on_frontier) == sorted(plan.frontier)


def test_data_parallelism_that_is_the_plan_has_its_peak(plan: Plan) -> None:
    peaks = tuple(PointPeak(memory + 7, "dry run") for memory, _ in plan.frontier)
    own = plan.memory_bytes, plan.executed_nanoseconds
    others = (OtherStrategy("data parallelism", *own, own[0] + 1),)
    details = replace(plan.details, others=others)
    view = view_of(replace(plan, frontier_peaks=peaks, details=details))
    of_kind = {point.kind: point for point in view.frontier}
    assert of_kind["data parallelism"].peak_bytes == of_kind["plan"].peak_bytes


def test_a_plan_without_details_has_a_view_without_communication() -> None:
    view = view_of(a_plan())
    assert not view.communication
    assert not view.memory.step
    assert [row.operators for row in view.layers] == [("one",), ("two",)]
    assert view.memory.peak_bytes == a_plan().memory_bytes


def test_a_difference_has_all_layers_and_the_times_of_both_plans(plan: Plan) -> None:
    staged = planned_in_stages()
    found = difference(plan, staged)
    assert (found.same_step, found.same_cluster) == (True, True)
    for view, side in ((view_of(plan), "before"), (view_of(staged), "after")):
        sent = sum(each.step_bytes for each in view.communication)
        assert getattr(found, f"{side}_communicated_bytes") == sent
        total = sum(getattr(each, f"{side}_nanoseconds") for each in found.layers)
        assert total == pytest.approx(sum(row.nanoseconds for row in view.layers), rel=1e-3)
        names = {name for each in found.layers for name in each.names if getattr(each, side)}
        assert names == {name for row in view.layers for name in row.names}
    assert any(not each.is_divided_alike for each in found.layers)
    text = str(difference_report(found))
    assert all(each.name in text for each in found.divided_otherwise)
    assert "different steps" not in text
    other = difference(plan, a_plan())
    assert (other.same_step, other.same_cluster) == (False, False)
    assert "different steps" in str(difference_report(other))
    assert "different clusters" in str(difference_report(other))
    alike = str(difference_report(difference(plan, plan)))
    assert "the same" in alike
    assert "are divided alike" in alike
    values = json.loads(json.dumps(found.to_json()))
    assert (values["schema"], values["before"]["devices"]) == (1, DEVICES)
