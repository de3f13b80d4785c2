"""Unity's evaluation asks what a user asks, and its other systems are not held back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reproduction.unity.entry import CLUSTER
from reproduction.unity.models import JointModel, mlp, xdl
from reproduction.unity.systems import find_model
from tensoropt.cli.plan import plan_reached
from tensoropt.tdl import registry

DEVICES = 6
MODELS: dict[str, Callable[[], Any]] = {
    "mlp": partial(mlp, layers=3, width=2048),
    "xdl": partial(xdl, width=32),
}
SCRIPT = """
import tensoropt as tf
from reproduction.unity.models import JointModel, minimized
from tests.reproduction.test_unity import MODELS
tf.init()
with tf.Graph().as_default():
    train = minimized(JointModel(MODELS["{name}"], 64))
    plan = tf.find_strategy(fetches=[train], batch_size={batch}, search_seconds=30.0)
    tf.build_execution_graph(plan=plan)
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the description of fused operators afterwards, which no other test expects."""
    monkeypatch.setattr(registry._REGISTRY, "_types", dict(registry._REGISTRY._types))


@pytest.mark.parametrize("name", MODELS)
def test_ours_is_what_tensoropt_plan_prints_and_no_other_is_held_back(
    name: str, tmp_path: Path
) -> None:
    found = find_model(JointModel(MODELS[name], 64), DEVICES)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(name=name, batch=64 * DEVICES), encoding="utf-8")
    printed = plan_reached(script, DEVICES, CLUSTER, (), {}, "plan").plan
    assert found.ours == printed.predicted_step_seconds
    assert found.data_parallel is not None
    assert found.rewritten_first is not None
    assert found.rewritten_first <= found.data_parallel
