"""The memory of kernels, by the peak of TensorFlow's allocator, is as their records say."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from tensoropt.tdl import operator_type, types_with
from tensoropt.tdl.operator_type import EACH_INPUT
from tensoropt.tdl.registry import described

SHAPE = (1 << 14, 16)
UNIT = 4 * SHAPE[0] * SHAPE[1]
"""Bytes of a tensor of numbers: the allocator does not count tensors of 256 KiB."""

TRUTHS = ((4 * SHAPE[0], SHAPE[1]), tf.bool)
OPERANDS: dict[str, list[Any]] = {
    "LogicalAnd": [TRUTHS, TRUTHS],
    "LogicalNot": [TRUTHS],
    "LogicalOr": [TRUTHS, TRUTHS],
    "BiasAdd": [SHAPE, (SHAPE[1],)],
    "Select": [(SHAPE, tf.bool), SHAPE, SHAPE],
    "SelectV2": [(SHAPE, tf.bool), SHAPE, SHAPE],
    "SparseSoftmaxCrossEntropyWithLogits": [SHAPE, (SHAPE[:1], tf.int32)],
}
"""Shapes of the inputs, if they are not all alike, with an element type if it is not float32."""
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Cast": {"DstT": tf.int32},
    "EnsureShape": {"shape": SHAPE},
    "ExpandDims": {"axis": 0},
    "Reshape": {"shape": [-1]},
}
OVERWRITING = [
    (op_type, pair) for op_type in described() for pair in operator_type(op_type).overwrites
]


def _operands(op_type: str, inputs: int) -> list[tuple[tuple[int, ...], tf.DType]]:
    given = OPERANDS.get(op_type, [SHAPE] * inputs)
    return [each if isinstance(each[0], tuple) else (each, tf.float32) for each in given]


def _call(op_type: str, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    kernel = getattr(tf.raw_ops, op_type)
    names = list(inspect.signature(kernel).parameters)
    is_list = op_type in ("AddN", "IdentityN")
    arguments = {names[0]: tensors} if is_list else dict(zip(names, tensors, strict=False))
    made = kernel(**arguments, **ATTRIBUTES.get(op_type, {}))
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _peaks(build: Callable[[], list[tf.Tensor]]) -> list[int]:
    """The most bytes that a run of each of some small results takes, besides constants."""
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.disable_meta_optimizer = True
    rewrites.constant_folding = rewriter_config_pb2.RewriterConfig.OFF
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    peaks = []
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        for result in build():
            session.run(result)
            tf.config.experimental.reset_memory_stats("CPU:0")
            before = tf.config.experimental.get_memory_info("CPU:0")["current"]
            session.run(result)
            peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"] - before)
    return peaks


def _element(tensor: tf.Tensor) -> tf.Tensor:
    """A copy of one element; a slice of rows may be a view."""
    return tf.gather(tf.reshape(tensor, [-1]), [0])


def _units(op_type: str, number: int, output: int = 0) -> list[int]:
    """Tensors of full size that are alive at once, if one input is computed before the operator.

    First if no other operator reads this input, then if one reads it later. The other inputs are
    constants, whose memory a kernel cannot take.
    """

    def build() -> list[tf.Tensor]:
        required = [
            each
            for each in inspect.signature(getattr(tf.raw_ops, op_type)).parameters.values()
            if each.default is inspect.Parameter.empty
            and each.name not in ATTRIBUTES.get(op_type, {})
        ]
        count = 2 if op_type == "AddN" else 1 if op_type == "IdentityN" else len(required)
        results = []
        for is_read_later in (False, True):
            operands = _operands(op_type, count)
            ones = [np.ones((), dtype.as_numpy_dtype) for _, dtype in operands]
            # By its shape: TensorFlow takes seconds to write a million truth values into a graph.
            tensors = [
                tf.constant(one, dtype, shape)
                for one, (shape, dtype) in zip(ones, operands, strict=True)
            ]
            tensors[number] = tf.fill(tf.constant(operands[number][0]), tf.constant(ones[number]))
            result = _element(_call(op_type, tensors)[output])
            if is_read_later:
                with tf.control_dependencies([result]):
                    result = _element(tensors[number])
            results.append(result)
        return results

    return [round(peak / UNIT) for peak in _peaks(build)]


@pytest.mark.parametrize(("op_type", "pair"), OVERWRITING)
def test_a_kernel_writes_over_an_input_that_no_operator_reads_later(
    op_type: str, pair: tuple[int, int]
) -> None:
    number, output = pair
    inputs = (0, 1) if pair == EACH_INPUT else (number,)
    for each in inputs:
        read_last, read_later = _units(op_type, each, output)
        assert read_last == 1
        assert read_later >= 2


def test_a_cast_to_a_type_of_the_same_size_takes_new_memory() -> None:
    assert not operator_type("Cast").overwrites
    assert _units("Cast", 0) == [2, 2]


@pytest.mark.parametrize("op_type", sorted(types_with(view="first") - {"ReadVariableOp"}))
def test_the_output_of_a_view_lies_in_its_input(op_type: str) -> None:
    assert _units(op_type, 0) == [1, 1]


def test_each_output_of_a_view_of_several_inputs_lies_in_its_input() -> None:
    assert _units("IdentityN", 0) == [1, 1]
