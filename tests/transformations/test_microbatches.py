"""Real steps in microbatches: those that can be cut, and the reasons why others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from examples.models import lstm_language_model, transformer, vgg16, wide_resnet
from tensoropt.errors import GraphError
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.transformations.microbatches.accumulated import accumulated
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.microbatches.step_graph import RESULT

BATCH, WIDTH = 8, 6


def cut_of(build: Callable[[], Any], microbatches: int = 4, batch: int = BATCH) -> BatchCut:
    """The step of a loss (or several) in microbatches."""
    script = tf.Graph()
    with script.as_default():
        losses = build()
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(losses)
        fed, batched = fed_shapes(script, batch, None)
        graph = import_graph(script, training_roots(script, [train]), fed)
    return cut_along_batch(graph, batched, microbatches)


def refused(cut: BatchCut) -> dict[str, str]:
    return {refusal.type: refusal.reason for refusal in cut.refusals}


def examples() -> Any:
    return tf.placeholder(tf.float32, [None, WIDTH], name="examples")


def dense(values: Any, name: str, width: int = WIDTH) -> Any:
    weights = tf.get_variable(name, [values.shape[-1], width])
    return tf.matmul(values, weights)


MODELS: dict[str, Callable[[], Any]] = {
    "vgg16": lambda: vgg16(16, 1 / 16, 8, 16).loss,
    "lstm": lambda: lstm_language_model(8, 2, 3, 16).loss,
    "transformer": lambda: transformer(1, 16, 4, 32, 8, 8, 16, dropout=0.1).loss,
}


@pytest.mark.parametrize("model", MODELS)
def test_models_are_cut_up_to_the_mean_of_their_losses(model: str) -> None:
    cut = cut_of(MODELS[model])
    cut.check()
    (call,) = cut.calls.values()
    (loss,) = call.ends
    assert cut.sums(loss.operator)
    assert not call.path
    # Draws are for examples as what they mask is, and nothing whole is kept of the batch.
    drawn = [op.name for op in cut.graph if op.type == "RandomUniform"]
    assert bool(drawn) == (model == "transformer")
    assert all(cut.indices[name] is not None for name in drawn)
    for name in cut.before:
        shapes = [spec.shape for spec in cut.graph[name].outputs if spec.value is None]
        assert all(shape[:1] != (BATCH,) for shape in shapes if len(shape) > 2), name


def test_batch_normalisation_is_refused_by_operator() -> None:
    def fused() -> Any:
        images = tf.placeholder(tf.float32, [None, 4, 4, 3], name="images")
        scale, offset = tf.get_variable("scale", [3]), tf.get_variable("offset", [3])
        values, _, _ = tf.nn.fused_batch_norm(images, scale, offset)
        return tf.reduce_mean(values**2)

    cut = cut_of(fused)
    assert set(refused(cut)) == {"FusedBatchNormV3"}
    with pytest.raises(GraphError, match=r"FusedBatchNormV3\) combines different examples") as said:
        cut.check()
    assert "batch_norm='local' normalises each microbatch by its own" in str(said.value)
    spelled = cut_of(
        lambda: wide_resnet(14, 1, 8, 8, base_channels=2, small_images=True, dtype=tf.float64).loss
    )
    assert "moments" in spelled.refusals[0].operator
    assert "depends on all of them" in spelled.refusals[0].reason


def test_known_statistics_are_no_matter() -> None:
    def normalised() -> Any:
        images = tf.placeholder(tf.float32, [None, 4, 4, 3], name="images")
        variables = [tf.get_variable(name, [3]) for name in ("scale", "offset", "mean", "spread")]
        values, *_ = tf.nn.fused_batch_norm(images, *variables, is_training=False)
        return tf.reduce_sum(values**2) / BATCH

    cut_of(normalised).check()


def masked(of_all: bool) -> Any:
    """The mean over what a mask leaves: of all examples together, or of each by itself."""
    tokens = tf.placeholder(tf.int32, [None, 5], name="tokens")
    mask = tf.cast(tf.not_equal(tokens, 0), tf.float32)
    values = dense(tf.one_hot(tokens, WIDTH), "weights", 1)[:, :, 0] * mask
    if of_all:
        return tf.reduce_sum(values) / tf.reduce_sum(mask)
    return tf.reduce_mean(tf.reduce_sum(values, 1) / tf.reduce_sum(mask, 1))


def test_a_mean_by_weights_needs_the_sum_of_weights_first() -> None:
    cut = cut_of(lambda: masked(of_all=True))
    cut.check()
    (call,) = cut.calls.values()
    assert [cut.graph[name].type for name in call.path] == ["RealDiv"]
    weights = cut.graph[call.path[0]].inputs[1].operator
    assert weights in cut.before
    assert "tokens" in cut.before  # the whole mask is there before the first microbatch
    assert not any(op.is_variable for op in map(cut.graph.__getitem__, cut.before - {"weights"}))
    assert not cut_of(lambda: masked(of_all=False)).calls[0].path


def test_losses_that_no_microbatch_has_a_share_of() -> None:
    def negatives() -> Any:
        own = dense(examples(), "weights")
        scores = tf.matmul(own, own, transpose_b=True)
        labels = tf.range(BATCH)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return tf.reduce_mean(each)

    def root() -> Any:
        return tf.sqrt(tf.reduce_mean(dense(examples(), "weights") ** 2))

    def hardest() -> Any:
        return tf.reduce_max(dense(examples(), "weights") ** 2)

    def learned_weights() -> Any:
        values = examples()
        weights = tf.sigmoid(dense(values, "gate"))
        return tf.reduce_sum(dense(values, "weights") * weights) / tf.reduce_sum(weights)

    assert refused(cut_of(negatives)) == {"MatMul": "combines different examples with each other"}
    assert refused(cut_of(root))["Sqrt"].startswith("computes something other than a sum")
    assert "the max over examples" in refused(cut_of(hardest))["Max"]
    assert set(refused(cut_of(learned_weights))) == {"RealDiv"}
    with pytest.raises(GraphError, match="divides into microbatches"):
        cut_of(root, 3)


def test_what_follows_the_losses_is_the_whole_steps() -> None:
    """Weight decay, a schedule, a norm over all gradients, and what is fetched beside them."""
    script = tf.Graph()
    with script.as_default():
        values = tf.nn.relu(dense(examples(), "first"))
        scores = dense(values, "second")
        decay = tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables()])
        loss = 2 * tf.reduce_mean(scores**2) + tf.reduce_sum(values) / BATCH + 0.1 * decay
        hardest = tf.reduce_max(scores, 0)
        step = tf.train.create_global_step()
        rate = tf.train.exponential_decay(0.1, step, 1, 0.5)
        optimizer = tf.train.MomentumOptimizer(rate, 0.9)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
        train = optimizer.apply_gradients(zip(clipped, variables, strict=True), step)
        fed, batched = fed_shapes(script, BATCH, None)
        fetched = [train, loss, scores, hardest, norm]
        roots = training_roots(script, fetched)
        graph = import_graph(script, roots, fed)
    cut = cut_along_batch(graph, batched, 2)
    cut.check()
    (call,) = cut.calls.values()
    assert {cut.graph[end.operator].type for end in call.ends} == {"Mean", "Sum"}
    assert {hardest.op.name, norm.op.name, loss.op.name}.isdisjoint(cut.indices)
    step_of_two = accumulated(cut, roots)
    assert all(root in step_of_two for root in roots)
    assert step_of_two[scores.op.name].type == RESULT
    halves = [step_of_two[f"microbatch_{number}/{scores.op.name}"] for number in range(2)]
    assert [half.outputs[0].shape for half in halves] == [(BATCH // 2, WIDTH)] * 2
    assert {half.copy_of for half in halves} == {scores.op.name}
    order = list(step_of_two.operators)
    assert order.index("microbatch_0/end") < order.index(halves[1].name)
    # The second half waits for the first one's gradients; updates are as they were.
    waiting = [op for op in step_of_two if "microbatch_0/end" in op.control_inputs]
    assert waiting
    assert all(op.name.startswith("microbatch_1/") for op in waiting)
    updates = [op.name for op in graph if op.mutates]
    assert updates == [op.name for op in step_of_two if op.mutates]
    assert np.isclose(step_of_two[call.ends[0].operator].attributes["scales"][0], 0.5)
