"""Steps that ask for static shapes, take composite tensors or loop over data; in its own process.

``python traces_program.py DEVICES STEP...`` prints a line of JSON: by step how far its losses,
results and variables are from those of the same ``tf.function`` without TensorOpt, under random
strategies, and how often it was traced. The step ``models`` stands for models of Keras.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from steps_program import keras, np, search_at_random, tensoropt, tf

from tensoropt.errors import GraphError
from tensoropt.frontend.job.job import current
from tensoropt.planner.offers import strategies

Step = Callable[..., Any]
Made = tuple[Step, list[Any], Iterable[tuple[Any, ...]]]
RANDOM = np.random.default_rng(0)


def rows(count: int, width: int = 4) -> Any:
    return RANDOM.normal(size=(count, width)).astype(np.float32)


def trained(loss_of: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Step, list[Any]]:
    """A step that descends on the gradient of a loss, and its weights."""
    seeds = range(len(shapes))
    weights = [
        tf.Variable(tf.random.stateless_normal(shape, [seed, 7]) / 2)
        for seed, shape in zip(seeds, shapes, strict=True)
    ]

    def step(*given: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(weights, *given)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return loss

    return step, weights


def asks_for_rows() -> Made:
    """Python computes with the number of examples; the last batch is smaller."""

    def loss_of(weights: list[Any], x: Any, y: Any) -> Any:
        ones = tf.ones([x.shape[0], 1])
        hidden = tf.concat([x, ones], 1) @ weights[0]
        halves = tf.split(hidden, x.shape[0] // 2)
        mixed = tf.einsum("pbi,pbj->pij", tf.stack(halves), tf.stack(halves))
        flat = tf.reshape(hidden, [hidden.shape[0], -1])
        return tf.reduce_mean(mixed**2) + tf.reduce_sum((flat - y) ** 2) / x.shape[0]

    return *trained(loss_of, (5, 4)), [(rows(8), rows(8)), (rows(8), rows(8)), (rows(4), rows(4))]


def contrasts() -> Made:
    """Each example is told from the others of its batch; batches of three sizes, in turns."""

    def loss_of(weights: list[Any], x: Any, scale: Any) -> Any:
        made = tf.math.l2_normalize(x @ weights[0], axis=1)
        scores = tf.matmul(made, made, transpose_b=True) * scale - 9 * tf.eye(x.shape[0])
        labels = tf.roll(tf.range(x.shape[0]), 1, 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return tf.reduce_mean(losses)

    sizes = (8, 4, 8, 6, 4)
    return *trained(loss_of, (4, 8)), [(rows(size), np.float32(3)) for size in sizes]


def lengths() -> Made:
    """Sequences of many lengths, and a smaller last batch: one trace is for all of them."""

    def loss_of(weights: list[Any], words: Any) -> Any:
        values = tf.gather(weights[0], words)
        return tf.reduce_mean((tf.reduce_mean(tf.tanh(values), 1) @ weights[1]) ** 2)

    sizes = [(8, 5), (8, 7), (8, 6), (4, 9), (8, 5), (8, 12)]
    batches = [(RANDOM.integers(0, 20, size),) for size in sizes]
    return *trained(loss_of, (20, 4), (4, 4)), batches


def signature() -> Made:
    """What a ``tf.function`` says of its arguments is what it is traced with."""

    def loss_of(weights: list[Any], x: Any, rate: Any) -> Any:
        assert x.shape.as_list() == [None, 4]
        assert rate.shape.rank == 0
        return tf.reduce_mean((x @ weights[0]) ** 2) * rate

    step, weights = trained(loss_of, (4, 4))
    specs = [tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([], tf.float32)]

    def two(x: Any, rate: Any) -> Any:
        return step(x, rate)

    batches = [(rows(8), 0.5), (rows(6), 0.25)]
    return tf.function(two, input_signature=specs), weights, batches


def ragged() -> Made:
    """Rows of words of any number, twice nested in one argument, and what the step returns."""

    def loss_of(weights: list[Any], words: Any, parts: dict[str, Any]) -> Any:
        pooled = tf.reduce_mean(tf.nn.embedding_lookup(weights[0], words), axis=1)
        nested = tf.reduce_sum(parts["nested"], axis=[1, 2])
        return tf.reduce_mean((pooled @ weights[1] - nested[:, None] * parts["y"]) ** 2)

    step, weights = trained(loss_of, (30, 8), (8, 1))

    def both(words: Any, parts: dict[str, Any]) -> Any:
        return {"loss": step(words, parts), "words": words + 1, "rows": words.to_tensor()}

    def lists(count: int, most: int) -> Any:
        return [RANDOM.integers(1, 30, RANDOM.integers(1, most)).tolist() for _ in range(count)]

    batches = []
    for count in (8, 8, 8, 4):
        nested = [[[0.1 * n for n in row] for row in lists(2, 4)] for _ in range(count)]
        parts = {"nested": tf.ragged.constant(nested, dtype=tf.float32), "y": rows(count, 1)}
        batches.append((tf.ragged.constant(lists(count, 9)), parts))
    return both, weights, batches


def sparse() -> Made:
    """Sparse features, of another number in every batch, and rows of a table."""

    def loss_of(weights: list[Any], x: Any, y: Any) -> Any:
        made = tf.sparse.sparse_dense_matmul(x, weights[0])
        counts = tf.sparse.reduce_sum(x, axis=1, keepdims=True)
        return tf.reduce_mean((made - y) ** 2) + 0.1 * tf.reduce_mean(counts**2)

    step, weights = trained(loss_of, (20, 4))

    def both(x: Any, y: Any) -> Any:
        return step(x, y), tf.sparse.map_values(tf.square, x)

    def some(count: int) -> Any:
        dense = RANDOM.random((count, 20)) * (RANDOM.random((count, 20)) < 0.2)
        return tf.sparse.from_dense(dense.astype(np.float32))

    return both, weights, [(some(count), rows(count)) for count in (8, 8, 8, 4)]


def epoch() -> Made:
    """Loops over data within a loop over numbers, with variables that they change, and a break."""
    one, weights = trained(lambda own, x, y: tf.reduce_mean((x @ own[0] - y) ** 2), (4, 4))
    data = tf.data.Dataset.from_tensor_slices((rows(22), rows(22))).batch(4)

    def epochs(count: Any, most: Any) -> Any:
        best, steps = tf.constant(100.0), 0
        for _ in tf.range(count):
            total = 0.0
            for _, (x, y) in enumerate(data):
                loss = one(x, y)
                if loss < best:
                    best = loss
                total += loss
                steps += 1
                if total > most:
                    break
        return best, steps

    return epochs, weights, [(tf.constant(2), tf.constant(most)) for most in (100.0, 6.0)]


STEPS = {
    each.__name__: each
    for each in (asks_for_rows, contrasts, lengths, signature, ragged, sparse, epoch)
}


def flat(value: Any) -> list[Any]:
    return [np.asarray(each) for each in tf.nest.flatten(value, expand_composites=True)]


def worst(build: Callable[[], Made], devices: int, seed: int) -> tuple[float, int]:
    """How far a step is from itself without TensorOpt, and how often it was traced."""
    global RANDOM
    tensoropt.shutdown()
    tensoropt.init(devices=devices)
    counts = search_at_random(seed)
    made = []
    for _ in range(2):
        RANDOM = np.random.default_rng(seed)
        made.append(build())
    (step, truths, _), (other, weights, batches) = made
    plain, error, traces = tf.function(step), 0.0, 0

    def counted(*given: Any) -> Any:
        nonlocal traces
        traces += 1
        return getattr(other, "python_function", other)(*given)

    given = getattr(other, "input_signature", None)
    counting = tf.function(counted, input_signature=given) if given else counted
    parallel = tensoropt.parallelize(counting, pipeline=False)
    for batch in batches:
        pairs = zip(flat(plain(*batch)), flat(parallel(*batch)), strict=True)
        error = max([error, *(float(np.max(np.abs(a - b), initial=0)) for a, b in pairs)])
    assert counts["searches"], "no strategy was drawn"
    present = current()  # a trace that another one has replaced is freed
    assert present.executor is not None
    assert len(present.graphs) < 3 or build is contrasts or build is epoch
    pairs = zip(truths, weights, strict=True)
    return max([error, *(float(np.abs(a.numpy() - b.numpy()).max()) for a, b in pairs)]), traces


class Pooled(keras.Model):  # type: ignore[misc]
    """Takes sparse features, and rows of words of any number."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = keras.layers.Dense(8, activation="silu"), keras.layers.Dense(1)
        self.table = keras.layers.Embedding(30, 8)

    def call(self, inputs: Any) -> Any:
        rows = tf.ragged.map_flat_values(lambda each: self.table(each), inputs["words"])
        return self.outer(self.inner(inputs["x"]) + tf.reduce_mean(rows, axis=1))


