"""The four models at the sizes of the paper's Table 1, as training graphs that were never run.

The paper gives the models' parameters and memory in GB, but not their sizes. The sizes here come
closest to these parameters, and each size that devices may split is a multiple of 16. Parameters do
not determine the lengths of sequences and the sizes of images; those come closest to the memory. GB
is 2**30 bytes, because only then VGG16's 138,357,544 parameters are 0.52 GB.

``python -m reproduction.paper.models`` prints the parameters.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models import (
    Model,
    lstm_language_model,
    transformer,
    vgg16,
    wide_resnet,
)

__all__ = ["BATCH_SIZE", "MODELS", "PAPER_MODELS", "PaperModel", "training_step"]

BATCH_SIZE = 256


@dataclass(frozen=True, slots=True)
class PaperModel:
    """One row of Table 1.

    Attributes:
        title: the name in the paper.
        build: makes the forward graph in the default graph.
        parameters_gb: the parameters in Table 1.
        memory_gb: the memory in Table 1 for training on one GPU.
    """

    title: str
    build: Callable[[], Model]
    parameters_gb: float
    memory_gb: float


def _transformer(width: int) -> Model:
    """A Transformer with six layers and a feed-forward width of four times the model's width, as
    in "Attention Is All You Need"."""
    return transformer(
        layers=6,
        model_width=width,
        heads=32,
        feed_forward_width=4 * width,
        source_length=48,
        target_length=32,
        vocabulary=32000,
    )


PAPER_MODELS = {
    # The deepest of the family, as in Tofu. 368 channels are 5.75 times 64, and 23 * 16. Images of
    # 224 would take five times the memory of Table 1.
    "wide_resnet": PaperModel(
        "WideResNet", lambda: wide_resnet(depth=152, image_size=96, base_channels=368), 7.3, 83
    ),
    # Six layers of 24,576 have exactly 108.0 GB. With 20 steps, activations are those of Table 1 if
    # a step of a layer keeps its gates, its state and its output, as one operator would.
    "rnn": PaperModel(
        "RNN",
        lambda: lstm_language_model(hidden=24576, layers=6, steps=20, vocabulary=1024),
        108,
        126,
    ),
    # Six layers, as in "Attention Is All You Need"; the feed-forward width is four times the
    # model's, as there.
    "transformer": PaperModel("Transformer", lambda: _transformer(3840), 9.7, 74),
    "vgg16": PaperModel("VGG16", vgg16, 0.52, 30),
}

MODELS: dict[str, Callable[[], Model]] = {
    **{name: model.build for name, model in PAPER_MODELS.items()},
    # Other hidden sizes, for Figure 7 (a): half the parameters, as in the Transformer-S of Table 4,
    # and twice the parameters.
    "transformer_half": lambda: _transformer(2688),
    "transformer_double": lambda: _transformer(5504),
    # Fewer layers and more channels; the initial layers have a larger share of the time.
    "wide_resnet_50": lambda: wide_resnet(depth=50, image_size=112, base_channels=576),
}
"""The functions that build each model, by name: the models of Table 1, and sizes of the
Transformer."""


def training_step(name: str, batch_size: int = BATCH_SIZE) -> TrainingStep:
    """A training step of a model of `MODELS`."""
    return gradient_descent_step(MODELS[name], batch_size)


def main() -> None:
    """Print every model's parameters beside the paper's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(PAPER_MODELS))
    for name in parser.parse_args().models:
        step, paper = training_step(name), PAPER_MODELS[name]
        print(
            f"{paper.title:12} {step.parameters_gb:8.2f} GB (paper {paper.parameters_gb} GB)  "
            f"{step.parameters:,} parameters  {len(step.graph)} operators"
        )


if __name__ == "__main__":
    main()
