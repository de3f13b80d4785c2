"""Plain TensorFlow beside TensorOpt in one process: without a job its sessions are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.frontend.tensorflow_api.shared_names import MissingModule

plain = tensorflow.compat.v1
FEATURES, TARGETS = np.ones((4, 4), np.float32), np.zeros(4, np.float32)


def test_monitored_sessions_and_supervisors_train_without_a_job(
    regression: tuple[Any, Any, Any, Any], tmp_path: Path
) -> None:
    features, targets, loss, train = regression
    feeds = {features: FEATURES, targets: TARGETS}
    plain.train.get_or_create_global_step()
    with plain.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path / "monitored")
    ) as session:
        assert isinstance(session._tf_sess(), plain.Session)
        first, _ = session.run([loss, train], feeds)
        assert session.run(loss, feeds) < first
    assert plain.train.latest_checkpoint(tmp_path / "monitored")
    supervisor = plain.train.Supervisor(logdir=str(tmp_path / "supervised"), save_model_secs=1)
    with supervisor.managed_session() as session:
        assert isinstance(session, plain.Session)
        assert session.run([loss, train], feeds)[0] == first
    assert list((tmp_path / "supervised").glob("events*"))


def test_what_is_in_another_package_says_so() -> None:
    with pytest.raises(
        AttributeError, match=r"tf\.layers is in the package tf_keras\. Got none; pip"
    ):
        MissingModule("layers").dense  # noqa: B018
    assert not hasattr(tf, "contrib")
