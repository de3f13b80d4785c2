"""The paper's models with fewer layers, as linear programs allow, and graphs of the benchmarks'
zoo.

The widths are those of the paper's Table 1, and the layers those of `reproduction.paper`; only
their number is smaller. The zoo's graphs have their fewest layers.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.search.zoo.catalogue import ZOO
from benchmarks.search.zoo.measuring import request_of
from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models import Model, lstm_language_model, transformer, vgg16, wide_resnet
from reproduction.paper.models import BATCH_SIZE
from tensoropt.cost.cluster import Cluster
from tensoropt.planner.request import Request

__all__ = ["MODELS", "OF_ZOO", "step_of"]

MODELS: dict[str, Callable[[], Model]] = {
    # Two layers of six, and four steps of twenty, which are a recurrence still.
    "rnn": lambda: lstm_language_model(hidden=24576, layers=2, steps=4, vocabulary=1024),
    # One block in each of the four stages; ResNet-152 has 50 in all.
    "wide_resnet": lambda: wide_resnet(depth=14, image_size=96, base_channels=368),
    # One layer of six in the encoder and in the decoder.
    "transformer": lambda: transformer(
        layers=1,
        model_width=3840,
        heads=32,
        feed_forward_width=15360,
        source_length=48,
        target_length=32,
        vocabulary=32000,
    ),
    "vgg16": vgg16,  # all layers
}


OF_ZOO = ("branches", "decoder", "encoder", "gan", "penalty")


def step_of(model: str, cluster: Cluster, devices: int) -> TrainingStep | Request:
    """A training step of a model of `MODELS`, or of `OF_ZOO`."""
    if model in OF_ZOO:
        return request_of(model, ZOO[model].small, cluster, devices)
    return gradient_descent_step(MODELS[model], BATCH_SIZE)
