"""A small training script in which one rank goes wrong, or all do.

    mpirun -np N python failures.py CASE FILE

CASE is a function below; FILE is made when it happens.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as plain

import tensoropt as tf

ODD = 2
FEATURES = np.ones((8, 4), np.float32)


def happens(rank: int) -> bool:
    """Whether this is the rank; if so, note that it happens."""
    if tf.rank() == rank:
        Path(sys.argv[2]).touch()
        return True
    return False


def model(extra: bool = False, bias: Any = None) -> tuple[Any, Any, Any]:
    """The placeholder, the loss and the training operator."""
    features = tf.placeholder(tf.float32, [None, 4], name="features")
    weights = tf.get_variable("weights", [4, 4], initializer=tf.ones_initializer())
    scores = tf.matmul(features, weights)
    scores = scores if bias is None else scores + bias
    if extra:
        scores = tf.nn.relu(scores, name="only_here")
    loss = tf.reduce_mean(tf.square(scores), name="loss")
    return features, loss, tf.GradientDescentOptimizer(0.01).minimize(loss)


def train() -> tuple[Any, Any, Any]:
    """One step of a model on all ranks."""
    features, loss, step = model()
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=8))
    tf.run(step, {features: FEATURES})
    return features, loss, step


def another_graph() -> None:
    model(extra=happens(ODD))
    tf.find_strategy(batch_size=8)


def a_run_alone_in_the_middle() -> None:
    features, loss, step = train()
    if happens(0):
        tf.run(loss, {features: FEATURES})
    tf.run(step, {features: FEATURES})


def a_run_alone_at_the_end() -> None:
    features, loss, _ = train()
    if happens(0):
        tf.run(loss, {features: FEATURES})


def another_fetch() -> None:
    features, loss, step = train()
    tf.run(loss if happens(ODD) else step, {features: FEATURES})


def another_shape() -> None:
    features, _, step = train()
    tf.run(step, {features: FEATURES[:4] if happens(ODD) else FEATURES})


def another_batch() -> None:
    features, _, step = train()
    batches = [np.full((8, 4), n, np.float32) for n in range(4)]
    for batch in batches[1:] if happens(ODD) else batches:
        tf.run(step, {features: batch})


def raises_before_init() -> None:
    if os.environ["PMI_RANK"] == str(ODD):  # as MPICH's launcher says it
        assert tf.float32.size == 4
        Path(sys.argv[2]).touch()
        raise OSError("the data of this rank is gone")
    tf.init()


def asks_for_a_cluster_that_is_not_there() -> None:
    odd = os.environ["PMI_RANK"] == str(ODD)
    Path(sys.argv[2]).touch()
    tf.init(cluster="nowhere" if odd else None)


def raises() -> None:
    features, _, step = train()
    if happens(ODD):
        raise ValueError("the data of this rank is gone")
    tf.run(step, {features: FEATURES})


def fails_in_a_thread_with_hooks_from_before_init() -> None:
    threading.excepthook = lambda args: print(f"the script's hook: {args.exc_value}")
    tf.init()
    features, _, step = train()

    def fetch() -> None:
        if happens(ODD):
            raise ValueError("the data of this rank is gone")

    threading.Thread(target=fetch, name="fetches").start()
    while True:
        tf.run(step, {features: FEATURES})


def is_killed() -> None:
    features, _, step = train()
    if happens(ODD):
        os.kill(os.getpid(), signal.SIGKILL)
    tf.run(step, {features: FEATURES})


def is_stopped_in_a_step() -> None:
    features, _, step = model()

    def stop() -> Any:
        if happens(ODD):  # to this thread, see stage_failures.py
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return np.float32(0)

    stops = tf.compat.v1.py_func(stop, [], tf.float32, stateful=True)
    plan = tf.find_strategy(batch_size=6, algorithm="data_parallel", fetches=[step, stops])
    tf.build_execution_graph(plan=plan)
    tf.run([step, stops], {features: FEATURES[:6]})


def fails_in_a_step(rows: tuple[int, ...], before_collectives: bool = True) -> None:
    """A step that fails on the ranks whose rows are not in a table of one row, and is caught."""
    numbers = tf.placeholder(tf.int32, [None], name="numbers")
    found = tf.gather(tf.zeros([1]), numbers)
    features, _, step = model(bias=found[:, None] if before_collectives else None)
    step = tf.group(step, found)
    happens(ODD)
    plan = tf.find_strategy(batch_size=6, algorithm="data_parallel", fetches=[step])
    tf.build_execution_graph(plan=plan)
    for numbers_fed in ((0,) * 6, rows, (0,) * 6):
        try:
            tf.run(step, {features: FEATURES[:6], numbers: numbers_fed})
        except tf.errors.OpError:
            sys.stdout.write("skipped\n")
    sys.stdout.write("went on\n")


def fails_alone_in_a_step() -> None:
    fails_in_a_step((0, 0, 0, 0, 0, 9), before_collectives=False)


def fails_alone_before_collectives() -> None:
    fails_in_a_step((0, 0, 0, 0, 0, 9))


def fails_everywhere_in_a_step() -> None:
    fails_in_a_step((9,) * 6)


def fails_in_a_check_of_one_rank() -> None:
    """Steps which fail since a Python function raises, or a sum is not finite, on one rank."""

    def check(values: Any) -> Any:
        if tf.rank() == ODD and len(called) == 1:
            called.append(None)
            raise ValueError("a bad batch")
        called.append(None)
        return values

    called: list[None] = []
    checked = tf.compat.v1.py_func(check, [np.float32(0)], tf.float32, stateful=True)
    checked.set_shape([])
    features, loss, step = model(bias=checked)
    (weights,) = tf.trainable_variables()
    with tf.control_dependencies([tf.check_numerics(features, "features")]):
        step = tf.group(step, tf.identity(loss))
    happens(ODD)
    plan = tf.find_strategy(batch_size=6, algorithm="data_parallel", fetches=[step])
    tf.build_execution_graph(plan=plan)
    broken = FEATURES[:6].copy()
    broken[5] = np.nan  # the last rank's
    for batch in (FEATURES[:6], FEATURES[:6], broken, FEATURES[:6]):
        try:
            tf.run(step, {features: batch})
        except tf.errors.InvalidArgumentError as error:
            sys.stdout.write(f"skipped: {error.message.splitlines()}\n")
    sys.stdout.write(f"went on with {float(tf.run(weights)[0, 0]):.4f}\n")


def never_starts() -> None:
    if os.environ["PMI_RANK"] == str(ODD):
        Path(sys.argv[2]).touch()
        time.sleep(3600)
    tf.init()


def exits() -> None:
    features, _, step = train()
    if happens(ODD):
        sys.exit(3)
    tf.run(step, {features: FEATURES})


def trains_copies() -> None:
    features, _, step = model()
    happens(0)
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        session.run(step, {features: FEATURES})


CASES = (
    another_graph,
    a_run_alone_in_the_middle,
    a_run_alone_at_the_end,
    another_fetch,
    another_shape,
    another_batch,
    raises_before_init,
    asks_for_a_cluster_that_is_not_there,
    raises,
    fails_in_a_thread_with_hooks_from_before_init,
    is_killed,
    is_stopped_in_a_step,
    fails_alone_in_a_step,
    fails_alone_before_collectives,
    fails_everywhere_in_a_step,
    fails_in_a_check_of_one_rank,
    never_starts,
    exits,
    trains_copies,
)

if __name__ == "__main__":
    if sys.argv[1] == "raises":
        sys.excepthook = lambda kind, error, trace: print(f"the script's hook: {error}")
    if not any(part in sys.argv[1] for part in ("init", "cluster", "never")):
        tf.init()
    {case.__name__: case for case in CASES}[sys.argv[1]]()
