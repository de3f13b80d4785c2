"""Keras models, in processes of their own: graph mode is on in this one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "keras_program.py"


@pytest.mark.slow
def test_models_equal_keras_alone_under_random_strategies(
    python: Callable[..., Finished], tmp_path: Path
) -> None:
    finished = python(PROGRAM, "2", tmp_path, timeout=280.0)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    for errors in found["errors"].values():
        assert all(error < 1e-5 for error in errors.values()), found["errors"]
    begins = {
        "compiled": "StateError: a model is parallel before it is compiled. Got one",
        "eager": "OptionError: a parallel model runs as a graph. Got model.compile(run_eagerly=",
        "python": "GraphError: a step consists of operators of TensorFlow. Got one that calls",
        "twice": "StateError: a model is made parallel once.",
        "shapes": "OptionError: shapes follows from the call",
    }
    assert found["mistakes"].keys() == begins.keys()
    for name, begin in begins.items():
        assert found["mistakes"][name].startswith(begin), found["mistakes"][name]


def test_the_readme_s_model_on_two_ranks(mpirun: Callable[..., Finished], tmp_path: Path) -> None:
    """Ranks whose draws differ train one model, and the first alone shows and writes."""
    text = (ROOT / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (program,) = [each for each in programs if "model.fit(" in each]
    script = tmp_path / "train.py"
    ends = """
import os
assert [len(values) for values in history.history.values()] == [3, 3]
loaded = keras.saving.load_model("model.keras").get_weights()
assert all(np.array_equal(*pair) for pair in zip(loaded, model.get_weights()))
print("read by", tensoropt.rank())
model.save(f"{os.getcwd()}/missing/model.keras")
"""
    script.write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{program}{ends}")
    finished = mpirun(2, script)
    assert finished.returncode != 0
    assert "Got [Errno 2] No such file or directory" in finished.stderr, finished.stderr
    lines = finished.stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("read")) == ["read by 0", "read by 1"]
    assert lines.count("Epoch 1/3") == 1
    assert finished.stderr.count("tensoropt: plan mini_time on 2 devices") == 1


def test_copies_and_different_models_are_errors_on_two_ranks(
    mpirun: Callable[..., Finished], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import keras, numpy as np, tensoropt

def fit(model):
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)

def small(units):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])

tensoropt.init()
try:
    fit(small(4))
except tensoropt.errors.StateError as error:
    print(f"without parallelize: {error}")
fit(tensoropt.parallelize(small(4 + tensoropt.rank())))
""")
    finished = mpirun(2, script)
    assert finished.returncode != 0
    begin = "without parallelize: ranks train together what tf.gradients differentiates"
    assert finished.stdout.count(begin) == 2, finished.stdout + finished.stderr
    assert "RankMismatchError: every rank runs the same program" in finished.stderr