def fitted(made: Callable[[Any], Any]) -> list[Any]:
    """What a model of composite tensors, and a recurrent one with static batches, come to."""
    random = np.random.default_rng(0)
    keras.utils.set_random_seed(3)
    dense = random.random((40, 20)) * (random.random((40, 20)) < 0.2)
    words = [random.integers(0, 30, random.integers(1, 9)).tolist() for _ in range(40)]
    x = {"x": tf.sparse.from_dense(dense.astype(np.float32)), "words": tf.ragged.constant(words)}
    y = random.random((40, 1)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    model = made(Pooled())
    model.compile(keras.optimizers.SGD(0.1), "mse")
    found = [model.fit(data, epochs=2, verbose=0).history["loss"]]
    found += [model.evaluate(data, verbose=0), model.predict(data, verbose=0)]
    layer = keras.layers.LSTM(16, recurrent_dropout=0.1)
    model = made(keras.Sequential([keras.Input((5, 8)), layer]))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    some = random.random((40, 5, 8)).astype(np.float32), random.random((40, 16), np.float32)
    data = tf.data.Dataset.from_tensor_slices(some).batch(16, drop_remainder=True)
    return [*found, model.fit(data, epochs=2, verbose=0).history["loss"], model.predict(some[0])]


def models() -> float:
    """How far models are from themselves without TensorOpt."""
    truths = fitted(lambda model: model)
    tensoropt.shutdown()
    tensoropt.init(devices=2)
    counts = search_at_random(1)
    found = fitted(lambda model: tensoropt.parallelize(model, pipeline=False))
    assert counts["searches"], "no strategy was drawn"
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(truths), strict=True)
    return max(float(np.max(np.abs(np.subtract(*pair)))) for pair in pairs)


