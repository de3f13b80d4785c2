"""Digits that are drawn by chance, in batches: the images that two of the examples train on.

They are the same wherever the script runs, and nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["batches", "digit_images"]

Array = npt.NDArray[Any]

IMAGES, SIDE = 1800, 8
# The ends of the seven strokes of a digit, from (-1, -2) at the top left to (1, 2).
STROKES = {
    "a": ((-1, -2), (1, -2)),
    "b": ((1, -2), (1, 0)),
    "c": ((1, 0), (1, 2)),
    "d": ((-1, 2), (1, 2)),
    "e": ((-1, 0), (-1, 2)),
    "f": ((-1, -2), (-1, 0)),
    "g": ((-1, 0), (1, 0)),
}
DIGITS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")


def digit_images(test_examples: int, shape: Sequence[int]) -> tuple[Array, Array, Array, Array]:
    """Images in [0, 1], shape [n, *shape], and their digits, shape [n]: training, then test.

    Args:
        test_examples: how many are kept for the test; the others are for training.
        shape: of one image of 8 x 8 numbers.
    """
    random = np.random.default_rng(0)
    labels = random.integers(10, size=IMAGES).astype(np.int32)
    images = np.stack([_drawn(DIGITS[label], random) for label in labels]).reshape(-1, *shape)
    return (
        images[test_examples:],
        labels[test_examples:],
        images[:test_examples],
        labels[:test_examples],
    )


def _drawn(strokes: str, random: np.random.Generator) -> Array:
    """One image, shape [8, 8], of strokes with a slant, a size, a place, a width and noise."""
    slant, size, width = random.normal(0, 0.15), random.uniform(1.2, 1.6), random.uniform(0.5, 0.8)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    y = (rows - (SIDE - 1) / 2 + random.normal(0, 0.25)) / size
    x = (columns - (SIDE - 1) / 2 + random.normal(0, 0.25)) / size + slant * y
    image = np.zeros((SIDE, SIDE))
    for (x0, y0), (x1, y1) in (STROKES[stroke] for stroke in strokes):
        along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / 4.0  # each stroke is 2 long
        along = np.clip(along, 0, 1)
        distance = np.hypot(x - x0 - along * (x1 - x0), y - y0 - along * (y1 - y0))
        image = np.maximum(image, np.exp(-((distance / width) ** 2)))
    noise = random.normal(0, 0.1, image.shape)
    return np.clip(image + noise, 0, 1).astype(np.float32)


def batches(images: Array, labels: Array, size: int, epoch: int) -> Iterator[tuple[Array, Array]]:
    """Shuffled batches of one size; every rank draws the same ones."""
    order = np.random.default_rng(epoch).permutation(len(labels))
    for start in range(0, len(labels) - size + 1, size):
        chosen = order[start : start + size]
        yield images[chosen], labels[chosen]
