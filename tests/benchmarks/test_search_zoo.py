"""The zoo of training graphs: each is built, imported and trains; the smallest are searched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.search.zoo import measuring, planning
from benchmarks.search.zoo.__main__ import PARTS, planned, summary
from benchmarks.search.zoo.catalogue import HELD, ZOO
from benchmarks.search.zoo.measuring import request_of
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.searches.frontier_search import search_frontier
from tests.proofs import proof

DEVICES = 4
SEARCHED = ("chain", "gan", "penalty")


@pytest.mark.parametrize(
    "name", [*SEARCHED, *(proof(name) for name in ZOO if name not in SEARCHED)]
)
def test_a_graph_is_imported_with_what_trains_it(name: str) -> None:
    request = request_of(name, ZOO[name].small, load_cluster("2x8-v100"), DEVICES)
    types = {operator.type for operator in request.graph}
    assert types & {"ResourceApplyAdam", "ResourceApplyMomentum"}
    assert request.batch_placeholders
    assert request.reads.inputs
    if name in SEARCHED:
        _, frontier = search_frontier(request, DEVICES)
        assert frontier.exact
        assert len(frontier) > 1


def test_held_graphs_were_not_known_before() -> None:
    assert len(HELD) == 5
    assert not any(ZOO[name].known for name in HELD)


def test_a_search_says_what_the_last_line_has(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "load_kernels", lambda: 0.0)
    measuring.search("chain", 2, "2x8-v100", DEVICES, 600.0)
    line: dict[str, Any] = {}
    for said in capfd.readouterr().out.splitlines():
        line.update(json.loads(said))
    assert line["route"] == ["ft_ldp"]
    found = summary("chain", {2: line, DEVICES: line}, DEVICES)
    assert list(found) == ["operators", "configurations", "points", "within", "cpu_seconds",
                           "within_2", "cpu_seconds_2", "held"]  # fmt: skip
    assert found["within"] == found["within_2"] == 0
    assert not found["held"]
    assert summary("chain", {DEVICES: {"operators": 9}}, DEVICES)["within"] is None


def test_all_of_planning_is_measured_in_parts(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "load_kernels", lambda: 0.0)
    planning.plan("chain", 2, "2x8-v100", DEVICES, 600.0)
    line: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert list(line) == ["operators", *PARTS]
    assert all(line[part] >= 0 for part in PARTS)
    found = planned("chain", {2: {"operators": 9}, DEVICES: line}, DEVICES)
    assert found["cpu_seconds"] == pytest.approx(sum(line[part] for part in PARTS), abs=0.01)
    assert found["cpu_seconds_2"] is found["searching_2"] is None
