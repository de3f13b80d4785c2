"""A graph of common operators of a few sizes, for profiles that are measured without a script."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.graph.operator import Graph, Operator

__all__ = ["differentiable_inputs", "operator_grid"]

_MATRICES = ((32, 128, 128), (64, 512, 512), (256, 256, 1024), (128, 2048, 512))
_IMAGES = ((8, 16, 16, 32), (8, 8, 64, 64), (16, 32, 16, 16))
_VALUES = ((64, 64), (128, 1024), (1024, 2048))


def operator_grid() -> tuple[tf.Graph, list[str]]:
    """Return the graph, and the names of its operators that are timed."""
    graph = tf.Graph()
    with graph.as_default():
        outputs = [*_contractions(), *_image_operators(), *_other_operators()]
    return graph, [tensor.op.name for tensor in outputs]


def differentiable_inputs(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return for every operator the inputs that are floating-point tensors and no constants."""
    return {operator.name: _floating(operator) for operator in graph}


def _floating(operator: Operator) -> tuple[int, ...]:
    return tuple(
        number
        for number, spec in enumerate(operator.input_specs)
        if spec.dtype.startswith("float") and spec.value is None and number not in operator.mutates
    )


def _input(*shape: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    return tf.compat.v1.placeholder(dtype, shape)


def _contractions() -> list[tf.Tensor]:
    outputs = [tf.matmul(_input(m, k), _input(k, n)) for m, k, n in _MATRICES]
    outputs.append(tf.matmul(_input(8, 64, 64), _input(8, 64, 64)))
    for batch, height, width, channels in _IMAGES:
        image, kernel = _input(batch, height, width, channels), _input(3, 3, channels, channels)
        outputs.append(tf.nn.conv2d(image, kernel, 1, "SAME"))
        outputs.append(tf.nn.conv2d(image, _input(1, 1, channels, 2 * channels), 1, "SAME"))
    return outputs


def _image_operators() -> list[tf.Tensor]:
    outputs = []
    for batch, height, width, channels in _IMAGES:
        shape = (batch, height, width, channels)
        vectors = [_input(channels) for _ in range(3)]
        outputs.append(tf.nn.bias_add(_input(*shape), vectors[0]))
        outputs.append(tf.nn.max_pool2d(_input(*shape), 2, 2, "SAME"))
        outputs.append(tf.nn.avg_pool2d(_input(*shape), 2, 2, "SAME"))
        outputs.append(tf.compat.v1.nn.fused_batch_norm(_input(*shape), vectors[1], vectors[2])[0])
    return outputs


def _other_operators() -> list[tf.Tensor]:
    outputs = []
    for rows, columns in _VALUES:
        first, second = _input(rows, columns), _input(rows, columns)
        outputs += [first + second, first * second, first - second, first / second]
        outputs += [
            tf.nn.relu(first),
            tf.tanh(first),
            tf.sigmoid(first),
            tf.exp(first),
            tf.square(first),
        ]
        outputs += [tf.nn.softmax(first), tf.transpose(first), tf.reduce_sum(first, 1)]
        outputs += [tf.reduce_mean(first, 0), tf.math.rsqrt(first), tf.concat([first, second], 1)]
        labels = _input(rows, dtype=tf.int32)
        outputs.append(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, first))
        outputs.append(tf.gather(first, labels))
    return [tensor.op.inputs[0] if tensor.op.type == "Squeeze" else tensor for tensor in outputs]
