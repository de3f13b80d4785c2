"""Scikit-learn's handwritten digits in batches: the images that two of the examples train on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

__all__ = ["batches", "digit_images"]

Array = npt.NDArray[Any]


def digit_images(test_examples: int, shape: Sequence[int]) -> tuple[Array, Array, Array, Array]:
    """Images in [0, 1], shape [n, *shape], and their digits, shape [n]: training, then test.

    Args:
        test_examples: how many are kept for the test; the others are for training.
        shape: of one image of 8 x 8 numbers.
    """
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16.0).astype(np.float32).reshape(-1, *shape)
    labels = digits.target[order].astype(np.int32)
    return (
        images[test_examples:],
        labels[test_examples:],
        images[:test_examples],
        labels[:test_examples],
    )


def batches(images: Array, labels: Array, size: int, epoch: int) -> Iterator[tuple[Array, Array]]:
    """Shuffled batches of one size; every rank draws the same ones."""
    order = np.random.default_rng(epoch).permutation(len(labels))
    for start in range(0, len(labels) - size + 1, size):
        chosen = order[start : start + size]
        yield images[chosen], labels[chosen]
