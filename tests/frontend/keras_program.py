"""A Keras model's ``fit`` under random strategies, in a process of its own.

``python keras_program.py CASE FOLDER`` prints a line of JSON: how far a parallel model's numbers
are from Keras's own on two devices, or what mistakes raise; or it runs what the user guide shows.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from steps_program import keras, np, search_at_random, tensoropt, tf

from tensoropt.cost.cluster import Kind, load_cluster
from tensoropt.errors import TensorOptError
from tensoropt.frontend.planning import forward_plans
from tensoropt.json_files import write_json
from tensoropt.planner.names.layer_names import forward_work
from tensoropt.planner.offers import strategies

layers = keras.layers
EXAMPLES = 40
Model = Any


def images_and_words() -> Model:
    """Two inputs and outputs, batch normalisation, dropout and an embedding."""
    images, words = keras.Input((8, 8, 4)), keras.Input((6,), dtype="int32")
    some = layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(images))
    other = layers.GlobalAveragePooling1D()(layers.Embedding(20, 8)(words))
    both = layers.Concatenate()([layers.GlobalAveragePooling2D()(some), other])
    both = layers.Dense(16, activation="silu")(layers.Dropout(0.3)(both))
    outputs = {"kind": layers.Dense(4, name="kind")(both), "size": layers.Dense(1)(both)}
    return keras.Model([images, words], outputs)


def numbers_of_texts(made: Callable[[Model], Model], _: Path) -> dict[str, Any]:
    """Words are looked up in a table of the model; a recurrent layer leaves some out. Texts are cut
    into words, as many as there are, and inputs are of several ranks and types."""
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(0)
    inputs = {
        "words": keras.Input((5,), dtype="string"),
        "text": keras.Input((), dtype="string"),
        "number": keras.Input((), dtype="int8"),
        "image": keras.Input((4, 4, 1), dtype="uint8"),
    }
    numbers = layers.StringLookup(vocabulary=list("abcdef"), mask_token="")(inputs["words"])
    values = layers.LSTM(8, dropout=0.2)(layers.Embedding(9, 8, mask_zero=True)(numbers))
    vectorize = layers.TextVectorization(vocabulary=list("abcdef"))
    text = layers.GlobalAveragePooling1D()(
        layers.Embedding(9, 4, mask_zero=True)(vectorize(inputs["text"]))
    )
    number = layers.CategoryEncoding(4, "one_hot")(layers.Reshape((1,))(inputs["number"]))
    image = layers.Flatten()(layers.Rescaling(1 / 255)(inputs["image"]))
    joined = layers.Concatenate()([values, text, number, image])
    model = made(keras.Model(inputs, layers.Dense(2)(joined)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    texts = random.choice(["", *"abcdefg"], (EXAMPLES, 5))
    given = {
        "words": texts,
        "text": np.array([" ".join("abcdefg"[row % 3 : 3 + row % 5]) for row in range(EXAMPLES)]),
        "number": random.integers(0, 4, EXAMPLES).astype(np.int8),
        "image": random.integers(0, 255, (EXAMPLES, 4, 4, 1)).astype(np.uint8),
    }
    data = tf.data.Dataset.from_tensor_slices((given, random.integers(0, 2, EXAMPLES))).batch(20)
    history = model.fit(data, epochs=2, verbose=0)
    return {
        "history": [history.history[name] for name in sorted(history.history)],
        "predicted": model.predict(data, verbose=0).tolist(),
        "weights": [each.tolist() for each in model.get_weights()],
    }


@tf.custom_gradient  # type: ignore[untyped-decorator]
def clipped(values: Any) -> Any:
    """Its own gradient adds up examples, and reads what the function computes."""
    grown = tf.exp(values)
    return tf.tanh(values), lambda gradients: tf.clip_by_norm(gradients * grown, 0.1)


class OwnStep(keras.Model):  # type: ignore[misc]
    """Without known shapes before the first batch, with a step and a gradient of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = layers.Dense(8, activation="silu"), layers.Dense(1)

    def call(self, values: Any) -> Any:
        return self.outer(clipped(self.inner(values)))

    def train_step(self, data: Any) -> Any:
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def numbers_of_two_inputs(made: Callable[[Model], Model], folder: Path) -> dict[str, Any]:
    """What a training says, by what it is."""
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    images = random.random((EXAMPLES, 8, 8, 4), np.float32)
    x = [images, random.integers(0, 20, (EXAMPLES, 6)).astype(np.int32)]
    y = {"kind": random.integers(0, 4, EXAMPLES), "size": random.integers(0, 2, (EXAMPLES, 1))}
    weights = {name: random.random(EXAMPLES).astype(np.float32) for name in y}
    model = made(images_and_words())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    metrics = keras.metrics
    counted = [metrics.AUC(name="auc"), metrics.Precision(name="right"), metrics.Recall(name="all")]
    model.compile(
        optimizer, {"kind": loss, "size": "mse"}, metrics={"kind": "accuracy", "size": counted}
    )
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras"),
        keras.callbacks.LearningRateScheduler(lambda _, rate: rate * 0.9),
    ]
    history = model.fit(
        x, y, 16, 2, 0, callbacks, validation_data=(x, y), sample_weight=weights
    )  # the last batch of an epoch has eight examples
    loaded = keras.saving.load_model(folder / "1.keras")
    model.load_weights(folder / "1.keras")
    again = model.fit(x, y, 16, 1, 0, shuffle=False, sample_weight=weights)
    evaluated = model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    return {
        "history": [history.history[name] for name in sorted(history.history)],
        "again": again.history["loss"],
        "evaluated": [evaluated[name] for name in sorted(evaluated)],
        "counts": [evaluated[f"size_{metric.name}"] for metric in counted],
        "predicted": model.predict(x, 16, 0)["kind"].tolist(),
        "loaded": [each.tolist() for each in loaded.get_weights()],
        "weights": [each.tolist() for each in model.get_weights()],
        "optimizer": [each.numpy().tolist() for each in model.optimizer.variables],
    }


