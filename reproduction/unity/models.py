"""The models of Unity's Table 1, with the sizes in section 6.1 or in their sources.

Each function builds a forward graph in the default graph: placeholders and a mean loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensoropt as tf
from benchmarks.search.inception import inception_v3
from examples.models.parts import dense, variable
from reproduction.entry import Script
from reproduction.links import with_links
from tensoropt.cost.cluster import load_cluster

__all__ = [
    "CLUSTER",
    "MODELS",
    "JointModel",
    "bert_layer",
    "minimized",
    "script_of",
]

CLUSTER = "summit"

Tensor = Any


@dataclass(frozen=True, slots=True)
class JointModel:
    """A model of Table 1.

    Attributes:
        build: makes the forward graph and returns the loss.
        batch: examples for each device (section 6.1).
        adam: whether Adam trains the model, otherwise gradient descent.
        gain: the largest gain over the best other system, by section 6.2.
    """

    build: Callable[[], Tensor]
    batch: int
    adam: bool = False
    gain: float = 1.0


def minimized(model: JointModel) -> Any:
    """The operator of a model's training step, in the default graph."""
    make = tf.train.AdamOptimizer if model.adam else tf.train.GradientDescentOptimizer
    return make(1e-4 if model.adam else 0.01).minimize(model.build())


def script_of(
    model: JointModel, devices: int, search_seconds: float = 30.0, links: float = 1.0
) -> Script:
    """The script that trains a model on devices of the cluster, with ``links`` times the bandwidth
    of its links; each device has the model's examples."""
    train, cluster = partial(minimized, model), with_links(load_cluster(CLUSTER), links)
    return Script(train, model.batch * devices, devices, cluster, search_seconds)


def mlp(layers: int = 16, width: int = 8192) -> Tensor:
    """16 dense layers of width 8192 (section 6.1), a regression."""
    given = tf.placeholder(tf.float32, [None, width], name="given")
    wanted = tf.placeholder(tf.float32, [None, width], name="wanted")
    values = given
    for layer in range(layers):
        with tf.variable_scope(f"layer{layer}"):
            values = tf.matmul(values, variable("weights", [width, width], tf.float32))
            values = tf.nn.relu(values) if layer < layers - 1 else values
    return tf.reduce_mean(tf.square(values - wanted))


def bert_large(
    layers: int = 24, width: int = 1024, heads: int = 16, length: int = 512, vocabulary: int = 30720
) -> Tensor:
    """BERT-Large (Devlin et al. 2018), with products of matrices as in its authors' code.

    Sequences have 512 tokens. The vocabulary of 30,522 words is padded as in implementations.
    """
    tokens = tf.placeholder(tf.int32, [None, length], name="tokens")
    targets = tf.placeholder(tf.int32, [None, length], name="targets")
    table = variable("words", [vocabulary, width], tf.float32)
    values = tf.nn.embedding_lookup(table, tokens)
    values += variable("positions", [length, width], tf.float32)
    values = _normalised(tf.reshape(values, [-1, width]), "embedded")

    for layer in range(layers):
        with tf.variable_scope(f"layer{layer}"):
            values = bert_layer(values, width, heads, length)
    scores = tf.matmul(values, table, transpose_b=True)
    flat = tf.reshape(targets, [-1])
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=flat, logits=scores)
    )


def bert_layer(values: Tensor, width: int, heads: int, length: int) -> Tensor:
    """A layer of an encoder on concatenated sequences, [any * length, width]."""
    size = width // heads

    def of_heads(values: Tensor) -> Tensor:
        return tf.transpose(tf.reshape(values, [-1, length, heads, size]), [0, 2, 1, 3])

    query, key, value = (of_heads(dense(values, width, name)) for name in ("q", "k", "v"))
    scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * size**-0.5)
    mixed = tf.transpose(tf.matmul(scores, value), [0, 2, 1, 3])
    mixed = dense(tf.reshape(mixed, [-1, width]), width, "mixed")
    values = _normalised(values + mixed, "attended")
    hidden = tf.nn.relu(dense(values, 4 * width, "first"))
    return _normalised(values + dense(hidden, width, "second"), "fed_forward")


def _normalised(values: Tensor, name: str) -> Tensor:
    with tf.variable_scope(name):
        width = int(values.shape[-1])
        scale = tf.get_variable("scale", [width], tf.float32, tf.ones_initializer())
        offset = tf.get_variable("offset", [width], tf.float32, tf.zeros_initializer())
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
        return (values - mean) * tf.rsqrt(variance + 1e-6) * scale + offset


_CRITEO_ROWS: tuple[int, ...] = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Numbers of values of the 26 categories of Criteo Kaggle after the DLRM authors' preprocessing."""
_ROW_MULTIPLE = 192  # tables are padded so that their rows divide by all numbers of devices


