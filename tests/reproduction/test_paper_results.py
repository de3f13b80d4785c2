"""Results are kept on disk, taken up again, and computed again when the code has changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.paper.__main__ import main
from reproduction.paper.results import Result, Store, code_digest
from reproduction.paper.tasks import (
    Task,
    all_tasks,
    eliminations,
    figure_6,
    figure_7,
    figure_8,
    searches,
)
from tensoropt.cost.cluster import load_cluster
from tensoropt.search.solvers import REPRODUCED, SOLVERS

OWN = ("ft_elimination", "ft_ldp", "mesh_tensorflow_free")
TASK = Task("vgg16", "data_parallel", "8-v100", 2)
VALUES = {
    **TASK.to_json(),
    "parameters_gb": 0.5,
    "operators": 7,
    "configurations": 70,
    "seconds": 1.5,
    "cpu_seconds": 2.5,
    "exact": False,
    "within": 0.02,
    "device_memory_bytes": 16 * 2**30,
    "memory_bytes": [100, 200],
    "nanoseconds": [9, 5],
    "computation_nanoseconds": [4, 3],
    "variables_nanoseconds": [2, 2],
    "tensors_nanoseconds": [3, 0],
    "made_again": {"point": [0, 1], "dropped_bytes": [3, 0], "nanoseconds": [2, 0]},
}


def stored(folder: Path, digest: str) -> Path:
    path = folder / f"{TASK.name}.json"
    path.write_text(json.dumps({"digest": digest, **VALUES}), encoding="utf-8")
    return path


def test_every_task_names_a_solver_and_devices_that_its_cluster_has() -> None:
    tasks = all_tasks()
    assert len(set(tasks)) == len(tasks)
    assert {*searches(), *eliminations(), *figure_6(), *figure_7(), *figure_8()} == set(tasks)
    for task in tasks:
        assert task.algorithm in {*SOLVERS, *REPRODUCED, *OWN}
        assert load_cluster(task.cluster).mesh(task.devices).size == task.devices


def test_a_result_reads_back_what_a_worker_wrote() -> None:
    result = Result.from_json(VALUES)
    assert result.task == TASK
    assert result.network_nanoseconds.tolist() == [5, 2]
    assert result.exactness == "within 2 %"
    assert [result.fastest_within(limit) for limit in (99, 100, 300)] == [None, 0, 1]


def test_results_of_other_code_are_not_taken(tmp_path: Path) -> None:
    stored(tmp_path, "old")
    store = Store(tmp_path, "new", 60)
    assert store.load(TASK) is None
    assert store.load(TASK, whatever_code=True) is not None
    assert Store(tmp_path, "old", 60).load(TASK) is not None
    store.forget([TASK])
    assert store.load(TASK, whatever_code=True) is None


def test_a_folder_names_the_links_of_its_results(tmp_path: Path) -> None:
    for task in (TASK, replace(TASK, links=0.75), replace(TASK, links=1.25, cluster="2x8-v100")):
        values = {**VALUES, **task.to_json()}
        (tmp_path / f"{task.name}.json").write_text(json.dumps(values), encoding="utf-8")
    assert Store(tmp_path, "new", 60).links() == {0.75, 1.25}


def test_the_digest_is_of_the_source() -> None:
    assert code_digest() == code_digest()
    assert len(code_digest()) == 16


@pytest.mark.usefixtures("capsys")
def test_a_search_runs_in_its_own_process_and_its_parts_are_its_time(tmp_path: Path) -> None:
    store = Store(tmp_path, "new", 600)
    assert store.compute([TASK], jobs=1) == {}
    result = store.load(TASK)
    assert result is not None
    assert len(result.nanoseconds) == 1
    parts = result.computation_nanoseconds + result.network_nanoseconds
    np.testing.assert_array_equal(parts, result.nanoseconds)
    # Of half the batch, with every parameter on both devices; and its gradient is summed.
    assert result.parameters_gb < result.memory_bytes[0] / 2**30 < 16
    assert result.variables_nanoseconds[0] > 0
    assert store.compute([TASK], jobs=1) == {}  # at once: it is there


def test_a_search_that_takes_too_long_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path, "new", 0.05)
    assert store.compute([TASK], jobs=1) == {TASK: "took more than 0.05 s"}
    # No result, but a mark: by this code it is tried again in more time alone.
    assert [path.suffix for path in tmp_path.iterdir() if path.is_file()] == [".failure"]
    assert store.failure(TASK) == "took more than 0.05 s"
    assert Store(tmp_path, "new", 0.04).compute([TASK], jobs=1) == {TASK: "took more than 0.05 s"}
    assert Store(tmp_path, "new", 0.06).compute([TASK], jobs=1) == {TASK: "took more than 0.06 s"}
    assert Store(tmp_path, "newer", 0.05).compute([TASK], jobs=1) == {TASK: "took more than 0.05 s"}
    store.forget([TASK])
    assert store.failure(TASK) is None


def test_pictures_and_the_page_are_made_of_whatever_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    values = {**VALUES, **Task("rnn").to_json(), "digest": "any"}
    (results / f"{Task('rnn').name}.json").write_text(json.dumps(values), encoding="utf-8")
    assert main(["--as-found", "--output", str(tmp_path)]) == 0
    claims = json.loads(capsys.readouterr().out.splitlines()[-1])["claims"]
    assert {"by", "figure", "claim", "holds", "why"} == set(claims[0])
    text = (tmp_path / "claims.md").read_text(encoding="utf-8")
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    names = ("6-reuse", "6-vgg16", "6", "7", "8")
    assert pictures == [f"figure-{name}.png" for name in names]
    assert all(f"]({name})" in text for name in pictures)