class Stop(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
    """Stops the training in its second epoch, as a loss of the machine does."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop after the fourth batch."""
        if (self.epoch, batch) == (1, 3):
            raise InterruptedError


def numbers_of_cut_epoch(made: Callable[[Model], Model], folder: Path) -> dict[str, Any]:
    """A training that is stopped within an epoch goes on from a backup within it. The truth is not
    stopped."""
    random = np.random.default_rng(0)
    x, y = random.random((EXAMPLES, 12), np.float32), random.random((EXAMPLES, 1), np.float32)
    for callbacks in ([Stop()], []):
        keras.utils.set_random_seed(2)
        first = [keras.Input((12,)), layers.Dense(8, "tanh"), layers.Dropout(0.3)]
        model = made(keras.Sequential([*first, layers.Dense(1)]))
        model.compile(keras.optimizers.Adam(0.01, epsilon=1e-3), "mse", metrics=["mae"])
        if "make_train_function" in vars(model):
            path = folder / "backup"
            backup = keras.callbacks.BackupAndRestore(path, save_freq=3, delete_checkpoint=False)
            callbacks.insert(0, backup)
        elif callbacks:
            continue
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16).batch(8)
        with suppress(InterruptedError):
            history = model.fit(data, epochs=3, verbose=0, callbacks=callbacks).history
    return {
        "history": [history[name][-2:] for name in sorted(history)],
        "weights": [each.tolist() for each in model.get_weights()],
    }


