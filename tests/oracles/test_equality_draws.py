"""Strategies of chosen kinds for the comparison with plain TensorFlow, and what is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tests.oracles.equality import Script, choices_of, mlp, planned_of
from tests.oracles.equality.draws import drawn_of, kinds_of
from tests.oracles.equality.kinds import KEPT_KINDS, kept_kinds
from tests.oracles.equality.tasks import Task, done, left_of
from tests.oracles.equality.variants import VARIANTS, peak_failures, peak_report

BATCHED = frozenset({"images", "labels"})

tensoropt.enable_graph_mode()


@pytest.fixture(scope="module")
def script() -> Script:
    return mlp(steps=1)


def test_every_kind_comes_alone_and_then_all_together() -> None:
    assert [kinds_of(number, ("before", "sharded")) for number in range(4)] == [
        ("before",),
        ("sharded",),
        ("before", "sharded"),
        ("before",),
    ]


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KEPT_KINDS), KEPT_KINDS])
def test_a_strategy_has_the_kinds_asked_for_alone(script: Script, kinds: tuple[str, ...]) -> None:
    graph, mesh = script.imported(), Mesh.of(4)
    choices = choices_of(script, mesh, BATCHED)
    random = np.random.default_rng(0)
    seen: set[str] = set()
    for _ in range(4):
        numbers, kept = drawn_of(graph, choices, mesh, kinds, random)
        planned = planned_of(script, mesh, numbers, BATCHED, kept)
        seen |= kept_kinds(Strategy(graph, mesh, planned, BATCHED))
        for operator in graph:
            if operator.is_variable:
                pieces = mesh.pieces(
                    [axis for axes in planned[operator.name].splits for axis in axes]
                )
                assert pieces == (4 if "sharded" in kinds and operator.outputs[0].shape else 1)
    assert seen == set(kinds)


def test_without_kinds_anything_is_drawn(script: Script) -> None:
    graph, mesh = script.imported(), Mesh.of(4)
    choices = choices_of(script, mesh, BATCHED)
    found = [drawn_of(graph, choices, mesh, (), np.random.default_rng(n)) for n in range(12)]
    ways = [set(kept.values()) for _, kept in found]
    assert {"both"} in ways
    assert {"both", "before", "after", "recomputed"} in ways
    assert len({numbers for numbers, _ in found}) == len(found)


def line(number: int, kind: str, task: Task) -> dict[str, Any]:
    asked = [task.program, task.model, task.world, task.devices, task.seed, list(task.kinds)]
    return {"task": asked, "number": number, "type": kind}


def test_what_is_kept_is_not_run_again(tmp_path: Path) -> None:
    task = Task("strategies", "lstm", "mpi", 4, 0, ("sharded",), (0, 1, 2), 2)
    other = Task("strategies", "lstm", "mpi", 4, 0, (), (2,), 2)
    lines = [line(0, "float32", task), line(0, "float64", task), line(1, "float32", task)]
    lines += [line(2, "float32", other), line(2, "float64", other)]
    left, found = left_of(task, lines)
    assert left.numbers == (1, 2)
    assert found == lines[:2]
    keep = tmp_path / "kept.jsonl"
    keep.write_text("".join(json.dumps(each) + "\n" for each in lines))
    result = done([task, other], 1, lambda line: None, seconds=0, keep=keep)
    assert list(result.lines) == [*lines[:2], *lines[3:]]
    assert (result.missing, result.left) == (0, 2)


def peaks(**measured: float) -> dict[str, Any]:
    """A strategy predicted to take 100 in any way, and measured so but where it says otherwise."""
    variants = {
        name: {"predicted": 100, "measured": measured.get(name, 100), "error": 0.0}
        for name in VARIANTS
    }
    return {"model": "lstm", "devices": 2, "number": 0, "variants": variants}


def test_savings_are_compared_with_what_was_predicted() -> None:
    as_predicted = peaks()
    as_predicted["variants"]["pieces"] = {"predicted": 80, "measured": 82, "error": 0.0}
    assert peak_failures([peaks()]) == []
    assert peak_failures([peaks(whole=101)]) == []
    report = peak_report([as_predicted, peaks()])
    sharded = report["kinds"]["sharded"]
    assert (sharded["fell"], sharded["predicted_to_fall"], sharded["as_predicted"]) == (0.5, 0.5, 1)
    assert sharded["predicted_share"] == pytest.approx(0.1)
    assert sharded["measured_share"] == pytest.approx(0.09)
    assert report["strategies"] == 2


def test_what_does_not_fall_as_predicted_is_a_failure() -> None:
    (failure,) = peak_failures([peaks(**{"pieces, before": 80})])
    assert failure == "lstm N=2 strategy 0, before: saves 20.0% of the peak, predicted 0.0%"
    wrong = peaks()
    wrong["variants"]["whole"]["error"] = float("nan")
    (failure,) = peak_failures([wrong])
    assert "the loss is off" in failure
