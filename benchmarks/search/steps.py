"""Training steps and clusters of any size for the benchmarks of the search.

The module imports TensorFlow, so processes that only start searches do not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import tensoropt as tf
from benchmarks.search.bert import bert
from benchmarks.search.inception import inception_v3
from benchmarks.search.zoo.attention import decoder
from examples.models import (
    Model,
    lstm_language_model,
    parameter_count,
    transformer,
    vgg16,
    wide_resnet,
)
from tensoropt.cost.cluster import Cluster, Level, load_cluster
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph

__all__ = ["BUILDERS", "Step", "cluster_of", "step_of"]

BUILDERS: dict[str, Callable[[int], Model | None]] = {
    "bert": lambda layers: bert(layers),
    "decoder": decoder,
    "inception": lambda _: inception_v3(),
    "rnn": lambda layers: lstm_language_model(
        hidden=24576, layers=layers, steps=20, vocabulary=1024
    ),
    "transformer": lambda layers: transformer(
        layers=layers,
        model_width=3840,
        heads=32,
        feed_forward_width=15360,
        source_length=64,
        target_length=64,
        vocabulary=32000,
    ),
    "vgg16": lambda _: vgg16(),
    "wide_resnet": lambda depth: wide_resnet(depth=depth, image_size=96, base_channels=368),
}
"""Models by name, as functions of the number of layers.

The Transformer and the RNN are the paper's with any number of layers, like BERT. The WideResNet has
14, 26, 50, 101 or 152 layers. The decoder is the zoo's and has its own optimizer.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One training step; of plain gradient descent if the model has no optimizer.

    Attributes:
        graph: the logical graph.
        batch_placeholders: placeholders that are loaded data parallel.
        parameters: number of parameters.
    """

    graph: Graph
    batch_placeholders: frozenset[str]
    parameters: int


def step_of(model: str, batch_size: int, layers: int = 6) -> Step:
    """Build a model of `BUILDERS` with its gradients and import it; nothing runs."""
    script = tf.Graph()
    with script.as_default():
        made = BUILDERS[model](layers)
        if made is not None:
            tf.train.GradientDescentOptimizer(0.1).minimize(made.loss)
        fed, batched = fed_shapes(script, batch_size, None)
        graph = import_graph(script, training_roots(script, None), fed)
        parameters = parameter_count()
    return Step(graph, batched & {operator.name for operator in graph}, parameters)


def cluster_of(devices: int, name: str = "4x8-h100") -> Cluster:
    """The cluster with machines for ``devices`` devices. All machines are whole; a single
    machine may have fewer devices."""
    cluster = load_cluster(name)
    between, within = cluster.levels
    assert within.count is not None
    machines = max(1, devices // within.count)
    inside = devices // machines
    levels: tuple[Level, ...] = (replace(within, count=inside),)
    if machines > 1:
        levels = (replace(between, count=machines), *levels)
    return replace(cluster, name=f"{machines}x{inside}", levels=levels)
