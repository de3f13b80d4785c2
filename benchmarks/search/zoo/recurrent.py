"""Unrolled recurrent networks: one with attention, and one that drops the same units in all
steps."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.search.zoo.parts import cross_entropy, lstm_step, tokens
from examples.models.parts import Tensor, dense, variable

__all__ = ["dropout_lstm", "encoder_decoder"]


def encoder_decoder(steps: int) -> None:
    """Luong et al., "Effective Approaches to Attention-based Neural Machine Translation" (2015):
    an LSTM reads, another one writes, with attention and input feeding."""
    width, hidden, vocabulary = 512, 1024, 32000
    source, target = tokens("source", steps), tokens("target", steps)
    shifted = tokens("shifted", steps)
    start = tf.zeros([tf.shape(source)[0], hidden])
    state, outputs = (start, start), []
    kernel, bias = _cell("encoder", width, hidden)
    read = tf.gather(variable("source_words", [vocabulary, width], tf.float32), source)
    for values in tf.unstack(read, axis=1):
        state = lstm_step(values, state, kernel, bias)
        outputs.append(state[1])
    memory = tf.stack(outputs, axis=1)
    kernel, bias = _cell("decoder", width + hidden, hidden)
    combine = variable("combine", [2 * hidden, hidden], tf.float32)
    written = tf.gather(variable("target_words", [vocabulary, width], tf.float32), shifted)
    attended, found = start, []
    for values in tf.unstack(written, axis=1):
        state = lstm_step(tf.concat([values, attended], axis=1), state, kernel, bias)
        scores = tf.reduce_sum(memory * tf.expand_dims(state[1], 1), axis=2)
        weights = tf.expand_dims(tf.nn.softmax(scores), 2)
        context = tf.reduce_sum(memory * weights, axis=1)
        attended = tf.tanh(tf.matmul(tf.concat([context, state[1]], axis=1), combine))
        found.append(attended)
    flat = tf.reshape(tf.stack(found, axis=1), [-1, hidden])
    _clipped_step(cross_entropy(dense(flat, vocabulary, "scores"), target))


def dropout_lstm(steps: int) -> None:
    """Gal and Ghahramani, "A Theoretically Grounded Application of Dropout in Recurrent Neural
    Networks" (2015), with the large network of Zaremba et al. (2014)."""
    hidden, layers, vocabulary, kept = 1536, 2, 10000, 0.4
    read, target = tokens("tokens", steps), tokens("targets", steps)
    batch = tf.shape(read)[0]
    embedded = tf.gather(variable("words", [vocabulary, hidden], tf.float32), read)
    values = tf.unstack(embedded, axis=1)
    for layer in range(layers):
        kernel, bias = _cell(f"layer{layer + 1}", hidden, hidden)
        masks = [_mask(batch, hidden, kept, 2 * layer + part) for part in range(2)]
        start = tf.zeros([batch, hidden])
        state, outputs = (start, start), []
        for inputs in values:
            cell, output = state
            state = lstm_step(inputs * masks[0], (cell, output * masks[1]), kernel, bias)
            outputs.append(state[1])
        values = outputs
    mask = _mask(batch, hidden, kept, 2 * layers)
    flat = tf.reshape(tf.stack([each * mask for each in values], axis=1), [-1, hidden])
    _clipped_step(cross_entropy(dense(flat, vocabulary, "scores"), target))


def _cell(name: str, inputs: int, hidden: int) -> tuple[Tensor, Tensor]:
    with tf.variable_scope(name):
        kernel = variable("kernel", [inputs + hidden, 4 * hidden], tf.float32)
        return kernel, tf.get_variable("bias", [4 * hidden], tf.float32, tf.zeros_initializer())


def _mask(batch: Tensor, width: int, kept: float, seed: int) -> Tensor:
    return tf.floor(kept + tf.random_uniform([batch, width], seed=seed)) / kept


def _clipped_step(loss: Tensor) -> None:
    """A step of momentum with gradients whose common norm is bounded."""
    own = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, own), 5.0)
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    optimizer.apply_gradients(zip(gradients, own, strict=True))
