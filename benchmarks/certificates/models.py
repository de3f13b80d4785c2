"""The paper's models, at the widths of its Table 1 and depths that a linear program can handle.

Depth repeats the same layers; what the layers are, and how wide, is as in `benchmarks.paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensoropt as tf
from benchmarks.paper.models import BATCH_SIZE
from examples.models import Model, lstm_language_model, transformer, vgg16, wide_resnet
from tensoropt.frontend.shapes import fed_shapes, training_roots
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.from_tensorflow.backward_reads import backward_reads
from tensoropt.graph.operator import Graph

__all__ = ["MODELS", "Step", "step_of"]

MODELS: dict[str, Callable[[], Model]] = {
    # Two layers of six; four steps of twenty are a recurrence still.
    "rnn": lambda: lstm_language_model(hidden=24576, layers=2, steps=4, vocabulary=1024),
    # One block in each of the four stages, which have 50 in ResNet-152.
    "wide_resnet": lambda: wide_resnet(depth=14, image_size=96, base_channels=368),
    # One layer of six, in the encoder and the decoder.
    "transformer": lambda: transformer(
        layers=1,
        model_width=3840,
        heads=32,
        feed_forward_width=15360,
        source_length=48,
        target_length=32,
        vocabulary=32000,
    ),
    "vgg16": vgg16,  # whole
}


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One training step of gradient descent.

    Attributes:
        graph: the logical graph.
        batch_placeholders: loaded data parallel.
        reads: what the backward pass reads.
    """

    graph: Graph
    batch_placeholders: frozenset[str]
    reads: BackwardReads


def step_of(model: str) -> Step:
    """A model of `MODELS` with its gradients, imported; no variable is allocated."""
    script = tf.Graph()
    with script.as_default():
        train = tf.train.GradientDescentOptimizer(0.1).minimize(MODELS[model]().loss)
        fed, batched = fed_shapes(script, BATCH_SIZE, None)
        graph = import_graph(script, training_roots(script, [train]), fed)
        reads = backward_reads(script, graph)
    return Step(graph, batched & {operator.name for operator in graph}, reads)
