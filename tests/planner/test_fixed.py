"""Dimensions divided by hand: every kind of plan keeps them, and errors name the nearest."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import InfeasibleError, OptionError
from tensoropt.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.fixed.kept_pins import with_fixed
from tensoropt.planner.fixed.patterns import matcher
from tensoropt.planner.fixed.resolve import pins_of
from tensoropt.planner.fixed.words import fixed_dimensions, parse_fixed
from tensoropt.planner.names.layer_names import forward_work
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.planner.searches.joint_search import near_candidates
from tensoropt.view.division import devices_by_stage
from tests.oracles.equality.combination_scripts import gates
from tests.planner.test_joint import request_of
from tests.view.small_steps import DEVICES, request_of_step


@cache
def two_machines() -> Request:
    return request_of_step()


def one_machine() -> Request:
    return replace(two_machines(), cluster_at=lambda _: load_cluster("8-v100"))


def pinned(request: Request, fixed: Any) -> Request:
    words = fixed_dimensions("fixed", fixed)
    cluster = request.cluster_at(request.devices)
    pins = pins_of(words, request.graph, request.batch_placeholders, cluster, request.devices)
    return replace(request, pins=pins)


def pieces(plan: Plan, layer: str, dimension: str) -> list[dict[str, int]]:
    """For each operator of a layer that has a dimension, its pieces at each level."""
    work, stage_of, devices = forward_work(plan.operators), plan.stage_of, devices_by_stage(plan)
    found = []
    for operator in plan.operators:
        names = [each.name for each in operator.dimensions]
        if operator.name in work[layer] and dimension in names:
            on = devices[stage_of.get(operator.name)]
            axes = operator.splits[names.index(dimension)]
            found.append({on.levels[n].name: on.pieces(of) for n, of in on.by_level(axes)})
    return found


@pytest.mark.parametrize(
    ("fixed", "layer", "dimension", "wanted"),
    [
        ({"model/dense*": {"columns": "device"}}, "model/dense1", "columns", {"device": 2}),
        ({"model/dense0-1": {"rows": "machine"}}, "model/dense1", "rows", {"machine": 2}),
        (
            ["model/scores:batch=machine,device"],
            "model/scores",
            "batch",
            {"machine": 2, "device": 2},
        ),
        ({"model/scores": {-1: "all"}}, "model/scores", "columns", {"machine": 2, "device": 2}),
        (
            {"model/embedding": {"vocabulary": "devices/2"}},
            "model/embedding",
            "vocabulary",
            {"device": 2},
        ),
        ({"model/dense2": {"batch": None}}, "model/dense2", "batch", {}),
    ],
    ids=str,
)
def test_a_plan_of_the_whole_batch_divides_as_fixed_says(
    fixed: Any, layer: str, dimension: str, wanted: dict[str, int]
) -> None:
    plan = choose(pinned(two_machines(), fixed), "mini_time")
    found = pieces(plan, layer, dimension)
    assert found
    assert found == [wanted] * len(found)
    assert plan.fixed == fixed_dimensions("fixed", fixed)
    assert Plan.from_json(plan.to_json()) == plan


def test_microbatches_keep_it() -> None:
    request = pinned(two_machines(), {"model/dense*": {"columns": "device", "batch": "machine"}})
    plan = choose(request.in_microbatches(2), "mini_time")
    assert plan.microbatches == 2
    for layer in ("model/dense0", "model/dense3"):
        assert set(map(str, pieces(plan, layer, "columns"))) == {"{'device': 2}"}
        assert set(map(str, pieces(plan, layer, "batch"))) == {"{'machine': 2}"}


def test_stages_keep_it_also_in_one_of_several_like_layers() -> None:
    request = pinned(one_machine(), {"model/dense1": {"columns": "device"}})
    plan = choose(replace(request, pipeline=PipelineNumbers(2, 4)), "mini_time")
    assert [stage.mesh.size for stage in plan.stages] == [2, 2]
    found = pieces(plan, "model/dense1", "columns")
    assert found == [{"device": 2}] * len(found)
    assert plan.fixed


@pytest.mark.parametrize(
    ("dimension", "level"), [("columns", "machine"), ("batch", "device"), (0, "device")]
)
def test_stages_are_refused_where_machines_divide_the_batch(
    dimension: str | int, level: str
) -> None:
    request = pinned(two_machines(), {"model/dense1": {dimension: level}})
    asked = replace(request, devices=DEVICES, pipeline=PipelineNumbers(None))
    plan = choose(asked, "mini_time")
    assert any(note.startswith("not searched: stages (") for note in plan.notes)
    with pytest.raises(
        OptionError, match=f"Got pipeline=2 and fixed 'model/dense1:{dimension}={level}'"
    ):
        choose(replace(request, pipeline=PipelineNumbers(2)), "mini_time")


def test_stages_are_refused_where_they_would_have_one_device() -> None:
    request = pinned(one_machine(), {"model/dense1": {"columns": "device"}})
    with pytest.raises(OptionError, match="3 stages have at least 6 devices"):
        choose(replace(request, pipeline=PipelineNumbers(3)), "mini_time")


def test_a_word_that_no_operator_keeps_is_an_error() -> None:
    plan = choose(pinned(two_machines(), {"model/dense*": {"columns": "device"}}), "mini_time")
    both = {"model/dense1": {"columns": "device"}, "model/dense2": {"rows": "device"}}
    with pytest.raises(InfeasibleError, match="Got 'model/dense2:rows=device', which"):
        with_fixed(plan, pinned(two_machines(), both).pins)


def test_rewritten_graphs_keep_its_operators() -> None:
    request = request_of(gates(tf.float32), 4)
    held = pinned(request, {"gate0": {"columns": "device"}})
    free, kept = (near_candidates(each, 4) for each in (request, held))
    operators = held.pins.of_operator.keys()
    assert not all(operators <= each.graph.operators.keys() for each in free)
    assert kept
    assert all(operators <= each.graph.operators.keys() for each in kept)
    assert held.of_rewritten(kept[0].rewrites, kept[0].graph).pins == held.pins


def test_a_dimension_that_devices_do_not_divide_has_uneven_pieces() -> None:
    three = replace(one_machine(), devices=3)
    plan = choose(pinned(three, {"model/dense1": {"columns": "device"}}), "mini_time")
    found = pieces(plan, "model/dense1", "columns")
    assert found == [{"device": 3}] * len(found)


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        (
            {"modl/dense1": {"batch": "device"}},
            "Got 'modl/dense1', which names none; the nearest layers are 'model/dense1'",
        ),
        (
            {"model/dense*": {"column": "device"}},
            "is one of batch, columns, rows. Got 'column'. Did you mean 'columns'?",
        ),
        (
            {"model/dense*": {"batch": "devise"}},
            "is one of machine, device, all, whole. Got 'devise'. Did you mean 'device'?",
        ),
        ({"model/dense*": {"batch": "device/x"}}, "parts over a level are a number"),
        ({"model/dense*": {7: "device"}}, "Got 7; give a name: batch, columns, rows"),
        (
            {"model/dense1": {"batch": "device", "rows": "device"}},
            "Got 'model/dense1:batch=device' and",
        ),
        (["*/dense*:batch=device", "model/dense1:batch=machine"], "leave one of them out"),
        ({"model/scores": {"columns": "device/3"}}, "3 pieces of the 100 of"),
    ],
    ids=str,
)
def test_words_that_do_not_fit_the_step_are_errors(fixed: Any, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        pinned(two_machines(), fixed)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "value",
    [
        "x",
        3,
        [3],
        {"a": "b"},
        {"a": {"batch": 2}},
        {"": {"batch": None}},
        {"a": {None: "device"}},
        ["a=b"],
        ["a:b"],
    ],
)
def test_other_values_are_errors(value: Any) -> None:
    with pytest.raises(OptionError, match=r"Got .*; give e\.g\. fixed="):
        fixed_dimensions("fixed", value)


def test_words_come_back_from_their_text() -> None:
    fixed = {"a/*": {"batch": ["machine", "device/2"], "columns": None, 0: "all"}}
    words = fixed_dimensions("fixed", fixed)
    assert tuple(map(parse_fixed, map(str, words))) == words
    assert list(map(str, words)) == ["a/*:batch=machine,device/2", "a/*:columns=whole", "a/*:0=all"]


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("encoder/layer1-6", "encoder/layer3", True),
        ("encoder/layer1-6", "encoder/layer7", False),
        ("block0-1/layer2-3", "block1/layer2", True),
        ("block[0-3]/*", "block2/a/b", True),
        ("a.b", "axb", False),
        ("odd-name[1]", "odd-name[1]", True),
    ],
)
def test_a_pattern_is_a_glob_or_a_row_of_a_table(pattern: str, name: str, fits: bool) -> None:
    assert matcher(pattern)(name) is fits
