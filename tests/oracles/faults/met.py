"""Small scripts whose jobs hung, or whose ranks diverged without an error, when users ran them.

    mpirun -np N python met.py CASE

CASE is a function below. The fault makes the file ``struck``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf

FEATURES = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
WAIT_SECONDS = 20.0


def is_last() -> bool:
    """Whether this is the rank with the fault; if so, the file ``struck`` is made."""
    if tf.rank() != tf.size() - 1:
        return False
    Path("struck").touch()
    return True


def model(scores: Any = None) -> tuple[Any, Any, Any]:
    """A placeholder, its variable and the loss."""
    features = tf.placeholder(tf.float32, [None, 16], name="features")
    weights = tf.get_variable("weights", [16, 16], initializer=tf.ones_initializer())
    products = tf.matmul(features, weights)
    if scores is not None:
        products = scores(products)
    return features, weights, tf.reduce_mean(tf.square(products))


def planned(step: Any) -> None:
    """Plan data parallelism, which has collectives, for a step."""
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel", fetches=[step])
    tf.build_execution_graph(plan=plan)


def say_if_equal(value: Any) -> None:
    """The first rank prints whether all ranks have the same bits."""
    Path(f"digest{tf.rank()}.part").write_text(hashlib.sha256(value.tobytes()).hexdigest())
    Path(f"digest{tf.rank()}.part").rename(f"digest{tf.rank()}")
    if tf.rank() == 0:
        files = [Path(f"digest{rank}") for rank in range(tf.size())]
        begun = time.monotonic()
        while not all(file.exists() for file in files) and time.monotonic() - begun < WAIT_SECONDS:
            time.sleep(0.01)
        equal = len({file.read_text() for file in files}) == 1
        sys.stdout.write("replicas are equal\n" if equal else "replicas differ\n")


def skips(poison: Any) -> None:
    """Train; a step that fails is caught and skipped."""
    at = [0]

    def odd() -> Any:
        at[0] += 1
        return np.float32(np.nan if at[0] == 3 and is_last() else 1)

    factor = tf.numpy_function(odd, [], tf.float32, stateful=True)
    factor.set_shape([])
    features, weights, loss = model(lambda products: poison(products, factor))
    step = tf.train.MomentumOptimizer(0.001, 0.9).minimize(loss)
    planned(step)
    for _ in range(6):
        try:
            tf.run(step, {features: FEATURES})
        except tf.errors.OpError:
            sys.stdout.write(f"rank {tf.rank()} leaves out a batch\n")
    say_if_equal(tf.run(weights))


def skips_what_is_not_a_number() -> None:
    skips(lambda products, factor: tf.check_numerics(products * factor, "a bad batch"))


def skips_what_a_python_function_refuses() -> None:
    def checked(value: Any) -> Any:
        if np.isnan(value):
            raise ValueError("a bad batch")
        return value

    def poison(products: Any, factor: Any) -> Any:
        found = tf.numpy_function(checked, [factor], tf.float32, stateful=True)
        found.set_shape([])
        return products * found

    skips(poison)


def skips_what_an_assertion_refuses() -> None:
    def poison(products: Any, factor: Any) -> Any:
        holds = tf.debugging.Assert(tf.equal(factor, factor), ["a bad batch", factor])
        with tf.control_dependencies([holds]):
            return products * tf.identity(factor)

    skips(poison)


def skips_what_a_kernel_refuses() -> None:
    def poison(products: Any, factor: Any) -> Any:
        row = tf.cast(tf.where(tf.equal(factor, factor), 0.0, 99.0), tf.int32)
        return products * tf.gather(tf.ones([2]), row)

    skips(poison)


def is_started_alone() -> None:
    features, _, loss = model()
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    planned(step)
    tf.run(step, {features: FEATURES})


def drops_out_in_a_loop() -> None:
    def body(number: Any, state: Any) -> Any:
        return number + 1, tf.nn.dropout(tf.tanh(tf.matmul(state, weights)), rate=0.3)

    features = tf.placeholder(tf.float32, [None, 16], name="features")
    weights = tf.get_variable("weights", [16, 16])
    _, state = tf.while_loop(lambda number, _: number < 10, body, [0, features])
    step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(state)))
    planned(step)
    is_last()
    for _ in range(30):
        tf.run(step, {features: FEATURES})
    say_if_equal(tf.run(weights))


def feeds_other_batches() -> None:
    features, _, loss = model()
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    planned(step)
    is_last()
    sampler = np.random.default_rng()
    for _ in range(10):
        tf.run(step, {features: sampler.normal(size=(8, 16)).astype(np.float32)})


def leaves_out_a_step() -> None:
    features, _, loss = model()
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    planned(step)
    sampler = np.random.default_rng(0)
    for number in range(20):
        batch = sampler.normal(size=(8, 16)).astype(np.float32)
        if number != 4 or not is_last():
            tf.run(step, {features: batch})


def trains_in_a_plain_session() -> None:
    import tensorflow.compat.v1 as plain

    features, _, loss = model()
    step = plain.train.GradientDescentOptimizer(0.01).minimize(loss)
    is_last()
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        for _ in range(5):
            session.run(step, {features: FEATURES})


def trains_with_a_tape() -> None:
    import tensorflow as plain

    is_last()
    with tf.Graph().as_default(), plain.compat.v1.Session() as session:
        weights = plain.Variable(np.ones((16, 16), np.float32))
        with plain.GradientTape() as tape:
            loss = plain.reduce_mean(plain.square(plain.matmul(FEATURES, weights)))
        step = weights.assign_sub(0.01 * tape.gradient(loss, weights))
        session.run(plain.compat.v1.global_variables_initializer())
        for _ in range(5):
            session.run(step)


def trains_in_a_function() -> None:
    import tensorflow as plain

    is_last()
    weights = plain.Variable(np.ones((16, 16), np.float32))

    def step() -> Any:
        with plain.GradientTape() as tape:
            loss = plain.reduce_mean(plain.square(plain.matmul(FEATURES, weights)))
        return weights.assign_sub(0.01 * tape.gradient(loss, weights))

    traced = plain.function(step)
    for _ in range(5):
        traced()


def trains_with_keras() -> None:
    import keras

    is_last()
    layers = [keras.layers.Input((16,)), keras.layers.Dense(1)]
    network = keras.Sequential(layers)
    network.compile("sgd", "mse")
    network.fit(FEATURES, FEATURES[:, :1], verbose=0)


def reads_strings() -> None:
    names = tf.placeholder(tf.string, [None], name="names")
    lengths = tf.cast(tf.strings.length(tf.strings.regex_replace(names, "a", "bb")), tf.float32)
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(lengths * weight))
    step = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    planned(step)
    for _ in range(3):
        tf.run([step, loss], {names: np.array(["a", "ba", "c", "da"] * 2, object)})
    sys.stdout.write("strings were read\n")


def catches_a_failed_save() -> None:
    features, weights, loss = model()
    step = tf.train.MomentumOptimizer(0.001, 0.9).minimize(loss)
    saver = tf.train.Saver()
    if tf.rank() == 0:
        Path("occupied").touch()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(6):
            session.run(step, {features: FEATURES})
            is_last()
            folder = "occupied" if number % 2 == 0 else "checkpoints"
            if tf.rank() == 0:
                with contextlib.suppress(FileExistsError):
                    os.makedirs(folder)
            try:
                saver.save(session, f"{folder}/model", global_step=number)
            except (OSError, ValueError, tf.errors.OpError, tf.TensorOptError):
                sys.stdout.write(f"rank {tf.rank()} could not save\n")
        assert tf.train.latest_checkpoint("checkpoints").endswith("model-5")
        say_if_equal(session.run(weights))


if __name__ == "__main__":
    if sys.argv[1] == "is_started_alone" and os.environ["PMI_RANK"] == "1":
        os.environ["COLLECTIVES_TRANSPORT"] = "single"
    tf.init()
    globals()[sys.argv[1]]()
