"""Wide ResNets of bottleneck blocks: He et al., "Deep Residual Learning for Image Recognition"
(2016), table 1, with every convolution's channels multiplied by a widening scalar (Zagoruyko &
Komodakis, "Wide Residual Networks", 2016), as Tofu (section 7.1) and TensorOpt evaluate them.
WRN-152-10 is ``wide_resnet(depth=152, width=10)``.
"""

from __future__ import annotations

from typing import Any

import tensoropt as tf

from .parts import Model, Tensor, dense, variable

__all__ = ["wide_resnet", "wide_resnet_parameters", "wide_resnet_scores"]

# Blocks of each of the four stages; 14 and 26 layers are for small images and tests.
STAGES = {
    14: (1, 1, 1, 1),
    26: (2, 2, 2, 2),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
EXPANSION = 4  # a block's output has four times the channels of its 3x3 convolution
EPSILON = 1e-5


def wide_resnet(
    depth: int = 50,
    width: int = 1,
    image_size: int = 224,
    classes: int = 1000,
    *,
    base_channels: int = 64,
    image_channels: int = 3,
    small_images: bool = False,
    dtype: Any = tf.float32,
) -> Model:
    """A Wide ResNet in training and its cross entropy.

    Args:
        depth: 50, 101 or 152 layers; 14 and 26 for small images.
        width: widening scalar: multiplies the channels of every convolution.
        image_size: height and width of the images.
        classes: number of classes.
        base_channels: of the first convolution before widening.
        image_channels: 3 for colour images.
        small_images: begin with a 3x3 convolution instead of 7x7, stride 2 and pooling.
        dtype: floating-point type.

    Returns:
        Placeholders ``images`` [batch, image_size, image_size, image_channels] and ``labels``
        [batch] (class numbers), loss, and scores [batch, classes]. Moving averages of the batch
        statistics are updated by the operators in the collection ``UPDATE_OPS``.

    Raises:
        KeyError: if no ResNet of that depth is known.
    """
    images = tf.placeholder(dtype, [None, image_size, image_size, image_channels], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    scores = wide_resnet_scores(images, depth, width, classes, base_channels, small_images)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    return Model({"images": images, "labels": labels}, tf.reduce_mean(losses), scores)


def wide_resnet_scores(
    images: Tensor,
    depth: int,
    width: int,
    classes: int,
    base_channels: int = 64,
    small_images: bool = False,
    training: bool = True,
) -> Tensor:
    """Scores [batch, classes] of images [batch, height, width, channels].

    In training, batch normalisation uses the batch's statistics; else the moving averages. A
    second call shares the first one's variables.
    """
    channels = base_channels * width
    with tf.variable_scope("wide_resnet", reuse=tf.AUTO_REUSE):
        if small_images:
            values = _convolution(images, channels, 3, 1, "first", training)
        else:
            values = _convolution(images, channels, 7, 2, "first", training)
            values = tf.nn.max_pool2d(values, ksize=3, strides=2, padding="SAME")
        for stage, blocks in enumerate(STAGES[depth]):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                with tf.variable_scope(f"stage{stage + 1}/block{block + 1}"):
                    values = _bottleneck(values, channels * 2**stage, stride, training)
        values = tf.reduce_mean(values, axis=[1, 2])
        return dense(values, classes, "scores")


def wide_resnet_parameters(
    depth: int,
    width: int = 1,
    classes: int = 1000,
    base_channels: int = 64,
    image_channels: int = 3,
    small_images: bool = False,
) -> int:
    """Number of trainable parameters; 25,557,032 for ResNet-50."""

    def convolution(size: int, before: int, after: int) -> int:
        return size * size * before * after + 2 * after

    inner = base_channels * width
    total = convolution(3 if small_images else 7, image_channels, inner)
    inputs = inner
    for stage, blocks in enumerate(STAGES[depth]):
        inner = base_channels * width * 2**stage
        outputs = EXPANSION * inner
        for block in range(blocks):
            total += convolution(1, inputs, inner) + convolution(3, inner, inner)
            total += convolution(1, inner, outputs)
            total += convolution(1, inputs, outputs) if block == 0 else 0
            inputs = outputs
    return total + (inputs + 1) * classes


def _bottleneck(values: Tensor, channels: int, stride: int, training: bool) -> Tensor:
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, projected where the shape changes."""
    outputs = EXPANSION * channels
    shortcut = values
    if stride != 1 or int(values.shape[-1]) != outputs:
        shortcut = _convolution(values, outputs, 1, stride, "shortcut", training, activate=False)
    values = _convolution(values, channels, 1, 1, "reduce", training)
    values = _convolution(values, channels, 3, stride, "middle", training)
    values = _convolution(values, outputs, 1, 1, "expand", training, activate=False)
    return tf.nn.relu(values + shortcut)


def _convolution(
    values: Tensor,
    channels: int,
    size: int,
    stride: int,
    name: str,
    training: bool,
    activate: bool = True,
) -> Tensor:
    """Convolution, batch normalisation and, perhaps, ReLU."""
    with tf.variable_scope(name):
        inputs = int(values.shape[-1])
        weights = variable(
            "weights", [size, size, inputs, channels], values.dtype, tf.initializers.he_normal
        )
        values = tf.nn.conv2d(values, weights, strides=stride, padding="SAME")
        values = _batch_norm(values, training)
        return tf.nn.relu(values) if activate else values


def _batch_norm(values: Tensor, training: bool, momentum: float = 0.9) -> Tensor:
    """Normalise each channel over batch, height and width (Ioffe & Szegedy, 2015)."""
    channels, dtype = int(values.shape[-1]), values.dtype

    def channel_variable(name: str, initial: float, trainable: bool = True) -> Tensor:
        initializer = tf.constant_initializer(initial)
        return tf.get_variable(name, [channels], dtype, initializer, trainable=trainable)

    scale, offset = channel_variable("scale", 1.0), channel_variable("offset", 0.0)
    moving_mean = channel_variable("moving_mean", 0.0, trainable=False)
    moving_variance = channel_variable("moving_variance", 1.0, trainable=False)
    if not training:
        return tf.nn.batch_normalization(
            values, moving_mean, moving_variance, offset, scale, EPSILON
        )
    if dtype == tf.float64:  # the fused kernel has float32 and narrower types alone
        mean, variance = tf.nn.moments(values, [0, 1, 2])
        values = tf.nn.batch_normalization(values, mean, variance, offset, scale, EPSILON)
    else:
        values, mean, variance = tf.nn.fused_batch_norm(values, scale, offset, epsilon=EPSILON)
    for moving, now in ((moving_mean, mean), (moving_variance, variance)):
        update = tf.assign_sub(moving, (moving - now) * (1 - momentum))
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
    return values
