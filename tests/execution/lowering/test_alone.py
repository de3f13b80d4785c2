"""One rank's part of an operator that all ranks compute, emitted alone."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.operator_time import SPELLED_OUT, LocalOperator
from tensoropt.errors import OptionError
from tensoropt.execution.lowering.alone import emitted_alone
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of, redundant
from tensoropt.problem.operators.local_work import operator_work

tensoropt.enable_graph_mode()

MESH = Mesh((2,))


def batch_norm(split: str) -> LocalOperator:
    """FusedBatchNormV3 of [4, 6, 6, 8] images, one index split over two devices; "" for none."""
    with tf.Graph().as_default() as script:
        images = tf.compat.v1.placeholder(tf.float32, [4, 6, 6, 8], "images")
        scale = tf.compat.v1.placeholder(tf.float32, [8], "scale")
        made = tf.compat.v1.nn.fused_batch_norm(images, scale, scale)[0]
        shapes = {"images": (4, 6, 6, 8), "scale": (8,)}
        operator = import_graph(script, [made.op.name], shapes)[made.op.name]
    derivation = derivation_of(operator)
    splits = tuple((0,) if index.name == split else () for index in derivation.indices)
    configuration = Configuration(splits) if split else redundant(derivation)
    work = operator_work(operator, derivation, configuration, MESH, 0)
    assert work is not None
    return LocalOperator(operator, derivation, configuration, (), work)


def test_an_operator_in_parts_is_a_work_of_its_own() -> None:
    assert (SPELLED_OUT, "b") in batch_norm("b").work.attributes
    assert all(name != SPELLED_OUT for name, _ in batch_norm("").work.attributes)


def test_its_parts_make_pieces() -> None:
    local = batch_norm("b")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = [tf.ones(shape) for shape in local.work.local_shapes]
        made = emitted_alone(local, MESH, inputs)
        assert session.run(made[0]).shape == (2, 6, 6, 8)
        assert len(made) == len(local.operator.outputs)


def convolution(splits: dict[str, tuple[int, ...]]) -> LocalOperator:
    """Conv2D of [4, 6, 6, 8] images with filters of 3 x 3, split as named."""
    with tf.Graph().as_default() as script:
        images = tf.compat.v1.placeholder(tf.float32, [4, 6, 6, 8], "images")
        filters = tf.compat.v1.placeholder(tf.float32, [3, 3, 8, 16], "filters")
        made = tf.nn.conv2d(images, filters, 1, "SAME")
        shapes = {"images": (4, 6, 6, 8), "filters": (3, 3, 8, 16)}
        operator = import_graph(script, [made.op.name], shapes)[made.op.name]
    derivation = derivation_of(operator)
    configuration = Configuration(tuple(splits.get(i.name, ()) for i in derivation.indices))
    work = operator_work(operator, derivation, configuration, MESH, 2)
    assert work is not None
    return LocalOperator(operator, derivation, configuration, (0, 1), work)


def test_a_convolution_split_over_space_computes_on_its_window() -> None:
    local = convolution({"y": (0,)})
    assert local.work.local_shapes[0] == (4, 3, 6, 8)
    assert (SPELLED_OUT, "y") in local.work.attributes
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        inputs = [tf.ones(shape) for shape in local.work.local_shapes]
        (made,) = emitted_alone(local, MESH, inputs)
        gradients = tf.gradients(made, inputs)
        session.run(tf.compat.v1.global_variables_initializer())
        assert [value.shape for value in session.run([made, *gradients])] == [
            (4, 3, 6, 16),
            *local.work.local_shapes,
        ]
        (kernel,) = (each for each in graph.get_operations() if each.type == "Conv2D")
        assert kernel.inputs[0].shape == (4, 5, 8, 8)  # two rows of neighbours, padded columns
        assert kernel.get_attr("padding") == b"VALID"


def test_a_convolution_split_otherwise_is_one_kernel() -> None:
    for index in ("b", "co", "ci"):
        attributes = convolution({index: (0,)}).work.attributes
        assert all(name != SPELLED_OUT for name, _ in attributes)


def test_what_no_rule_spells_out_has_no_parts() -> None:
    with pytest.raises(OptionError, match=r"has a rule\. Got FusedBatchNormV3"):
        emitted_alone(batch_norm(""), MESH, [])
