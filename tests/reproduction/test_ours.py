"""Every ours is what a user gets, and other systems are not held back."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reproduction.rannc import testbed
from reproduction.rannc.systems import told
from reproduction.unity.models import CLUSTER, JointModel, mlp, xdl
from reproduction.unity.systems import find_model
from tensoropt.cli.plan import plan_reached
from tensoropt.plan import Plan
from tensoropt.tdl import registry
from tests.proofs import proof

DEVICES, BATCH, SECONDS = 6, 64, 30.0
MODELS = {
    "mlp": JointModel(partial(mlp, layers=3, width=2048), BATCH),
    "xdl": JointModel(partial(xdl, width=32), BATCH),
}
BERT = "1x64"
SCRIPT = """
import tensoropt as tf
from {module} import {imported}
tf.init()
with tf.Graph().as_default():
    script = {script}
    plan = tf.find_strategy(
        fetches=[script.train()], batch_size=script.batch, search_seconds=script.search_seconds
    )
    tf.build_execution_graph(plan=plan)
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the description of fused operators afterwards, which no other test expects."""
    monkeypatch.setattr(registry._REGISTRY, "_types", dict(registry._REGISTRY._types))


def printed(path: Path, devices: int, cluster: str, **script: Any) -> Plan:
    """The plan that ``tensoropt plan`` prints for a script."""
    path.write_text(SCRIPT.format(**script), encoding="utf-8")
    return plan_reached(path, devices, cluster, (), {}, "plan").plan


@pytest.mark.parametrize("name", ["mlp", proof("xdl")])
def test_unitys_ours_is_what_tensoropt_plan_prints_and_no_other_is_held_back(
    name: str, tmp_path: Path
) -> None:
    found = find_model(MODELS[name], DEVICES, SECONDS)
    plan = printed(
        tmp_path / "script.py",
        DEVICES,
        CLUSTER,
        module="tests.reproduction.test_ours",
        imported="MODELS, DEVICES, SECONDS; from reproduction.unity.models import script_of",
        script=f"script_of(MODELS[{name!r}], DEVICES, SECONDS)",
    )
    assert found.ours == plan.predicted_step_seconds
    assert found.data_parallel is not None
    assert found.rewritten_first is not None
    assert found.taso is not None
    assert found.taso_flexflow is not None
    assert found.taso_flexflow <= 1.001 * found.taso
    assert found.rewritten_first <= found.data_parallel


def test_ranncs_ours_is_what_tensoropt_plan_prints(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps(testbed.testbed(50.0, 32.0).to_json()), encoding="utf-8")
    plan = printed(
        tmp_path / "script.py",
        32,
        str(cluster),
        module="reproduction.rannc.testbed",
        imported="script_of",
        script=f"script_of({BERT!r}, 50.0, {SECONDS})",
    )
    script = testbed.script_of(BERT, 50.0, SECONDS)
    found = told(script.plan(), script.batch)
    assert found["way"] == plan.way
    assert found["examples_per_second"] == round(script.batch / plan.predicted_step_seconds, 2)
    assert plan.peak_bytes is not None
    assert found["memory_gb"] == round(plan.peak_bytes / 2**30, 2)
