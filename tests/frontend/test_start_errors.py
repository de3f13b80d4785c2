"""Errors of a wrong start of the job, and of names that neither package has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensoropt as tf
from tensoropt import errors
from tensoropt.cost.cluster import load_cluster
from tensoropt.frontend.job.job import current

Regression = tuple[Any, Any, Any, Any]
Fails = Callable[[type[Exception], str, str, str, Callable[[], Any]], None]


def test_before_init(regression: Regression, fails: Fails) -> None:
    fails(errors.StateError, "started before", "a call before init", "tensoropt.init()", tf.summary)
    with pytest.raises(errors.StateError):
        tf.find_strategy()
    with pytest.raises(errors.StateError):
        tf.run(regression[2])


@pytest.mark.parametrize(
    ("call", "name", "near"),
    [
        (lambda **given: tf.init(**given), "device", "devices"),
        (lambda **given: tf.find_strategy(**given), "optoin", "option"),
        (lambda **given: tf.preflight(**given), "batchsize", "batch_size"),
        (lambda **given: tf.build_execution_graph(**given), "plans", "plan"),
        (lambda **given: tf.Session(**given), "confg", "config"),
        (lambda **given: tf.InteractiveSession(**given), "grph", "graph"),
    ],
)
def test_an_argument_of_another_name(call: Callable[..., Any], name: str, near: str) -> None:
    with pytest.raises(errors.OptionError, match=f"Got '{name}'. Did you mean '{near}'?"):
        call(**{name: 1})


@pytest.mark.parametrize("text", ["four", "4.0", "-4", "", "²"])
def test_devices_variable_is_no_number(
    text: str, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    monkeypatch.setenv("TENSOROPT_DEVICES", text)
    fails(errors.OptionError, "TENSOROPT_DEVICES", repr(text), "set it to a number", tf.init)


@pytest.mark.parametrize("count", [0, -2])
def test_no_devices(count: int) -> None:
    with pytest.raises(errors.OptionError, match=f"Got devices={count}; leave it out"):
        tf.init(devices=count)


def test_an_unknown_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.OptionError, match="Got transport='nccl'; leave it out"):
        tf.init(transport="nccl")
    monkeypatch.setenv("TENSOROPT_TRANSPORT", "gloo")
    with pytest.raises(errors.OptionError, match="Got TENSOROPT_TRANSPORT='gloo'; leave it out"):
        tf.init()
    assert not tf.is_initialized()


def test_a_folder_of_traces_that_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    (tmp_path / "traces").write_text("")
    monkeypatch.setenv("TENSOROPT_TRACE", str(tmp_path / "traces"))
    fails(errors.OptionError, "into a folder", "traces'", "another one in TENSOROPT_TRACE", tf.init)
    assert not tf.is_initialized()


def test_a_transport_in_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    tf.init(devices=2, transport="horovod")
    assert "between processes, of which there is one here" in capsys.readouterr().err


def test_an_unknown_cluster() -> None:
    with pytest.raises(errors.PlanError, match=r"one of 2x8-v100, .*Got 'nowhere'"):
        tf.init(devices=4, cluster="nowhere")
    assert not tf.is_initialized()


def test_arguments_of_init_that_come_too_late() -> None:
    """`rank` and its like start the job, as `init` without arguments does."""
    assert not tf.is_initialized()
    assert (tf.rank(), tf.size(), tf.local_rank(), tf.local_size()) == (0, 1, 0, 1)
    assert tf.is_initialized()
    tf.init(devices=1, transport="mpi", cluster="2x8-v100")
    assert current().cluster == load_cluster("2x8-v100")
    with pytest.raises(errors.OptionError, match=r"Got init\(devices=2\) in a job with 1 device;"):
        tf.init(devices=2)
    with pytest.raises(errors.OptionError, match=r"Got init\(transport='horovod'\) in a job with"):
        tf.init(transport="horovod")
    tf.shutdown()
    assert not tf.is_initialized()


def test_eager_code_before_graph_mode(python: Callable[..., Any]) -> None:
    program = "import tensorflow as tf; tf.ones([2]) + 1; import tensoropt; tensoropt.Session()"
    done = python("-c", program)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "StateError: TensorOpt reads a script's graph, so graph mode is on before" in last
    assert "Got operators that ran eagerly" in last
    assert "Call tensoropt.enable_graph_mode() at the top" in last


def test_names_that_neither_has() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'contrib', .*the package tf_slim"):
        _ = tf.contrib
    with pytest.raises(AttributeError, match="'tensoropt' has no attribute 'nothing', and neither"):
        tf.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="__nothing__"):
        tf.__nothing__  # noqa: B018
    for name in ("tensoropt.nothing", "tensoropt.layers", "tensoropt.nn"):
        with pytest.raises(ModuleNotFoundError):
            __import__(name)
    assert not hasattr(tf, "__file_of_nothing__")
    assert os.path.basename(tf.__file__) == "__init__.py"
