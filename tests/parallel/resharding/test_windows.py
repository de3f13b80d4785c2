"""What devices have of windows beside shards, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.resharding.windows import LocalWindows
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tensor_spec import TensorSpec

Shape = tuple[int, ...]


def convolution(padding: str, stride: int, data: Shape, kernel: int, made: Shape) -> Operator:
    filters = (kernel, kernel, data[-1], made[-1])
    return Operator(
        "conv",
        "Conv2D",
        (TensorName("x", 0), TensorName("w", 0)),
        (TensorSpec(data, "float32"), TensorSpec(filters, "float32")),
        (TensorSpec(made, "float32"),),
        {"strides": (1, stride, stride, 1), "padding": padding, "data_format": "NHWC"},
    )


def windows(operator: Operator, **shards: int) -> LocalWindows | None:
    derivation = derivation_of(operator)
    pieces = [shards.get(index.name, 1) for index in derivation.indices]
    return LocalWindows.of(operator, derivation, pieces)


@pytest.mark.parametrize(
    ("stride", "made", "read"),
    [
        # The dimension that is whole is padded by the kernel's 3 - 1; of 8 / 2 rows 2 more.
        (1, (2, 8, 8, 5), ((2, 4, 10, 3), (2, 6, 10, 3))),
        # Two windows of 3, 2 apart, reach over 5 rows; four over 9 columns.
        (2, (2, 4, 4, 5), ((2, 4, 9, 3), (2, 5, 9, 3))),
    ],
)
def test_a_split_convolution_reads_halos(stride: int, made: Shape, read: tuple[Shape, ...]) -> None:
    found = windows(convolution("SAME", stride, (2, 8, 8, 3), 3, made), y=2)
    assert found is not None
    assert (found.input, found.read, found.written) == (0, read, None)


def test_windows_of_one_element_are_the_shard() -> None:
    found = windows(convolution("SAME", 1, (2, 8, 8, 3), 1, (2, 8, 8, 5)), y=2, x=2)
    assert found is not None
    assert (found.read, found.written) == ((), None)


def test_a_transposed_convolution_writes_more_than_its_shard() -> None:
    # Windows of 3 by 3, 2 apart: over 4 of 8 rows lie 3 of 4 windows, which write 2 * 2 + 3 rows;
    # the 4 windows of a row write 3 * 2 + 3 columns.
    operator = Operator(
        "up",
        "Conv2DBackpropInput",
        (TensorName("sizes", 0), TensorName("w", 0), TensorName("y", 0)),
        (
            TensorSpec((4,), "int32", np.array([2, 8, 8, 3], np.int32)),
            TensorSpec((3, 3, 3, 5), "float32"),
            TensorSpec((2, 4, 4, 5), "float32"),
        ),
        (TensorSpec((2, 8, 8, 3), "float32"),),
        {"strides": (1, 2, 2, 1), "padding": "SAME", "data_format": "NHWC"},
    )
    found = windows(operator, y=2)
    assert found is not None
    assert (found.input, found.read, found.written) == (2, ((2, 3, 4, 5),), (2, 7, 9, 3))


def test_other_operators_have_none() -> None:
    spec = TensorSpec((2, 8), "float32")
    assert windows(Operator("relu", "Relu", (TensorName("x", 0),), (spec,), (spec,))) is None
