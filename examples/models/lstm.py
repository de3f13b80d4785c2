"""A stacked LSTM language model, unrolled: Hochreiter & Schmidhuber, "Long Short-Term Memory"
(1997), with forget gates (Gers et al., 2000); stacked and trained as by Jozefowicz et al.,
"Exploring the Limits of Language Modeling" (2016), whose RNNs Tofu and TensorOpt enlarge.
"""

from __future__ import annotations

from typing import Any

import tensoropt as tf

from .parts import Model, Tensor, variable

__all__ = ["lstm_language_model", "lstm_parameters"]

FORGET_BIAS = 1.0


def lstm_language_model(
    hidden: int = 1024,
    layers: int = 2,
    steps: int = 20,
    vocabulary: int = 10000,
    *,
    embedding: int | None = None,
    dtype: Any = tf.float32,
) -> Model:
    """Predict each next token; the loss is mean cross entropy, perplexity its exponential.

    Args:
        hidden: width of every layer's state.
        layers: number of stacked LSTM layers.
        steps: tokens of one sequence, over which the network is unrolled.
        vocabulary: number of different tokens.
        embedding: width of the tokens' embedding; that of the layers if None.
        dtype: floating-point type.

    Returns:
        Placeholders ``tokens`` and ``targets`` [batch, steps], loss, and scores
        [batch, steps, vocabulary].
    """
    tokens = tf.placeholder(tf.int32, [None, steps], name="tokens")
    targets = tf.placeholder(tf.int32, [None, steps], name="targets")
    with tf.variable_scope("lstm"):
        table = variable("embedding", [vocabulary, embedding or hidden], dtype)
        embedded = tf.nn.embedding_lookup(table, tokens)
        values = tf.unstack(embedded, axis=1)
        for layer in range(layers):
            with tf.variable_scope(f"layer{layer + 1}"):
                values = _layer(values, hidden, tf.shape(tokens)[0])
        flat = tf.reshape(tf.stack(values, axis=1), [-1, hidden])
        with tf.variable_scope("scores"):
            weights = variable("weights", [hidden, vocabulary], dtype)
            bias = tf.get_variable("bias", [vocabulary], dtype, tf.zeros_initializer())
            flat_scores = tf.nn.bias_add(tf.matmul(flat, weights), bias)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(targets, [-1]), logits=flat_scores
    )
    scores = tf.reshape(flat_scores, [-1, steps, vocabulary])
    return Model({"tokens": tokens, "targets": targets}, tf.reduce_mean(losses), scores)


def lstm_parameters(hidden: int, layers: int, vocabulary: int, embedding: int | None = None) -> int:
    """Number of parameters: embedding, four gates in every layer, and scores."""
    width = embedding or hidden
    gates = layers * 4 * hidden * (2 * hidden + 1) - 4 * hidden * (hidden - width)
    return vocabulary * width + gates + (hidden + 1) * vocabulary


def _layer(inputs: list[Tensor], hidden: int, batch: Tensor) -> list[Tensor]:
    """One layer over all steps: a list of [batch, hidden] in, another one out."""
    dtype = inputs[0].dtype
    kernel = variable("kernel", [int(inputs[0].shape[-1]) + hidden, 4 * hidden], dtype)
    bias = tf.get_variable("bias", [4 * hidden], dtype, tf.zeros_initializer())
    cell = output = tf.zeros([batch, hidden], dtype)
    outputs = []
    for values in inputs:
        gates = tf.nn.bias_add(tf.matmul(tf.concat([values, output], axis=1), kernel), bias)
        write, candidate, forget, read = tf.split(gates, 4, axis=1)
        kept = tf.sigmoid(forget + FORGET_BIAS) * cell
        cell = kept + tf.sigmoid(write) * tf.tanh(candidate)
        output = tf.sigmoid(read) * tf.tanh(cell)
        outputs.append(output)
    return outputs
