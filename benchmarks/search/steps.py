"""Training steps and clusters of any size for the benchmarks of the search.

The module imports TensorFlow, so processes that only start searches do not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.search.bert import bert
from benchmarks.search.inception import inception_v3
from benchmarks.search.zoo.attention import decoder
from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models import (
    Model,
    lstm_language_model,
    transformer,
    vgg16,
    wide_resnet,
)
from tensoropt.cost.cluster import Cluster, Level, load_cluster

__all__ = ["BUILDERS", "cluster_of", "step_of"]

BUILDERS: dict[str, Callable[[int], Model | None]] = {
    "bert": bert,
    "decoder": decoder,
    "wide_decoder": lambda layers: decoder(layers, 12288),
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

The Transformer and the RNN are the paper's models; their number of layers is free, and BERT's. The
WideResNet has
14, 26, 50, 101 or 152 layers. The decoders are the zoo's and have their own optimizer; the wide one
has GPT-3's width.
"""


def step_of(model: str, batch_size: int, layers: int = 6) -> TrainingStep:
    """Build a model of `BUILDERS` with its gradients and import it; nothing runs."""
    return gradient_descent_step(lambda: BUILDERS[model](layers), batch_size)


def cluster_of(devices: int) -> Cluster:
    """A cluster of H100: up to 8 devices are on one machine, more are a multiple of 8."""
    cluster = load_cluster("4x8-h100")
    between, within = cluster.levels
    assert within.count is not None
    machines = max(1, devices // within.count)
    inside = devices // machines
    assert inside <= within.count, "a machine has at most 8"
    assert machines * inside == devices, "all machines are whole"
    levels: tuple[Level, ...] = (replace(within, count=inside),)
    if machines > 1:
        levels = (replace(between, count=machines), *levels)
    return replace(cluster, name=f"{machines}x{inside}", levels=levels)
