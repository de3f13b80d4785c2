"""The graphs of the zoo by name, their sizes, and the held graphs.

Held graphs judge methods of search. Methods are developed without looking at them. They were drawn
from the graphs that were unknown before the zoo.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["HELD", "ZOO", "Entry"]

_SEED = 20261123
_HELD_COUNT = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """A training graph.

    Attributes:
        family: the module of this package with the function of the graph's name, which builds the
            graph and its optimizers in the default graph.
        batch: number of examples of a step, on any number of devices.
        depth: the function's argument for the real size: number of layers, or of the graph's
            repeated parts.
        small: the argument for the smallest graph with all kinds of operators.
        known: whether the graph was used before the zoo existed, so that it cannot be held.
    """

    family: str
    batch: int
    depth: int
    small: int = 1
    known: bool = False


ZOO = {
    "branches": Entry("convolutional", 256, 4),
    "chain": Entry("dense", 2048, 100, 3),
    "decoder": Entry("attention", 64, 12, known=True),
    "densenet": Entry("convolutional", 256, 24),
    "dropout_lstm": Entry("recurrent", 64, 35, 2),
    "encoder": Entry("attention", 256, 12),
    "encoder_decoder": Entry("recurrent", 128, 20, 2),
    "experts": Entry("mixing", 64, 4, known=True),
    "gan": Entry("adversarial", 128, 3, 2, known=True),
    "mixer": Entry("mixing", 256, 12),
    "mobilenet": Entry("convolutional", 256, 4),
    "penalty": Entry("adversarial", 64, 4, 2),
    "siamese": Entry("several_ends", 128, 4, 2),
    "small_translation": Entry("attention", 128, 2, known=True),
    "squeeze": Entry("convolutional", 256, 6),
    "tables": Entry("dense", 2048, 26, 3),
    "three_outputs": Entry("several_ends", 64, 5, 2),
    "unet": Entry("convolutional", 32, 4, 2, known=True),
}
"""The graphs by name."""


HELD = frozenset(
    random.Random(_SEED).sample(
        sorted(name for name, entry in ZOO.items() if not entry.known), _HELD_COUNT
    )
)
"""The names of the held graphs."""
