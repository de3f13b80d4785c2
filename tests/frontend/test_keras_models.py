"""Keras models, in processes of their own: graph mode is on in this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished
from tests.proofs import proof

PROGRAM = Path(__file__).parent / "keras_program.py"
UNLESS_IT_HANGS = 280.0  # seconds, less than pytest's own limit: what it has said shows


@pytest.fixture
def program(python: Callable[..., Finished], tmp_path: Path) -> Callable[[str], str]:
    """``program(case)``: what a case of the program prints, which ends well."""

    def run(case: str) -> str:
        finished = python(PROGRAM, case, tmp_path, timeout=UNLESS_IT_HANGS)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


@pytest.mark.parametrize(
    "case",
    [
        *("own_step", "cut_epoch", "texts", "scaled_losses", "compiled", "tf_keras"),
        *(proof("two_inputs"), proof("tf_keras_words")),
    ],
)
def test_models_equal_keras_alone_under_random_strategies(
    program: Callable[[str], str], case: str
) -> None:
    errors = json.loads(program(case).splitlines()[-1])
    assert errors
    assert all(error < 1e-5 for error in errors.values()), errors
    assert errors.get("counts", 0) == 0, errors  # AUC, precision and recall


def test_the_guide_s_model_and_one_that_is_divided_by_hand(program: Callable[[str], str]) -> None:
    assert "Epoch 3/3" in program("guide")


def test_mistakes_with_models_are_errors(program: Callable[[str], str]) -> None:
    found = json.loads(program("mistakes").splitlines()[-1])
    begins = {
        "name": "OptionError: an option of parallelize is one of",
        "value": "OptionError: an option is one of mini_time",
        "schedule": "OptionError: a schedule is one of",
        "eager": "OptionError: a parallel model runs as a graph. Got model.compile(run_eagerly=",
        "python": "GraphError: a step consists of operators of TensorFlow. Got one that calls",
        "twice": "StateError: a model is made parallel once.",
        "shapes": "OptionError: shapes follows from the call",
        "plan": "PlanError: a plan is a whole, readable JSON file. Got 'none.json'",
    }
    assert found.keys() == begins.keys()
    for name, begin in begins.items():
        assert found[name].startswith(begin), found[name]
    ends = {"name": "'memory_limit_bytes'?", "value": "'mini_time'?", "schedule": "'gpipe'?"}
    assert all(found[name].endswith(end) for name, end in ends.items()), found


def test_a_model_of_keras_on_two_ranks(mpirun: Callable[..., Finished], tmp_path: Path) -> None:
    """Ranks whose draws differ train one model, and the first alone shows and writes. A large
    variable gets its value when it is read."""
    program = Path(__file__).with_name("keras_example_program.py").read_text()
    script = tmp_path / "train.py"
    ends = """
import os
assert [len(values) for values in history.history.values()] == [3, 3]
import tensorflow as tf
handles = [each.value.__dict__["_tensoropt_handle"] for each in model.trainable_variables]
sizes = [np.size(tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32)) for h in handles]
assert set(sizes) == {1}, sizes  # no rank has kept a variable that was read for the file
loaded = keras.saving.load_model("model.keras").get_weights()
assert all(np.array_equal(*pair) for pair in zip(loaded, model.get_weights()))
print("read by", tensoropt.rank())
initializer = keras.initializers.GlorotUniform(7)
large = keras.Variable(initializer, (512, 512))
handle = large.value.__dict__["_tensoropt_handle"]
held = tf.raw_ops.ReadVariableOp(resource=handle, dtype="float32")
assert np.size(held) == 1  # the value is computed when something asks for it
assert np.array_equal(large, initializer((512, 512)))
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


