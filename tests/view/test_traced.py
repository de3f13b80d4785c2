"""Measured times by layer: from files of traces, to the rows of the plan that ran."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tensoropt.cli.main import main
from tensoropt.errors import PlanError
from tensoropt.report.views.layers import layer_table
from tensoropt.view import view_of
from tensoropt.view.traced import with_traces
from tests.view.small_steps import DEVICES, planned

FORWARD, UPDATE = "model/dense1/MatMul", "Momentum/update_model/dense1/weights"
RUN = {FORWARD: 2000, "gradients_0/model/dense1/MatMul_grad/MatMul_1": 3000, "bucket": 10}
"""Microseconds of the operators of a traced run."""


def write_trace(folder: Path, rank: int, runs: Sequence[tuple[str, dict[str, int]]]) -> None:
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": rank}]
    for number, (_, operators) in enumerate(runs):
        for name, microseconds in operators.items():
            args = {"name": name, "run": number}
            events.append({"ph": "X", "cat": "computation", "dur": microseconds, "args": args})
    parts = {"step_ms": 20.0 + rank, "communication_ms": 4.0 + rank}
    steps = [{"run": program, **parts} for program, _ in runs]
    text = {"otherData": {"rank": rank, "steps": steps}, "traceEvents": events}
    (folder / f"rank{rank}.json").write_text(json.dumps(text))


def test_a_layer_has_the_median_over_runs_and_the_mean_over_the_ranks_that_have_it(
    tmp_path: Path,
) -> None:
    view = view_of(planned())
    slow = {name: 5 * microseconds for name, microseconds in RUN.items()}
    for rank in range(DEVICES):
        step = (
            {"microbatch_1/sum_0/boundary_2/model/scores/MatMul_1/Add": 100} if rank == 3 else RUN
        )
        other = ("evaluation", {FORWARD: 9_000_000} if rank < 3 else {})
        write_trace(tmp_path, rank, [("step", step), other, ("step", slow), ("step", step)])
    traced = with_traces(view, tmp_path)
    assert traced.layer("model/dense1").measured_nanoseconds == 5_000_000
    assert traced.layer("model/scores").measured_nanoseconds == 100_000
    assert traced.layer("model/embedding").measured_nanoseconds is None
    of = {each.name: each.measured for each in traced.measured}
    assert of["step time"] == 20 + DEVICES - 1
    assert of["network time"] == pytest.approx(5.5)
    assert of["operators of no layer"] == pytest.approx(0.01 * 3 / 4)
    lines = str(layer_table(traced)).splitlines()
    assert "operators (ms)  measured (ms)" in lines[0]
    assert "measured" not in str(layer_table(view))


def test_show_adds_the_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned().save(tmp_path / "plan.json")
    for rank in range(DEVICES):
        write_trace(tmp_path, rank, [("step", {**RUN, f"{UPDATE}/ResourceApplyMomentum": 500})])
    shown = ["show", str(tmp_path / "plan.json"), "--trace", str(tmp_path), "--json"]
    assert main(shown) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    measured = {row["measured_nanoseconds"] for row in layers if "model/dense1" in row["names"]}
    assert measured == {5_500_000}


def test_traces_of_something_else_are_refused(tmp_path: Path) -> None:
    view = view_of(planned())
    with pytest.raises(PlanError, match="Got none in"):
        with_traces(view, tmp_path)
    write_trace(tmp_path, 0, [("step", RUN)])
    with pytest.raises(PlanError, match=r"plan's 4 devices\. Got 1 in"):
        with_traces(view, tmp_path)
    for rank in range(DEVICES):
        write_trace(tmp_path, rank, [("step", {"another/MatMul": 1})])
    with pytest.raises(PlanError, match="Got none of them"):
        with_traces(view, tmp_path)
    (tmp_path / "rank0.json").write_text('{"otherData": {"steps": [{}]}, "traceEvents": []}')
    with pytest.raises(PlanError, match="without 'run'"):
        with_traces(view, tmp_path)
