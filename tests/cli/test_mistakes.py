"""Mistakes on the command line and in scripts.

Each error has the rule, what came, and the remedy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.cli.main import main

MISTAKES = [
    (["paln", "a.py"], "is one of plan, frontier", "Got 'paln'", "Did you mean 'plan'?"),
    (["plan", "a.py", "--device", "2"], "is one of --devices", "Got '--device'", "'--devices'?"),
    (["plan", "a.py", "--devices", "0"], "takes whole numbers from 1", "Got 0", "correct it"),
    (
        ["plan", "a.py", "--devices", "2", "--memory-limit", "8 apples"],
        *("memory is a number with one of the units", "Got '8 apples'", "such as 8GiB"),
    ),
    (
        ["plan", "a.py", "--devices", "2", "--schedule", "1f1c"],
        *("a schedule is one of", "Got '1f1c'", "Did you mean '1f1b'?"),
    ),
    (
        ["plan", "a.py", "--devices", "2", "--point", "turningpoint"],
        *("is the number of a point", "Got 'turningpoint'", "Did you mean 'turning-point'?"),
    ),
    (
        ["plan", "a.py", "--devices", "2", "--save-memory", "maybe"],
        *("yes or no on the command line", "Got 'maybe'", "correct it"),
    ),
    (["check", "none.py"], "a script to check is a Python file", "Got 'none.py'", "give its path"),
    (["frontier", "a.py"], "is for a number of devices", "without --devices", "add --devices 4"),
    (
        ["frontier", "p.json", "--cluster", "8-v100", "--memory-limit", "8GiB", "--", "x"],
        *("is that of its own devices", "Got --cluster, --memory-limit, the", "leave them out"),
    ),
    (["show", "none.json"], "a plan is a whole, readable", "Got 'none.json'", "Give the path"),
    (["show"], "`tensoropt show` takes PLAN.json", "Got none", "give it"),
    (["plan", "a.py"], "`tensoropt plan` takes --devices", "Got none", "give it"),
    (["plan", "a.py", "--devices"], "`--devices` takes a value", "Got none", "see --help"),
    (["show", "a.json", "--json=1"], "`--json` takes no value", "Got one", "drop it"),
    (["diff", "a.json", "b.json"], "a plan is a whole, readable", "Got 'a.json'", "Give the path"),
    (
        ["clusters", "make", "none/c.json", "--this-machine"],
        *("into an existing folder", "Got 'none/c.json'", "make its folder"),
    ),
    (
        ["clusters", "dump", "8-v100", "--output", "none/c.json"],
        *("into an existing folder", "Got --output 'none/c.json'", "make its folder"),
    ),
    (
        ["clusters", "dump", "8-v100", "--output", "."],
        *("a cluster is written into a file", "Got --output '.'", "the path of a file"),
    ),
    (
        ["clusters", "make", ".", "--this-machine"],
        *("is written into a file", "Got '.'", "the path of a file"),
    ),
    (
        ["clusters", "make", "c.json", "--machines", "2"],
        *("a question is asked on a terminal", "no --devices", "add --devices 8"),
    ),
    (
        ["clusters", "make", "c.json", "--machines", "1", "--devices", "2", "--device", ""],
        *("--device is a name of", "Got ''", "correct it"),
    ),
    (
        [
            *("clusters", "make", "c.json", "--machines", "1", "--devices", "2", "--device", "A"),
            *("--memory", "8GiB", "--tflops", "6e13"),
        ],
        *("--tflops is a number from 1e-9 to 1e9", "Got 60000000000000.0", "correct it"),
    ),
]


@pytest.mark.parametrize(("arguments", "rule", "got", "remedy"), MISTAKES)
def test_a_mistake_has_its_remedy(
    arguments: list[str],
    rule: str,
    got: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        assert main(arguments) == 1
    error = capsys.readouterr().err
    assert all(part in error for part in (rule, got, remedy)), error
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The superuser may write any folder, so the system's answer is another one here."""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main(["clusters", "dump", "8-v100", "--output", str(tmp_path / "c.json")]) == 1
    error = capsys.readouterr().err
    assert "a cluster is written into a folder that this user can write. Got --output" in error
    assert "give another path" in error


def test_an_error_of_starting_mpi_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("collectives.group._world", None)
    monkeypatch.setenv("COLLECTIVES_TRANSPORT", "mpy")
    assert main(["profile"]) == 1
    assert "TransportError: COLLECTIVES_TRANSPORT is mpi or single" in capsys.readouterr().err


def step(**options: Any) -> Any:
    """Plan a step of one matrix product for two devices."""
    tf.init(devices=2)
    values = tf.placeholder(tf.float32, [None, 8], name="values")
    weights = tf.get_variable("weights", [8, 4])
    tf.GradientDescentOptimizer().minimize(tf.reduce_mean(tf.matmul(values, weights)))
    return tf.find_strategy(**{"batch_size": 4, **options})


SCRIPT_MISTAKES: list[tuple[Callable[[], Any], str, str, str]] = [
    (lambda: tf.init(devces=2), "an argument of init is one of", "'devces'", "'devices'?"),
    (lambda: tf.init(devices=0), "at least one device", "Got devices=0", "leave it out"),
    (lambda: tf.init(devices="2"), "a whole number", "Got devices='2'", "leave it out"),
    (lambda: tf.init(devices=2.5), "a whole number", "Got devices=2.5", "leave it out"),
    (lambda: tf.init(transport="mpy"), "a transport is one of", "'mpy'", "leave it out"),
    (lambda: tf.init(cluster="moon"), "a cluster is one of", "'moon'", "Use a file"),
    (lambda: tf.find_strategy(), "is started before", "before init", "call tensoropt.init()"),
    (lambda: step(option="min_time"), "an option is one of", "'min_time'", "'mini_time'?"),
    (lambda: step(batchsize=2), "an argument of find_strategy", "'batchsize'", "'batch_size'?"),
    (lambda: step(shapes={"value": [4, 8]}), "of shapes is one of values", "'value'", "'values'?"),
    (lambda: step().explain("weights", "9"), "is a number above 0", "Got '9'", "correct it"),
    (lambda: step(batch_size=0), "takes whole numbers from 1", "Got 0", "correct it"),
    (lambda: step(point=1, validate=2), "one point of the frontier", "Got point=1", "leave one"),
    (lambda: tf.init(cluster=5), "a cluster is one of", "Got 5, which is no path", "Use a file"),
    (lambda: tf.Plan.load(5), "a plan is a whole, readable", "Got 5", "Give the path"),
    (lambda: tf.preflight(devices=0), "takes whole numbers from 1", "Got 0", "correct it"),
    (lambda: step(memory_limit_bytes="8GiB"), "takes whole numbers", "Got '8GiB'", "8 * 2**30"),
    (lambda: step(samples=9), "samples is for 'mini_cost'", "Got samples=9", "leave one"),
    (lambda: step(pipeline=2, microbatches=1), "on different microbatches", "Got", "at least 2"),
    (lambda: step(memory_limit_bytes=8), "a strategy takes", "Got", "raise"),
]


@pytest.mark.parametrize(("mistake", "rule", "got", "remedy"), SCRIPT_MISTAKES)
def test_a_mistake_in_a_script_has_its_remedy(
    mistake: Callable[[], Any], rule: str, got: str, remedy: str
) -> None:
    with pytest.raises(tf.TensorOptError) as raised:
        mistake()
    assert all(part in str(raised.value) for part in (rule, got, remedy)), raised.value
