"""Values for the cases, of a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
GENERATOR = np.random.default_rng(20)


def real(*shape: int) -> Array:
    """Values from -2 to 2."""
    return GENERATOR.uniform(-2, 2, shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return GENERATOR.uniform(0.1, 0.9, shape).astype(np.float32)


def large(*shape: int) -> Array:
    return positive(*shape) + np.float32(1)


def whole(*shape: int) -> Array:
    return GENERATOR.integers(1, 9, shape).astype(np.int32)


def truth(*shape: int) -> Array:
    return GENERATOR.integers(0, 2, shape).astype(np.bool_)


def axis(*values: int) -> Array:
    return np.array(values, np.int32)


def scalar(value: int) -> Array:
    return np.array(value, np.int32)


def complex_(*shape: int) -> Array:
    values: Array = real(*shape) + 1j * real(*shape)
    return values.astype(np.complex64)


# Per case: inputs, attributes, and the indices that must be splittable.
Row = tuple[list[Any], dict[str, Any], str]


def alike(types: Sequence[str], *rows: Row) -> dict[str, list[Row]]:
    """The same cases for several types."""
    return {op_type: list(rows) for op_type in types}
