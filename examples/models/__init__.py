"""The four models of the TensorOpt paper's evaluation, as a script for one device has them.

Each module has a function from sizes to a `Model`: placeholders, loss and scores, in the default
graph, written with ``tf.compat.v1``'s names alone. Nothing in them says how to run in parallel.
"""

from __future__ import annotations

from .lstm import lstm_language_model
from .parts import Model, parameter_count
from .transformer import transformer
from .vgg import vgg16
from .wide_resnet import wide_resnet

__all__ = [
    "Model",
    "lstm_language_model",
    "parameter_count",
    "transformer",
    "vgg16",
    "wide_resnet",
]