def numbers_of_own_step(made: Callable[[Model], Model], _: Path) -> dict[str, Any]:
    """Return numbers of a model with its own step: two batches at a time, and single
    batches."""
    keras.utils.set_random_seed(2)
    model = made(OwnStep())
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", steps_per_execution=2)
    x = np.random.default_rng(0).random((EXAMPLES, 12), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(EXAMPLES).batch(8)
    history = model.fit(data, epochs=2, verbose=0)
    return {
        "history": history.history["loss"],
        "batch": [float(model.train_on_batch(x, x[:, :1])) for _ in range(2)],
        "tested": float(model.test_on_batch(x, x[:, :1])),
        "weights": [each.tolist() for each in model.get_weights()],
    }


def numbers_of_scaled_losses(made: Callable[[Model], Model], _: Path) -> dict[str, Any]:
    """Updates are made where all gradients are finite, as for float16; the scale grows."""
    keras.utils.set_random_seed(4)
    model = made(keras.Sequential([keras.Input((12,)), layers.Dense(8, "tanh"), layers.Dense(2)]))
    inner = keras.optimizers.Adam(0.01, epsilon=1e-3, clipnorm=0.5)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, 1e30, dynamic_growth_steps=2)
    model.compile(optimizer, "mse")
    x = np.random.default_rng(0).random((EXAMPLES, 12), np.float32)
    x[0] = 1e12  # with the first scale, its gradient is infinite
    history = model.fit(x, x[:, :2] / 1e12, batch_size=8, epochs=2, verbose=0, shuffle=False)
    assert optimizer.dynamic_scale.numpy() != 1e30
    return {
        "history": history.history["loss"],
        "scale": float(np.log2(optimizer.dynamic_scale.numpy())),
        "weights": [each.tolist() for each in model.get_weights()],
    }


class Late(keras.Model):  # type: ignore[misc]
    """Makes its layers when it is first called."""

    def build(self, _: Any) -> None:
        self.inner, self.norm = layers.Dense(8, activation="tanh"), layers.BatchNormalization()
        self.outer, self.built = layers.Dense(2), True

    def call(self, values: Any, training: bool = False) -> Any:
        return self.outer(self.norm(self.inner(values), training=training))


def numbers_of_compiled(made: Callable[[Model], Model], folder: Path) -> dict[str, Any]:
    """Compiled, trained, saved and loaded before; slots that begin with values of their own."""
    x = np.random.default_rng(0).random((EXAMPLES, 12), np.float32)
    found: dict[str, Any] = {}
    accumulated = {"gradient_accumulation_steps": 2}
    for name, optimizer in {
        "nadam": keras.optimizers.Nadam(0.01, **accumulated),
        "adafactor": keras.optimizers.Adafactor(0.01, use_ema=True, ema_overwrite_frequency=2),
    }.items():
        keras.utils.set_random_seed(7)
        model = Late()
        model.compile(optimizer, "mse", metrics=["mae", keras.metrics.RootMeanSquaredError()])
        model = made(model)
        found[f"{name} losses"] = model.fit(x, x[:, :2], 8, 1, 0).history["loss"]
        found[f"{name} weights"] = [each.tolist() for each in model.get_weights()]
    model = keras.Sequential([keras.Input((12,)), layers.Dense(2)])
    model.compile(keras.optimizers.Nadam(), "mse")
    model.fit(x, x[:, :2], 8, 1, 0)
    model.save(folder / "model.keras")
    gone_on = made(model).fit(x, x[:, :2], 8, 1, 0)
    loaded = made(keras.saving.load_model(folder / "model.keras"))
    again = loaded.fit(x, x[:, :2], 8, 1, 0, shuffle=False)
    losses = [each.history["loss"] for each in (gone_on, again)]
    weights = [each.tolist() for each in (*model.get_weights(), *loaded.get_weights())]
    return {**found, "trained before, losses": losses, "trained before, weights": weights}


def numbers_of_tf_keras_words(made: Callable[[Model], Model], _: Path) -> dict[str, Any]:
    """Keras 2: a loop over words, which leaves some out."""
    import tf_keras  # takes as long as a case, which others save

    old = tf_keras.layers
    tf_keras.utils.set_random_seed(5)
    words = tf_keras.Input((5,), dtype="int32")
    values = old.LSTM(8)(old.Embedding(9, 8, mask_zero=True)(words))
    model = tf_keras.Model(words, old.Dense(2)(values))
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.Nadam(0.01, epsilon=1e-3), loss)
    model = made(model)
    random = np.random.default_rng(0)
    data = random.integers(0, 9, (EXAMPLES, 5)), random.integers(0, 2, EXAMPLES)
    history = model.fit(*data, 8, 1, 0)
    weights = [each.tolist() for each in model.get_weights()]
    return {"history": history.history["loss"], "weights": weights}


