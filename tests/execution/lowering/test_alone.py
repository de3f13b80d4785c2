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


def test_what_no_rule_spells_out_has_no_parts() -> None:
    with pytest.raises(OptionError, match=r"has a rule\. Got FusedBatchNormV3"):
        emitted_alone(batch_norm(""), MESH, [])