def dlrm(width: int = 128) -> Tensor:
    """DLRM (Naumov et al. 2019) on Criteo Kaggle, as in FlexFlow: 26 tables and 13 numbers.

    As in FlexFlow's DLRM, features are concatenated instead of multiplied in pairs. The tables take
    17 GB.
    """
    numbers = tf.placeholder(tf.float32, [None, 13], name="numbers")
    rows = [-(-rows // _ROW_MULTIPLE) * _ROW_MULTIPLE for rows in _CRITEO_ROWS]
    values = numbers
    for layer, outputs in enumerate((512, 256, width)):
        values = tf.nn.relu(dense(values, outputs, f"bottom{layer}"))
    values = tf.concat([*_looked_up(rows, width), values], 1)
    for layer, outputs in enumerate((1024, 1024, 512, 256)):
        values = tf.nn.relu(dense(values, outputs, f"top{layer}"))
    return _clicked(dense(values, 1, "click"))


def xdl(width: int = 64) -> Tensor:
    """XDL (Jiang et al. 2019), as in FlexFlow: four tables of a million rows."""
    values = tf.concat(_looked_up([1_000_000 // 192 * 192] * 4, width), 1)
    for layer in range(3):
        values = tf.nn.relu(dense(values, 256, f"layer{layer}"))
    return _clicked(dense(values, 1, "click"))


def _looked_up(rows: list[int], width: int) -> list[Tensor]:
    found = []
    for number, count in enumerate(rows):
        given = tf.placeholder(tf.int32, [None], name=f"category{number}")
        table = variable(f"table{number}", [count, width], tf.float32)
        found.append(tf.nn.embedding_lookup(table, given))
    return found


def _clicked(scores: Tensor) -> Tensor:
    labels = tf.placeholder(tf.float32, [None, 1], name="clicked")
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores))


_FEATURES = {"cell": (1, 942), "descriptors": (2, 5270), "fingerprints": (2, 2048)}
"""For each kind of CANDLE-Uno's inputs with a tower their number and width; two drugs share a
tower. The dimensions are those of the Uno benchmark's data."""


def candle_uno(width: int = 4192, layers: int = 8) -> Tensor:
    """CANDLE-Uno, as in FlexFlow: a tower of eight layers of width 4192 for each kind of
    feature; their outputs and two doses are concatenated and fed to four layers."""
    made = []
    for kind, (count, inputs) in _FEATURES.items():
        for number in range(count):
            values = tf.placeholder(tf.float32, [None, inputs], name=f"{kind}{number}")
            for layer in range(layers):
                with tf.variable_scope(f"{kind}{layer}", reuse=tf.AUTO_REUSE):
                    size = int(values.shape[-1])
                    weights = variable("weights", [size, width], tf.float32)
                    values = tf.nn.relu(tf.matmul(values, weights))
            made.append(values)
    doses = [tf.placeholder(tf.float32, [None, 1], name=f"dose{number}") for number in range(2)]
    values = tf.concat([*made, *doses], 1)
    for layer in range(4):
        values = tf.nn.relu(dense(values, width, f"dense{layer}"))
    response = tf.placeholder(tf.float32, [None, 1], name="response")
    return tf.reduce_mean(tf.square(dense(values, 1, "response") - response))


def inception() -> Tensor:
    """Inception-v3 (Szegedy et al. 2015)."""
    return inception_v3().loss


def resnext_50() -> Tensor:
    """ResNeXt-50 (32 x 4d; Xie et al. 2017), with grouped convolutions of 32 groups."""
    images = tf.placeholder(tf.float32, [None, 224, 224, 3], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    values = tf.nn.relu(_convolved(images, 64, 7, 2, "stem"))
    values = tf.nn.max_pool2d(values, 3, 2, "SAME")
    for stage, (blocks, inner) in enumerate(((3, 128), (4, 256), (6, 512), (3, 1024))):
        for block in range(blocks):
            with tf.variable_scope(f"stage{stage}block{block}"):
                stride = 2 if stage and not block else 1
                made = tf.nn.relu(_convolved(values, inner, 1, 1, "first"))
                made = tf.nn.relu(_convolved(made, inner, 3, stride, "grouped", 32))
                made = _convolved(made, 2 * inner, 1, 1, "last")
                if not block:
                    values = _convolved(values, 2 * inner, 1, stride, "shortcut")
                values = tf.nn.relu(values + made)
    scores = dense(tf.reduce_mean(values, [1, 2]), 1000, "scores")
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    )


def _convolved(
    values: Tensor, channels: int, size: int, stride: int, name: str, groups: int = 1
) -> Tensor:
    with tf.variable_scope(name):
        shape = [size, size, int(values.shape[-1]) // groups, channels]
        values = tf.nn.conv2d(values, variable("filters", shape, tf.float32), stride, "SAME")
        scale = tf.get_variable("scale", [channels], tf.float32, tf.ones_initializer())
        offset = tf.get_variable("offset", [channels], tf.float32, tf.zeros_initializer())
        return tf.nn.fused_batch_norm(values, scale, offset)[0]


MODELS: dict[str, JointModel] = {
    "mlp": JointModel(mlp, 256, gain=2.0),
    "bert_large": JointModel(bert_large, 4, adam=True, gain=1.0),
    "dlrm": JointModel(dlrm, 1024, gain=3.6),
    "candle_uno": JointModel(candle_uno, 256, gain=1.6),
    "xdl": JointModel(xdl, 1024, gain=1.9),
    "inception_v3": JointModel(inception, 64, gain=1.3),
    "resnext_50": JointModel(resnext_50, 64, gain=1.0),
}
"""The models by name; gains are those of section 6.2 over the best of the compared systems."""