def numbers_of_tf_keras(made: Callable[[Model], Model], folder: Path) -> dict[str, Any]:
    """Keras 2: an older optimizer's kernels, callbacks, weights; then two batches at a time."""
    import tf_keras

    old = tf_keras.layers
    tf_keras.utils.set_random_seed(6)
    first = [tf_keras.Input((12,)), old.Dense(8, "tanh"), old.Dropout(0.3, seed=3)]
    model = made(tf_keras.Sequential([*first, old.Dense(2)]))
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf_keras.optimizers.legacy.Adam(0.01, epsilon=1e-3)
    model.compile(optimizer, loss, metrics=["accuracy"])
    random = np.random.default_rng(0)
    data = random.random((EXAMPLES, 12), np.float32), random.integers(0, 2, EXAMPLES)
    callbacks = [
        tf_keras.callbacks.ModelCheckpoint(str(folder / "{epoch}"), save_weights_only=True),
        tf_keras.callbacks.LearningRateScheduler(lambda _, rate: rate * 0.9),
    ]
    weights = random.random(EXAMPLES)
    history = model.fit(
        *data, 8, 2, 0, callbacks, validation_data=data, sample_weight=weights
    )  # of five batches
    model.load_weights(str(folder / "1")).assert_consumed()
    found = {"evaluated": model.evaluate(*data, 8, 0), "batches": int(model._train_counter)}
    batch = [each[:8] for each in (*data, weights)]
    found["batch"] = [model.train_on_batch(*batch) for _ in range(2)]
    model.compile("sgd", loss, steps_per_execution=2)
    found["cut"] = [
        *cut_tf_keras(made, folder / "arrays", lambda: data),
        *cut_tf_keras(made, folder / "data", lambda: shuffled(data)),
    ]
    return {
        **found,
        "history": [history.history[name] for name in sorted(history.history)],
        "predicted": model.predict(data[0], 8, 0).tolist(),
        "weights": [each.tolist() for each in model.get_weights()],
    }


def shuffled(data: tuple[Any, Any]) -> tuple[Any]:
    """A data set of batches, in another order in each epoch."""
    return (tf.data.Dataset.from_tensor_slices(data).shuffle(16).batch(8),)


