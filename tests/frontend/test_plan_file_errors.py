"""Plan files that were edited, cut off, or are not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tensoropt as tf
from tensoropt import errors

Regression = tuple[Any, Any, Any, Any]
Fails = Callable[[type[Exception], str, str, str, Callable[[], Any]], None]


def edited(values: dict[str, Any], place: str) -> dict[str, Any]:
    """A plan file with one thing changed."""
    product_ = next(entry for entry in values["operators"] if entry["type"] == "MatMul")
    match place:
        case "no schema":
            del values["schema"]
        case "another schema":
            values["schema"] = 99
        case "a missing field":
            del values["roots"]
        case "a word for a number":
            values["devices"] = "two"
        case "devices":
            values["devices"] = 4
        case "a point that is not there":
            values["point"] = len(values["frontier"])
        case "an axis that is not there":
            product_["splits"][0] = [7]
        case "an axis twice":
            product_["splits"][:2] = [[0], [0]]
        case "another split":
            product_["splits"] = [[], [], []] if any(product_["splits"]) else [[0], [], []]
        case "a cluster without devices":
            del values["cluster"]["device"]
    return values


@pytest.mark.parametrize(
    ("place", "got", "remedy"),
    [
        ("no schema", "of schema none", "Plan again with this version"),
        ("another schema", "of schema 99", "Plan again with this version"),
        ("a missing field", "at roots: nothing (the name is required)", "Find the strategy again"),
        (
            "a word for a number",
            "at devices: 'two' (input should be a",
            "Find the strategy again",
        ),
        ("devices", "mesh axes [2] for 4 devices", "Find the strategy again"),
        ("a point that is not there", "which is another strategy", "Find the strategy again"),
        ("an axis that is not there", "((7,), ", "Find the strategy again"),
        ("an axis twice", "((0,), (0,)", "Find the strategy again"),
        ("another split", "which was changed afterwards", "Find the strategy again"),
    ],
)
def test_an_edited_plan_file(
    regression: Regression, tmp_path: Path, place: str, got: str, remedy: str, fails: Fails
) -> None:
    tf.init(devices=2)
    file = tmp_path / "plan.json"
    tf.find_strategy(batch_size=8).save(file)
    file.write_text(json.dumps(edited(json.loads(file.read_text()), place)))
    fails(errors.PlanError, "plan", got, remedy, lambda: tf.Plan.load(file))


def test_a_plan_file_takes_the_place_of_a_search(
    regression: Regression,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tf.init(devices=2)
    file = tmp_path / "plan.json"
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel")
    plan.save(file)
    monkeypatch.setenv("TENSOROPT_PLAN", str(file))
    assert tf.find_strategy(batch_size=8, validate=2).runs_as(plan)
    with pytest.raises(errors.PlanError, match="whose graph or shapes differ"):
        tf.find_strategy(batch_size=4)
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=8))
    assert tf.find_strategy(batch_size=4).shapes != plan.shapes  # a further step is searched
    tf.shutdown()
    tf.init(devices=3)
    with pytest.raises(errors.PlanError, match="a plan for 2 devices in a job of 3"):
        tf.find_strategy(batch_size=8)
    monkeypatch.setenv("TENSOROPT_RESTARTS", "1")
    assert tf.find_strategy(batch_size=8).devices == 3
    assert "is for 2 devices, and the job has 3: a strategy is" in capsys.readouterr().err


def test_a_plan_file_whose_cluster_is_incomplete(regression: Regression, tmp_path: Path) -> None:
    tf.init(devices=2)
    file = tmp_path / "plan.json"
    tf.find_strategy(batch_size=8).save(file)
    file.write_text(json.dumps(edited(json.loads(file.read_text()), "a cluster without devices")))
    with pytest.raises(errors.PlanError, match="at cluster/device: nothing"):
        tf.Plan.load(file)


def test_a_truncated_or_missing_plan_file(
    regression: Regression, tmp_path: Path, fails: Fails
) -> None:
    tf.init(devices=2)
    file = tmp_path / "plan.json"
    tf.find_strategy(batch_size=8).save(file)
    file.write_text(file.read_text()[:-40])
    fails(
        errors.PlanError,
        "a whole, readable JSON file",
        str(file),
        "Save the plan again",
        lambda: tf.Plan.load(file),
    )
    for path in (tmp_path / "none.json", tmp_path):
        fails(
            errors.PlanError,
            "a whole, readable JSON file",
            str(path),
            "Give the path",
            partial(tf.Plan.load, path),
        )


@pytest.mark.parametrize("change", ["an operator left out", "a variable split by itself"])
def test_an_edited_plan_that_cannot_run(regression: Regression, change: str, fails: Fails) -> None:
    tf.init(devices=2)
    plan = tf.find_strategy(batch_size=8)
    operators = plan.operators
    if change == "an operator left out":
        operators = tuple(each for each in operators if each.type != "MatMul")
        name = "'MatMul' None"
    else:
        update = next(each for each in operators if each.type.startswith("ResourceApply"))
        splits = ((0,), ()) if update.splits != ((0,), ()) else ((), (0,))
        changed = replace(update, splits=splits)
        operators = tuple(changed if each is update else each for each in operators)
        name = repr(update.name)
    edited_plan = replace(plan, operators=operators)
    fails(
        errors.PlanError,
        "one of its valid configurations",
        name,
        "call find_strategy",
        lambda: tf.build_execution_graph(plan=edited_plan),
    )
