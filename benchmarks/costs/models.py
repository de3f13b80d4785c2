"""The models of the paper's Table 2, sized for a machine of two cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tensoropt
from examples.models import (
    Model,
    lstm_language_model,
    parameter_count,
    transformer,
    wide_resnet,
)
from tensoropt.frontend.inputs.shapes import fed_shapes
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow import backward_reads, import_graph
from tensoropt.graph.operator import Graph

__all__ = ["MODELS", "Job", "job"]

MODELS: Mapping[str, tuple[Callable[[], Model], int]] = {
    "rnn": (lambda: lstm_language_model(512, 2, 6, 2000), 64),
    "wide_resnet": (lambda: wide_resnet(14, 2, 32, 10, small_images=True), 16),
    "transformer": (lambda: transformer(2, 256, 4, 1024, 32, 32, 2000), 16),
}
"""For each name the function that builds the model, and its batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The training step of one model.

    Attributes:
        script: its TensorFlow graph.
        train: name of the training operator.
        graph: the imported step.
        reads: the tensors that its backward pass reads.
        batched: placeholders that are loaded data parallel.
        feeds: value of each placeholder operator.
        parameters: number of the model's parameters.
    """

    script: tf.Graph
    train: str
    graph: Graph
    reads: BackwardReads
    batched: frozenset[str]
    feeds: dict[str, npt.NDArray[Any]]
    parameters: int


def job(name: str) -> Job:
    """The training step of a model with momentum; it is the same on every rank."""
    build, batch = MODELS[name]
    with tf.Graph().as_default() as script:
        train = tensoropt.train.MomentumOptimizer(0.01, 0.9).minimize(build().loss).name
        parameters = parameter_count()
        shapes, batched = fed_shapes(script, batch, None)
        graph = import_graph(script, [train], shapes)
        reads = backward_reads(script, graph)
    random = np.random.default_rng(1)
    feeds: dict[str, npt.NDArray[Any]] = {}
    for operator in graph:
        if operator.is_placeholder:
            spec = operator.outputs[0]
            drawn = (
                random.random(spec.shape)
                if spec.dtype[0] == "f"
                else random.integers(0, 10, spec.shape)
            )
            feeds[operator.name] = drawn.astype(spec.dtype)
    return Job(script, train, graph, reads, batched & set(feeds), feeds, parameters)
