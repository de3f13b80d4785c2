"""Answers of subcommands as JSON, and completion for shells."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from tensoropt.cli.clusters.command import ClusterEntry, ClusterList
from tensoropt.cli.doctor.finding import DoctorAnswer, Finding, try_in_process
from tensoropt.cli.frontier import FrontierAnswer, FrontierPoint
from tensoropt.cli.main import main
from tensoropt.cli.profile import ProfileAnswer
from tensoropt.cost.cluster import cluster_names, load_cluster
from tensoropt.parallel.choices.fixed_dimension import FixedDimension
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.planner.explain.explanation import Alternative, Explanation
from tensoropt.planner.split_check import Check, OperatorCheck
from tensoropt.view import PlanView
from tensoropt.view.data.layers import Communication, LayerView, Replicated, Split
from tensoropt.view.data.plan_view import (
    Alive,
    MemoryAt,
    MemoryView,
    Pass,
    PointView,
    Share,
    StageView,
)
from tensoropt.view.data.summary import ClusterLevel, Measured, Summary, TimePart
from tensoropt.view.difference import LayerDifference, PlanDifference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
DOCUMENTED = (
    *(FrontierAnswer, FrontierPoint, ParallelismProfile, ProfilePoint, Check, OperatorCheck),
    *(ProfileAnswer, DoctorAnswer, Finding, ClusterList, ClusterEntry),
    *(PlanDifference, LayerDifference, PlanView, Summary, ClusterLevel, TimePart, Measured),
    *(LayerView, Split, Replicated, Communication, MemoryView, Share, Alive, MemoryAt),
    *(PointView, StageView, Pass, Explanation, Alternative, FixedDimension),
)


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_the_page_lists_all_fields(kind: type) -> None:
    text = PAGE.read_text("utf-8").partition("## Answers as JSON")[2].partition("## ")[0]
    (item,) = [item for item in text.split("\n- ") if item.startswith(f"`{kind.__name__}`:")]
    assert {field.name for field in fields(kind)} <= set(item.split("`"))


def test_clusters_answer_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["clusters", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["schema"] == 1
    assert [entry["name"] for entry in listed["clusters"]] == list(cluster_names())
    assert main(["clusters", "dump", "2x8-v100"]) == 0
    assert json.loads(capsys.readouterr().out) == load_cluster("2x8-v100").to_json()
    file = tmp_path / "four.json"
    assert main(["clusters", "make", str(file), "--this-machine", "--devices", "4"]) == 0
    assert load_cluster(file).devices == 4
    answers = ["--devices", "8", "--device", "H100", "--memory", "80GiB", "--tflops", "67"]
    answers += ["--memory-speed", "3350", "--link", "450", "--network", "50", "--machines", "2"]
    assert main(["clusters", "make", str(file), *answers]) == 0
    made = load_cluster(file)
    assert (made.devices, made.device.memory_bytes) == (16, 80 * 2**30)


def test_a_process_that_fails_is_a_finding() -> None:
    tried = try_in_process(["sh", "-c", "echo '{\"a\": 1}'; echo why >&2; exit 3"], 10)
    assert (tried.values, tried.error) == (({"a": 1},), "why")
    assert try_in_process(["sleep", "10"], 0.1).error == "no end after 0 s"
    assert "No such file" in try_in_process(["/none/python"], 1).error


@pytest.mark.parametrize(
    ("words", "completed"),
    [("tensoropt prof", "profile"), ("tensoropt clusters show 8-v", "8-v100")],
)
def test_the_shell_completes(
    words: str, completed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TENSOROPT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert f"plain,{completed}" in capsys.readouterr().out.splitlines()