def test_tf_keras_writes_a_model_between_epochs_on_two_ranks(
    mpirun: Callable[..., Finished], tmp_path: Path
) -> None:
    """The rates of its optimizers are described in what one rank writes, and no rank falls out."""
    program = f"""
import numpy as np, tf_keras, tensoropt
for optimizer in (tf_keras.optimizers.Adam(0.01), tf_keras.optimizers.legacy.SGD(0.01)):
    inputs = tf_keras.Input((4,))
    model = tensoropt.parallelize(tf_keras.Model(inputs, tf_keras.layers.Dense(2)(inputs)))
    model.compile(optimizer, "mse")
    writes = tf_keras.callbacks.ModelCheckpoint({str(tmp_path / "model.keras")!r})
    model.fit(np.ones((8, 4)), np.ones((8, 2)), 4, 2, 0, [writes])
    model.save({str(tmp_path / "model.keras")!r})
    loaded = tf_keras.models.load_model({str(tmp_path / "model.keras")!r}).get_weights()
    assert all(np.array_equal(*pair) for pair in zip(loaded, model.get_weights()))
"""
    finished = mpirun(2, "-c", program)
    assert finished.returncode == 0, finished.stderr


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
    begin = "without parallelize: ranks train together what a step of tensoropt.parallelize updates"
    assert finished.stdout.count(begin) == 2, finished.stdout + finished.stderr
    assert "RankMismatchError: every rank runs the same program" in finished.stderr


def test_calls_and_data_that_differ_between_two_ranks(
    mpirun: Callable[..., Finished], tmp_path: Path
) -> None:
    """Each is one error on both ranks, which says what each did; and data that are shuffled without
    a seed after ``parallelize`` are alike."""
    script = tmp_path / "train.py"
    script.write_text("""
import keras, numpy as np, tensoropt, tensorflow as tf

x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
y = x[:, :1]
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
weights = tf.Variable(tf.ones([4, 1]))

@tensoropt.parallelize
def train(images, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(images["left"] @ weights - labels))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss

first = tensoropt.rank() == 0
for left, labels in tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16).batch(8):
    train({"left": left}, labels)

class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, row):
        return x[4 * row : 4 * row + 4], y[4 * row : 4 * row + 4]

tensoropt.parallelize(model)
model.fit(Rows(workers=2), epochs=2, verbose=0)
for name, call in {
    "evaluate": lambda: model.evaluate(x, y, verbose=0),
    "predict": lambda: model.predict(x, verbose=0),
    "save": lambda: model.save("never.keras"),
    "batch": lambda: model.train_on_batch(x, y),
    "read": lambda: model.get_weights(),
    "data": lambda: model.fit(x[::-1], y, shuffle=False, verbose=0),
    "step": lambda: train({"left": x[:8]}, y[:8]),
    "leaves": lambda: train({"left": x[8:]}, y[:8]),
}.items():
    try:
        if first:
            call()
        if name == "leaves":
            train({"left": x[:8]}, y[:8])
        else:
            model.fit(x, y, shuffle=False, verbose=0)
        print(name, "passed")
    except tensoropt.errors.RankMismatchError as error:
        print(name, error)
""")
    finished = mpirun(2, script, timeout=UNLESS_IT_HANGS)
    assert finished.returncode == 0, finished.stderr
    fit = "Got model.fit of 'sequential' on rank 1, but"
    said = {
        "evaluate": f"{fit} model.evaluate of 'sequential' on rank 0. Take calls",
        "predict": f"{fit} model.predict of 'sequential' on rank 0. Take calls",
        "save": f"{fit} model.save of 'sequential' on rank 0. Take calls",
        "batch": f"{fit} model.train_on_batch of 'sequential' on rank 0. Take calls",
        "read": f"{fit} what reads",
        "data": "Got in sequential.train_step(...) as the first difference `argument 'x', shape",
        "step": f"{fit} train(...) on rank 0. Take calls",
        "leaves": "Got in train(...) as the first difference `argument 'images/left', shape",
    }
    for name, text in said.items():
        (*_, line) = [each for each in finished.stdout.splitlines() if each.startswith(f"{name} ")]
        assert text in line, line
    assert "make data sets after tensoropt.parallelize" in finished.stdout
    assert "passed" not in finished.stdout
