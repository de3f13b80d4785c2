"""Copies are refused from the import on, where a launcher has started several ranks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tensoropt.launched import several_ranks, share_cores

MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2"}
VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID")


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 0),
        (MPICH, 2),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, 0),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, 4),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3"}, 3),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, 0),  # a batch script, which no srun started
        ({**MPICH, "COLLECTIVES_TRANSPORT": "single"}, 0),
    ],
)
def test_launchers_say_how_many_ranks_there_are(
    environment: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert several_ranks() == ranks


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, None),
        (MPICH, None),  # the number of ranks on this machine is unknown
        ({**MPICH, "MPI_LOCALNRANKS": "2"}, "4"),
        ({**MPICH, "MPI_LOCALNRANKS": "2", "BOUND": "1"}, "1"),
        ({**MPICH, "MPI_LOCALNRANKS": "16"}, "1"),
        ({**MPICH, "MPI_LOCALNRANKS": "2", "TENSOROPT_THREADS": "3"}, "3"),
        ({**MPICH, "MPI_LOCALNRANKS": "2", "TF_NUM_INTRAOP_THREADS": "7"}, "7"),
        ({**MPICH, "MPI_LOCALNRANKS": "2", "TENSOROPT_ALLOW_COPIES": "1"}, None),
    ],
)
def test_the_ranks_of_a_machine_share_its_cores(
    environment: dict[str, str], threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = range(int(environment.get("BOUND", "8")))
    monkeypatch.setattr("os.environ", environment.copy())
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(own))
    monkeypatch.setattr("collectives.transport.launch.available_cores", lambda: 8)
    share_cores()
    assert os.environ.get("TF_NUM_INTRAOP_THREADS") == threads


NOTHING = """
import sys
finders = list(sys.meta_path)
import tensoropt
assert sys.meta_path == finders
loaded = {"tensorflow", "mpi4py"} & set(sys.modules)
assert not loaded, loaded
"""


def test_nothing_is_changed_without_a_launcher_or_where_copies_are_meant(
    python: Callable[..., Any],
) -> None:
    for environment in ({}, {**MPICH, "TENSOROPT_ALLOW_COPIES": "1"}):
        finished = python("-c", NOTHING, env=environment, fresh=True)
        assert finished.returncode == 0, finished.stderr


def test_an_error_after_the_import_ends_the_rank_by_a_signal(python: Callable[..., Any]) -> None:
    """Upon which launchers end the other ranks. A hook of the script is called first, once."""
    program = """
import sys
sys.excepthook = lambda kind, error, trace: print("the script's hook:", error)
import tensoropt
sys.excepthook = lambda *error, before=sys.excepthook: before(*error)
assert sys.modules.keys().isdisjoint({"tensorflow", "mpi4py"})
raise OSError("no such data")
"""
    finished = python("-c", program, env=MPICH, fresh=True)
    assert finished.returncode == -signal.SIGTERM
    assert finished.stdout == "the script's hook: no such data\n"
    assert finished.stderr.count("OSError: no such data") == 1
    assert "tensoropt: a rank ends the job before init" in finished.stderr


def test_a_model_that_is_not_parallel_does_not_train_copies(python: Callable[..., Any]) -> None:
    """No MPI is started for that, and a mere look for TensorFlow is none at a tape."""
    program = """
import importlib.util, sys, tensoropt
assert importlib.util.find_spec("tensorflow") and "tensorflow" not in sys.modules
import keras, numpy as np, tensorflow as tf
assert sys.modules.keys().isdisjoint({"mpi4py", "tensoropt.frontend"})
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
assert model.predict(np.ones((8, 4)), verbose=0).shape == (8, 1)
try:
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
except tensoropt.errors.StateError as error:
    assert "Got Adam.apply" in str(error) and "on each of 2 ranks" in str(error), error
else:
    raise AssertionError("it has trained")
assert "mpi4py" not in sys.modules and not tensoropt.is_initialized()
try:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("w", [2], use_resource=True)
        optimizer = tf.compat.v1.train.AdamOptimizer()
        session.run(optimizer.minimize(lambda: tf.reduce_sum(weights), var_list=[weights]))
except tensoropt.errors.StateError as error:
    assert "a session of TensorOpt's" in str(error), error
else:
    raise AssertionError("it has trained")
"""
    finished = python("-c", program, env=MPICH, fresh=True)
    assert finished.returncode == 0, finished.stderr