def cut_tf_keras(
    made: Callable[[Model], Model], folder: Path, data: Callable[[], tuple[Any, ...]]
) -> list[Any]:
    """Weights of Keras 2 after a training that goes on from a backup within an epoch, and that
    epoch's losses; the truth is not stopped."""
    import tf_keras

    class StopOld(tf_keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        """See `Stop`."""

        on_epoch_begin, on_train_batch_end = Stop.on_epoch_begin, Stop.on_train_batch_end

    for callbacks in ([StopOld()], []):
        tf_keras.utils.set_random_seed(2)
        first = [tf_keras.Input((12,)), tf_keras.layers.Dense(8, "tanh")]
        model = made(tf_keras.Sequential([*first, tf_keras.layers.Dense(1)]))
        model.compile("adam", "mse")
        if "make_train_function" in vars(model):
            kind = tf_keras.callbacks.BackupAndRestore
            callbacks.insert(0, kind(str(folder), save_freq=3, delete_checkpoint=False))
        elif callbacks:
            continue
        sized = {"batch_size": 8} if len(data()) > 1 else {}
        with suppress(InterruptedError):
            history = model.fit(*data(), **sized, epochs=3, verbose=0, callbacks=callbacks).history
    return [history["loss"][-1], *(each.tolist() for each in model.get_weights())]


def worst(numbers: Callable[..., dict[str, Any]], devices: int, seed: int, folder: Path) -> Any:
    """How far each is from Keras's own."""
    tensoropt.shutdown()
    tensoropt.init(devices=devices)
    counts = search_at_random(seed)
    truth = numbers(lambda model: model, folder)
    found = numbers(lambda model: tensoropt.parallelize(model, pipeline=False), folder)
    assert counts["searches"], "no strategy was drawn"
    return {name: difference(found[name], truth[name]) for name in truth}


def difference(found: Any, truth: Any) -> float:
    if isinstance(truth, list):
        assert len(found) == len(truth)
        return max(map(difference, found, truth), default=0.0)
    return abs(float(found) - float(truth)) / max(1.0, abs(float(truth)))


def guide() -> None:
    """The model that the guide shows."""
    text = (Path(__file__).parents[2] / "docs" / "keras.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (program,) = [each for each in programs if "model.fit(" in each]
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["history"].tensoropt["measured_step_seconds"] > 0
    assert len(names["history"].history["val_loss"]) == 3


def fixed() -> None:
    """A model whose layer is divided by hand on devices of two speeds trains as Keras's own."""
    keras.utils.set_random_seed(1)
    own = keras.Sequential(
        [keras.Input((16,)), layers.Dense(10, "tanh", name="wide"), layers.Dense(1)]
    )
    model = keras.models.clone_model(own)
    model.set_weights(own.get_weights())
    known = load_cluster("8-v100")
    cluster = replace(known, kinds=(Kind("old", (1,), 0.5),))
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(folder) / "cluster.json", cluster.to_json())
        tensoropt.shutdown()
        tensoropt.init(devices=3, cluster=f"{folder}/cluster.json")
    pins = {"*wide": {"columns": "device"}}
    model = tensoropt.parallelize(model, fixed=pins, pipeline=False)
    x = np.random.default_rng(0).random((30, 16), np.float32)
    for each in (own, model):
        each.compile("sgd", "mse")
        each.fit(x, x[:, :1], batch_size=10, epochs=2, verbose=0)
    plan = model.train_function.plan
    assert list(map(str, plan.fixed)) == ["*wide:columns=device"], plan.fixed
    (layer,) = [names for name, names in forward_work(plan.operators).items() if "wide" in name]
    columns = {
        len(axes)
        for each in plan.operators
        if each.type == "MatMul" and each.name in layer
        for dimension, axes in zip(each.dimensions, each.splits, strict=True)
        if dimension.name == "columns"
    }
    assert columns == {1}, columns  # 10 columns on three devices: 4, 3 and 3
    for found, truth in zip(model.get_weights(), own.get_weights(), strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)


def mistakes() -> dict[str, str]:
    """Return the error of each mistake, by a description of the mistake."""

    def small(*more: Any) -> Model:
        return keras.Sequential([keras.Input((4,)), *more, layers.Dense(1)])

    def eager() -> None:
        model = tensoropt.parallelize(small())
        model.compile("sgd", "mse", run_eagerly=True)
        model.train_on_batch(np.ones((8, 4)), np.ones((8, 1)))

    def python() -> None:
        doubled = layers.Lambda(
            lambda x: tf.ensure_shape(tf.numpy_function(lambda y: 2 * y, [x], x.dtype), x.shape)
        )
        model = tensoropt.parallelize(small(doubled))
        model.compile("sgd", "mse")
        model.train_on_batch(np.ones((8, 4)), np.ones((8, 1)))

    found = {}
    for name, call in {
        "name": lambda: tensoropt.parallelize(small(), memory_limit=1),
        "value": lambda: tensoropt.parallelize(small(), option="mini_tiem"),
        "schedule": lambda: tensoropt.parallelize(small(), schedule="gpip"),
        "eager": eager,
        "python": python,
        "twice": lambda: tensoropt.parallelize(tensoropt.parallelize(small())),
        "shapes": lambda: tensoropt.parallelize(small(), shapes={}),
        "plan": lambda: tensoropt.parallelize(small(), plan="none.json"),
    }.items():
        try:
            call()
        except TensorOptError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


CASES = {
    "two_inputs": numbers_of_two_inputs,
    "own_step": numbers_of_own_step,
    "cut_epoch": numbers_of_cut_epoch,
    "texts": numbers_of_texts,
    "scaled_losses": numbers_of_scaled_losses,
    "compiled": numbers_of_compiled,
    "tf_keras_words": numbers_of_tf_keras_words,
    "tf_keras": numbers_of_tf_keras,
}

if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "guide":
        guide()
        fixed()
    elif name == "mistakes":
        print(json.dumps(mistakes()))
    else:
        strategies.preferred = lambda *_: None
        forward_plans._LEAST_WORK = 0  # small evaluations are planned, too
        print(json.dumps(worst(CASES[name], 2, list(CASES).index(name), folder)))
