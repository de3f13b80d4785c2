"""Timelines of steps: which time is whose, and a file that Chrome reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt
from tensoropt.execution.runtime.step_trace import FIRST, LAST, overlap

tf = tensoropt


@pytest.mark.parametrize(
    ("computation", "communication", "expected"),
    [
        ([(0, 4)], [(4, 6)], (6, 4, 2, 0)),
        ([(0, 4), (2, 5)], [(3, 8)], (8, 5, 5, 2)),
        ([(0, 2), (6, 9)], [(1, 7), (3, 4)], (9, 5, 6, 2)),
        ([(5, 6)], [], (1, 1, 0, 0)),
        ([], [], (0, 0, 0, 0)),
    ],
)
def test_what_is_hidden_happens_while_something_computes(
    computation: list[tuple[int, int]],
    communication: list[tuple[int, int]],
    expected: tuple[int, int, int, int],
) -> None:
    milliseconds = ([(a * 10**6, b * 10**6) for a, b in of] for of in (computation, communication))
    found = overlap(*milliseconds)
    assert tuple(getattr(found, name) for name in found.__slots__) == expected


def test_runs_of_a_step_are_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOROPT_TRACE", str(tmp_path / "traces"))
    tf.shutdown()
    with tf.Graph().as_default():
        data = tf.data.Dataset.from_tensors(np.ones((4, 8), np.float32)).repeat()
        values = tf.data.make_one_shot_iterator(data).get_next()
        weights = tf.get_variable("weights", [8, 4], initializer=tf.ones_initializer())
        loss = tf.reduce_sum(tf.matmul(values, weights))
        step = tf.GradientDescentOptimizer(0.1).minimize(loss)
        tf.init(devices=2)
        options: Any = {"batch_size": 4, "algorithm": "data_parallel", "microbatches": 2}
        tf.build_execution_graph(plan=tf.find_strategy(**options))
        losses = [tf.run([loss, step])[0] for _ in range(LAST + 1)]
        tf.shutdown()
    assert losses == sorted(losses, reverse=True)
    found = json.loads((tmp_path / "traces" / "rank0.json").read_text())
    steps = found["otherData"]["steps"]
    assert len(steps) == LAST - FIRST + 1
    assert all(each["step_ms"] >= each["communication_ms"] > 0 for each in steps)
    events = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert {"computation", "communication", "input", "pass"} == {event["cat"] for event in events}
    waits = [event["dur"] / 1e3 for event in events if event["cat"] == "input"]
    assert waits == pytest.approx([each["input_ms"] for each in steps])
    passes = [event["name"] for event in events if event["cat"] == "pass"]
    each = ["backward 0", "backward 1", "forward 0", "forward 1"]
    assert sorted(passes) == sorted(each * len(steps))
    types = [event["name"].removeprefix("_Mkl") for event in events]
    # On two ranks, twice, forward and backward, whether they allocate or not.
    assert types.count("MatMul") == 8 * len(steps)
    assert all(event["dur"] >= 0 for event in events)
    runs = [event["args"]["run"] for event in events if event["cat"] == "computation"]
    assert set(runs) == set(range(len(steps)))
