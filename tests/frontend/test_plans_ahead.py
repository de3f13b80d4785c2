"""Plans for the start after a loss, which a process searches beside the job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.cost.measured_links import (
    LinkSetting,
    LinkTime,
    MeasuredLevel,
    MeasuredLinks,
    MeasuredPace,
)
from tensoropt.elastic.rank_variables import PLAN_AHEAD_VARIABLE, tell_checkpoint
from tensoropt.frontend.planning.ahead import steps
from tensoropt.frontend.planning.ahead.message import Message
from tests.conftest import Finished
from tests.frontend.plans_ahead_program import AtOnce, start, watched

LEVEL = MeasuredLevel(3, 1, False, (LinkTime("allreduce", 1024, 60_000, 9_000),))
LINKS = MeasuredLinks(
    LinkSetting(("a", "b", "c"), (1, 1, 1), 2, "Connections"),
    LEVEL,
    None,
    MeasuredPace(10**10, 10**10),
)


PROGRAM = Path(__file__).with_name("plans_ahead_program.py")


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The options of the searches that starts make; all files are in the test's folder."""
    return watched(monkeypatch, tmp_path)


def graph(**options: Any) -> None:
    tf.reset_default_graph()
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    weights = tf.get_variable("weights", [4, 8], initializer=tf.ones_initializer())
    hidden = tf.matmul(x, weights)
    hidden, *_ = tf.nn.fused_batch_norm(
        tf.reshape(hidden, [-1, 1, 1, 8]), tf.ones([8]), tf.zeros([8])
    )
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(hidden, rate=0.5) - 1.0))
    tf.train.AdamOptimizer(0.1).minimize(loss)
    tf.find_strategy(batch_size=24, **options)


@pytest.mark.parametrize(
    ("door", "options"),
    [
        (graph, {}),
        (graph, {"option": "mini_parallelism", "memory_limit_bytes": 10**8, "epsilon": 0}),
        (graph, {"point": 0, "fixed": {"*": {"batch": "device"}}}),
    ],
)
def test_the_start_after_a_loss_searches_nothing(
    door: Callable[..., None],
    options: dict[str, Any],
    searches: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PLAN_AHEAD_VARIABLE, "2,2;0,2;2,0")
    start(door, "aabb", None, **options)
    assert AtOnce.lines == []
    tell_checkpoint()
    (line,) = AtOnce.lines  # the machines are alike
    assert line.startswith("a plan for a start on 2 devices is kept, after a search"), line
    searched = len(searches)
    tell_checkpoint()
    assert len(AtOnce.lines) == 1
    monkeypatch.delenv(PLAN_AHEAD_VARIABLE)
    start(door, "bb", None, **options)
    assert len(searches) == searched == 1
    start(door, "ab", None, **options)
    assert len(searches) == 2  # another request
    monkeypatch.setenv(PLAN_AHEAD_VARIABLE, "2,2;0,2;2,0")
    start(door, "aabb", None, **options)
    assert not steps._noted  # nothing is left to plan


def test_steps_and_models(python: Callable[..., Finished], tmp_path: Path) -> None:
    ended = python(PROGRAM, tmp_path)
    assert ended.returncode == 0, ended.stderr
    counts = json.loads(ended.stdout.splitlines()[-1])
    assert counts == {"tape": [1, 1, 0], "fit": [1, 1, 0]}


def test_the_links_of_the_machines_that_are_left_are_kept(
    searches: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PLAN_AHEAD_VARIABLE, "1,1,1;0,1,1;1,0,1;1,1,0")
    start(graph, "abc", LINKS)
    tell_checkpoint()
    assert len(AtOnce.lines) == 1
    assert len(list((tmp_path / "profiles").iterdir())) == 3
    monkeypatch.delenv(PLAN_AHEAD_VARIABLE)
    for hosts in ("bc", "ac", "ab"):
        setting = LinkSetting(tuple(hosts), (1, 1), 2, "Connections")
        kept = MeasuredLinks.load(tmp_path / "profiles" / setting.file_name)
        assert kept == replace(LINKS, setting=setting)
        start(graph, hosts, kept)
    assert searches == ["mini_time"]


def test_a_start_for_which_nothing_fits_is_told(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLAN_AHEAD_VARIABLE, "2,2;2,0")
    start(graph, "aabb", None, fixed={"*": {"batch": "machine"}})
    tell_checkpoint()
    (line,) = AtOnce.lines
    assert line.startswith("no plan is kept for a start on 2 devices: "), line
    assert len(searches) == 1


def own_gradient(**options: Any) -> None:
    tf.reset_default_graph()

    @tf.custom_gradient
    def doubled(x: Any) -> Any:
        return x, lambda upstream: 2 * upstream

    weights = tf.get_variable("weights", [4, 8], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(doubled(tf.ones([24, 4]) @ weights)))
    tf.train.AdamOptimizer(0.1).minimize(loss)
    tf.find_strategy(**options)


@pytest.mark.parametrize(
    ("door", "starts", "plans", "reason"),
    [
        (own_gradient, "2,2;0,2;2,0", "", "the step has gradients of its own"),
        (graph, "2,1,1;0,1,1", "", "the machines have (2, 2) ranks, in their order, not (2, 1, 1)"),
        (graph, "2,2;0,2;2,0", "none", "no plans are kept"),
    ],
)
def test_a_plan_that_no_start_would_use_is_not_searched(
    door: Callable[..., None],
    starts: str,
    plans: str,
    reason: str,
    searches: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(PLAN_AHEAD_VARIABLE, starts)
    monkeypatch.setenv("TENSOROPT_PLANS", plans or os.environ["TENSOROPT_PLANS"])
    start(door, "aabb", None)
    tell_checkpoint()
    assert AtOnce.lines == []
    assert len(searches) == 1
    assert f"tensoropt: no plan is searched ahead: {reason}" in capsys.readouterr().err


SEARCHER = """
import os, sys
print("tensoropt: read", len(sys.stdin.buffer.read()) > 0, flush=True)
os.read(int(sys.argv[1]), 1)
"""


def test_the_process_ends_with_the_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "_COMMAND", ("-c", SEARCHER))
    message = Message((), (), None, None, "", "mpi", ())
    process = steps._Process(message, [])
    process.start()
    while process._process is None:
        process.join(0.01)
    process.join(0.5)
    assert process.is_alive()
    process.end()
    process.join()
    assert process._process.returncode == 0
    assert capsys.readouterr().err == "tensoropt: read True\n"


def test_a_process_that_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "_COMMAND", ("-c", "raise ValueError('no memory')"))
    process = steps._Process(Message((), (), None, None, "", "mpi", ()), [])
    process.start()
    process.join()
    assert capsys.readouterr().err == (
        "tensoropt: plans are not searched ahead: the process ended with status 1: "
        "ValueError: no memory\n"
    )
