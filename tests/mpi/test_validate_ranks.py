"""Measuring candidates on two ranks: the one that is fastest on its slowest rank is adopted, and
training is as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensoropt.cost.cluster import load_cluster
from tensoropt.plan import Plan

PROGRAM = Path(__file__).parent / "programs" / "validate_ranks.py"

Mpirun = Callable[..., Any]


def test_what_is_measured_decides(mpirun: Mpirun, tmp_path: Path) -> None:
    values = load_cluster("this-machine").to_json()
    for level in values["levels"]:
        level["bandwidth_bytes_per_second"] = 1e3  # so that every device computes all
    cluster = tmp_path / "useless-network.json"
    cluster.write_text(json.dumps(values))
    finished = mpirun(2, PROGRAM, cluster, tmp_path)
    assert finished.returncode == 0, finished.stderr
    ranks = [json.loads((tmp_path / f"found{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0] == ranks[1]

    plan = Plan.from_json(ranks[0]["overruled"])
    assert plan.validation is not None
    trials = plan.validation.trials
    assert [trial.measured_seconds for trial in trials] == [0.003, 0.003, 0.002]  # slowest ranks'
    assert [trial.measured_network_seconds for trial in trials] == [0.0005, 0.0005, 0.001]
    assert trials[2].name == "data parallelism"
    assert plan.validation.adopted == 2
    assert plan.validation.overruled >= 2
    assert plan.algorithm == "data_parallel"
    assert all(trial.measured_peak_bytes for trial in trials)

    spared = Plan.from_json(ranks[0]["memory"]).validation
    assert spared is not None
    first, second, *_ = spared.trials
    assert first.dropped.startswith("memory ran out on rank 1: ResourceExhaustedError: ")
    assert "OOM when allocating tensor with shape[17592186044416]" in first.dropped
    assert second.measured_seconds
    assert "dropped, memory ran out on rank 1" in finished.stderr
