"""Plans that are kept for the next start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.errors import OptionError
from tensoropt.frontend.planning import find_strategy as searching
from tensoropt.frontend.planning import kept_plans
from tensoropt.plan import Plan
from tensoropt.search.watch import Watch


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The options of the searches that are made; plans are kept in the test's folder."""
    monkeypatch.setenv("TENSOROPT_PLANS", str(tmp_path))
    made: list[str] = []
    search = searching.plan_and_frontier

    def counted(request: Any, option: str) -> Any:
        made.append(option)
        return search(request, option)

    monkeypatch.setattr(searching, "plan_and_frontier", counted)
    return made


def start(units: int = 8, runs: int = 0, **options: Any) -> tuple[Plan, list[float]]:
    """What a process does that is started anew: its plan, and the losses of some steps."""
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=2)
    x = tf.placeholder(tf.float32, [16, 4], name="x")
    weights = tf.get_variable("weights", [4, units], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - 1.0))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    plan = tf.find_strategy(**options)
    losses = []
    if runs:
        tf.build_execution_graph(plan=plan)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            feed = {x: np.arange(64, dtype=np.float32).reshape(16, 4) / 64}
            losses = [float(session.run([loss, train], feed)[0]) for _ in range(runs)]
    return plan, losses


def test_the_next_start_uses_the_plan_and_trains_alike(
    searches: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, losses = start(runs=3)
    assert "used again" not in capsys.readouterr().err
    kept, again = start(runs=3)
    assert searches == ["mini_time"]
    assert kept == found
    assert again == losses
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "used again" in line]
    assert line.startswith("tensoropt: plan of 20")
    assert line.endswith("used again (TENSOROPT_PLANS=none plans anew)")


def test_another_request_is_planned_anew(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    start(units=16)
    start(memory_limit_bytes=10**8)
    start(option="mini_parallelism")
    start(search_seconds=599.0)
    start(search_seconds="auto", steps=20)
    start(search_seconds="auto", steps=90)  # does for the same plan
    start(search_seconds="auto", steps=900)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    start()
    monkeypatch.undo()
    assert len(searches) == 8


@pytest.mark.parametrize("version", ["of TensorOpt", "of its code", "of TensorFlow"])
def test_another_version_plans_anew(
    searches: list[str], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    start()
    if version == "of TensorOpt":
        monkeypatch.setattr(tf, "__version__", "0.0.1")
    elif version == "of TensorFlow":
        monkeypatch.setattr(tensorflow, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(kept_plans, "_code_digest", lambda: "another")
    start()
    assert len(searches) == 2


def test_a_file_that_has_no_such_plan_is_replaced(
    searches: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(units=16)
    (other,) = plans_in(tmp_path)
    foreign = other.read_text()
    other.unlink()
    start()
    (path,) = plans_in(tmp_path)
    whole = path.read_text()
    older = json.dumps({**json.loads(whole), "schema": 14})
    for content in (whole[:-100], "[]", whole.replace("mini_time", "mini_tame"), foreign, older):
        path.write_text(content)
        capsys.readouterr()
        start()
        assert "a kept plan is not used" in capsys.readouterr().err
        assert path.read_text() == whole
    assert len(searches) == 7


def plans_in(folder: Path) -> list[Path]:
    """The files of plans, without those of their frontiers."""
    return [path for path in folder.iterdir() if not path.name.endswith(".frontier.json")]


def test_the_plans_used_longest_ago_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searches: list[str]
) -> None:
    monkeypatch.setattr(kept_plans, "_MOST_FILES", 4)
    start(units=8)
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    start(units=9)
    for path in tmp_path.iterdir():
        os.utime(path, (2 if path.stat().st_atime > 1 else 1, 1))
    start(units=8)  # is now the one used last
    start(units=10)
    assert len(list(tmp_path.iterdir())) == 4
    start(units=8)
    assert len(searches) == 3
    monkeypatch.setattr(kept_plans, "_MOST_FRONTIER_BYTES", 1)
    start(units=12)
    assert len(plans_in(tmp_path)) > len(list(tmp_path.iterdir())) / 2
    monkeypatch.setattr(kept_plans, "_MOST_BYTES", 1)
    start(units=11)
    assert not list(tmp_path.iterdir())


def test_nothing_is_kept_where_that_is_not_wanted_or_possible(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    searches: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Watch, "interrupted", property(lambda _: True, lambda *_: None), False)
        start()
    assert not list(tmp_path.iterdir())
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TENSOROPT_PLANS", str(blocked))
    start()
    assert "the plan is not kept for the next start" in capsys.readouterr().err
    monkeypatch.setenv("TENSOROPT_PLANS", "none")
    start()
    assert len(searches) == 3
    assert list(tmp_path.iterdir()) == [blocked]


def test_plans_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOROPT_PLANS", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    start()
    assert len(plans_in(tmp_path / "tensoropt" / "plans")) == 1


def test_every_point_is_taken_without_a_search(
    searches: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, losses = start(runs=3)
    assert len(found.frontier) == len(found.frontier_ways) > 1
    for number, point in enumerate(found.frontier):
        taken, same = start(runs=3, point=number)
        assert (taken.memory_bytes, taken.time_nanoseconds) == point
        assert (taken.frontier, taken.frontier_ways) == (found.frontier, found.frontier_ways)
        assert same == pytest.approx(losses, rel=1e-5)
    assert start()[0] == found, "a point leaves the kept plan as it is"
    assert len(searches) == 1
    with pytest.raises(OptionError, match=f"{len(found.frontier)} points"):
        start(point=len(found.frontier))
    (path,) = tmp_path.glob("*.frontier.json")
    whole = path.read_text()
    changed = whole.replace('"exact": true', '"exact": false')
    for content in (changed, json.dumps({**json.loads(whole), "schema": 3})):
        path.write_text(content)
        capsys.readouterr()
        start(point=0)
        assert "a kept frontier is not used" in capsys.readouterr().err
        assert path.read_text() == whole
    assert len(searches) == 3
    fewest, _ = start(option="mini_parallelism")
    taken, _ = start(option="mini_parallelism", point=0)
    assert (
        (taken.devices, taken.option) == (1, "mini_parallelism") == (fewest.devices, fewest.option)
    )
    assert len(searches) == 4


def test_a_point_is_searched_where_nothing_is_kept(
    searches: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSOROPT_PLANS", "none")
    taken, _ = start(point=0)
    assert taken.frontier[0] == (taken.memory_bytes, taken.time_nanoseconds)
    assert not list(tmp_path.iterdir())
    assert len(searches) == 1
    wrong: list[dict[str, Any]] = [{"option": "profiling"}, {"validate": 2}, {"point": True}]
    for options in wrong:
        with pytest.raises(OptionError, match="point"):
            start(**{"point": 0, **options})


def test_a_start_with_a_kept_plan_imports_no_search(
    python: Callable[..., Any], tmp_path: Path
) -> None:
    program = (
        "import sys, keras, tensoropt\n"
        "tensoropt.parallelize, tensoropt.find_strategy, tensoropt.Session\n"
        "assert not {'numba', 'tensoropt.search.find'} & set(sys.modules)"
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    done = python(path, fresh=True)
    assert done.returncode == 0, done.stderr