def no_steps() -> dict[str, str]:
    """Errors for gradients in a loop and in a condition, alone and in a loop over data."""
    weight = tf.Variable(1.0)

    def descend(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = weight * x
        weight.assign_sub(tape.gradient(loss, weight))

    def loop(data: Any) -> None:
        for x in data:
            count = 0
            while tf.less(count, 2):
                descend(x)
                count += 1

    def condition(x: Any) -> None:
        if x > 0.0:
            descend(x)

    def condition_in_loop(data: Any) -> None:
        for x in data:
            condition(x)

    data = tf.data.Dataset.from_tensor_slices([1.0, 2.0])
    found = {}
    for function, given in ((loop, data), (condition, np.float32(1)), (condition_in_loop, data)):
        try:
            tensoropt.parallelize(function)(given)
        except GraphError as error:
            found[function.__name__] = str(error)
    return found


def new_objects() -> dict[str, Any]:
    """A loop that reads a new list in each call, then another job: graphs that are kept, and how
    far the variable is from that of the same loop without TensorOpt."""
    tensoropt.shutdown()
    tensoropt.init(devices=2)
    given = rows(8)
    data = tf.data.Dataset.from_tensor_slices(given).batch(4)
    weight, truth = tf.Variable(np.eye(4, dtype=np.float32)), np.eye(4, dtype=np.float32)

    def epoch(data: Any) -> None:
        scale = [0.5]
        for x in data:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((x @ weight) ** 2) * scale[0]
            weight.assign_sub(0.01 * tape.gradient(loss, weight))

    parallel = tensoropt.parallelize(epoch, pipeline=False)
    for _ in range(6):
        parallel(data)
    graphs = len(current().graphs)
    tensoropt.shutdown()
    after = weight.numpy()
    tensoropt.init(devices=2)
    parallel(data)
    for x in [given[:4], given[4:]] * 6:
        truth -= 0.01 * x.T @ (x @ truth)
    error = np.abs(after - truth).max()
    for x in (given[:4], given[4:]):
        truth -= 0.01 * x.T @ (x @ truth)
    return {"graphs": graphs, "error": float(max(error, np.abs(weight.numpy() - truth).max()))}


if __name__ == "__main__":
    strategies.preferred = lambda *_: None
    devices, *names = sys.argv[1:]
    errors, traces = dict[str, float](), dict[str, int]()
    for seed, (name, build) in enumerate(STEPS.items()):
        if name in names:
            errors[name], traces[name] = worst(build, int(devices), seed)
    if "models" in names:
        errors["models"] = models()
    found = {"errors": errors, "traces": traces, "mistakes": no_steps(), "objects": new_objects()}
    print(json.dumps(found))
