"""``tensoropt check`` and ``preflight``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensoropt
from tensoropt.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

WITH_MATRIX_OPERATORS = """
import tensoropt as tf
tf.init()
x = tf.placeholder(tf.float32, [None, 64], name="x")
w = tf.get_variable("w", [64, 64])
distinct, _ = tf.raw_ops.Unique(x=tf.reshape(tf.cast(x, tf.int32), [-1]), out_idx=tf.int32)
unitary = tf.linalg.qr(w, name="qr").q
loss = tf.reduce_mean(tf.matmul(x, unitary)) + tf.cast(tf.size(distinct), tf.float32)
step = tf.GradientDescentOptimizer().minimize(loss)
tf.find_strategy(batch_size=32)
print("went on")
"""

MLP = """
import sys
import tensoropt as tf
tf.init(devices=4)
x = tf.placeholder(tf.float32, [None, 256], name="x")
y = tf.placeholder(tf.int64, [None], name="y")
hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w1", [256, int(sys.argv[1])])))
scores = tf.matmul(hidden, tf.get_variable("w2", [int(sys.argv[1]), 64]))
losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
step = tf.GradientDescentOptimizer().minimize(tf.reduce_mean(losses))
if "--preflight" in sys.argv:
    found = tf.preflight(devices=8, batch_size=64)
    assert found.devices == 8 and found.unsplit_share < 0.01
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=64))
else:
    tf.find_strategy(batch_size=64)
"""

RUN = """with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step, {x: [[0.0] * 256] * 64, y: [0] * 64})
        print("trained")
"""


def write(folder: Path, text: str) -> str:
    file = folder / "train.py"
    file.write_text(text)
    return str(file)


def test_what_has_no_description_is_listed_at_once_without_mpi(
    python: Callable[..., Any], tmp_path: Path
) -> None:
    """The command runs in a process of its own, with a launcher's environment but no launcher."""
    script = write(tmp_path, WITH_MATRIX_OPERATORS)
    (tmp_path / "mpi4py.py").write_text("raise RuntimeError('MPI is started')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    arguments = ["check", script, "--devices", "4", "--batch-size", "64"]
    launched = {"PYTHONPATH": path, "PMI_RANK": "0", "PMI_SIZE": "4"}
    done = python("-m", "tensoropt", *arguments, env=launched)
    assert done.returncode == 0, done.stderr
    assert "went on" not in done.stdout
    lines = done.stdout.splitlines()
    for name, kind, why in (
        ("qr", "Qr", "o0_0, o0_1, o1_0, o1_1: read whole by opaque Qr"),
        ("Unique", "Unique", "no description"),
    ):
        (line,) = (line for line in lines if line.lstrip("! ").startswith(f"{name} "))
        assert line.split()[:3] == ["!", name, kind]
        assert line.endswith(why)
    assert " operators cannot be split on 4 devices (mesh [2,2] of " in lines[-1]


def test_nothing_heavy_of_an_mlp_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, MLP)
    assert main(["check", script, "--cluster", "2x8-v100", "--", "512"]) == 0
    out = capsys.readouterr().out
    assert not any(line.startswith("!") for line in out.splitlines())
    assert "on 16 devices (mesh [2,2,2,2] of 2x8-v100), 0 of them above 1 %" in out
    assert not tensoropt.is_initialized()


def test_a_script_that_leaves_planning_to_its_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MLP.replace("tf.find_strategy(batch_size=64)\n", RUN)
    assert text.endswith(RUN)
    assert main(["check", write(tmp_path, text), "--cluster", "2x8-v100", "--", "512"]) == 0
    out = capsys.readouterr().out
    assert "trained" not in out
    assert "on 16 devices (mesh [2,2,2,2] of 2x8-v100), 0 of them above 1 %" in out


def test_a_batch_that_does_not_divide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", write(tmp_path, MLP), "--cluster", "2x8-v100", "--devices", "2"]
    assert main([*arguments, "--batch-size", "1", "--", "5"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if " Relu " in line)
    assert "extent 1;" in line
    assert "extent 5 does not divide by 2" in line
    tensoropt.reset_default_graph()
    assert main([*arguments, "--batch-size", "63", "--", "5"]) == 0
    assert " Relu " not in capsys.readouterr().out


def test_the_function_says_the_same_before_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, MLP)
    own = ["--devices", "4", "--cluster", "2x8-v100"]
    assert main(["plan", script, *own, "--", "512", "--preflight"]) == 0
    in_script = capsys.readouterr().out
    tensoropt.reset_default_graph()
    assert main(["check", script, "--devices", "8", "--cluster", "2x8-v100", "--", "512"]) == 0
    assert in_script.startswith(capsys.readouterr().out)


def test_the_batch_of_the_command_line_replaces_that_of_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", write(tmp_path, MLP), "--batch-size", "1", "--cluster", "2x8-v100"]
    assert main([*arguments, "--devices", "2", "--", "5", "--preflight"]) == 0
    assert "extent 5 does not divide by 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("import tensoropt as tf; tf.init()", "before that; check its arguments"),
        ("import sys; sys.exit(2)", "with exit status 2 before that"),
    ],
)
def test_a_script_that_finds_no_strategy(
    text: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", write(tmp_path, text)]) == 1
    error = capsys.readouterr().err
    assert "OptionError: a script to check calls init, and find_strategy or trains. Got" in error
    assert remedy in error


def test_one_device_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path, MLP), "--devices", "1", "--", "8"]) == 1
    assert "OptionError: a check is for several devices" in capsys.readouterr().err
