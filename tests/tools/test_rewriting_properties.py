"""Every property holds for random tensors of random sizes, degrees and ranks that fit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # eager code though a script's graph mode is on

from tensoropt.rewriting.algebra.typing import infer
from tensoropt.rewriting.terms import Term
from tools.rewriting.properties.catalogue import properties
from tools.rewriting.tensorflow_form import steps_of
from tools.rewriting.trials import agree
from tools.rewriting.values import Array, Value, World

LEAST_EQUATIONS = 2
"""Of each property, at random: a convolution takes a millisecond, and there are 1,200."""


def test_every_equation_holds_in_exact_arithmetic() -> None:
    wrong = []
    for each in properties():
        assert each.equations, each.name
        for n, equation in enumerate(each.equations):
            typing = infer(equation.left, equation.right, ranks=dict(equation.ranks))
            if not agree(equation.left, equation.right, typing, seed=n):
                wrong.append(f"{each.name}: {equation}")
    assert not wrong, wrong


def test_names_are_unique_and_there_are_enough() -> None:
    names = Counter(each.name for each in properties())
    assert max(names.values()) == 1
    assert sum(not each.parallel for each in properties()) >= 33
    assert sum(each.parallel for each in properties()) >= 33


class InTensorFlow(World):
    """Where terms are evaluated by TensorFlow's kernels, each device's shards by themselves."""

    def draw(self, shape: tuple[int, ...], random: np.random.Generator) -> Array:
        return random.normal(size=shape).astype(np.float32)

    def total(self, arrays: Sequence[Array]) -> Array:
        return np.asarray(sum(arrays))

    def same(self, one: Value, other: Value) -> bool:
        pairs = zip(np.array(one.pieces), np.array(other.pieces), strict=True)
        return one.placement == other.placement and all(
            np.allclose(a, b, 1e-3, 1e-4) for a, b in pairs
        )

    def compute(
        self, term: Term, arrays: Sequence[Array], shape: tuple[int, ...], piece: tuple[int, ...]
    ) -> Array:
        if term.operator == "embedding":  # any numbers stand for rows; those of others are zeros
            table, numbers = arrays
            first, pieces = piece or (0, 1)
            own = np.abs(numbers * 1000).astype(int) % (len(table) * pieces) - first * len(table)
            held = (own >= 0) & (own < len(table))
            found = tf.raw_ops.GatherV2(params=table, indices=np.where(held, own, 0), axis=0)
            return np.asarray(found.numpy() * held[:, None])
        known: list[Any] = list(arrays)
        for step in steps_of(term, [a.shape for a in arrays], shape):
            inputs = [known[i] if isinstance(i, int) else i.value for i in step.inputs]
            known.append(_run(step.op_type, inputs, step.attributes)[step.output])
        assert known[-1].shape == shape
        return np.asarray(known[-1])


ARGUMENTS = {
    "ConcatV2": lambda i: {"values": i[:2], "axis": i[2]},
    "FusedBatchNormV3": lambda i: dict(
        zip(("x", "scale", "offset", "mean", "variance"), i, strict=True)
    ),
}
NAMES = {
    "MatMul": ("a", "b"),
    "GatherV2": ("params", "indices", "axis"),
    "BiasAdd": ("value", "bias"),
    "SplitV": ("value", "size_splits", "axis"),
    "Transpose": ("x", "perm"),
    "Reshape": ("tensor", "shape"),
    "Sum": ("input", "axis"),
    "Mean": ("input", "axis"),
    "Conv2D": ("input", "filter"),
    "DepthwiseConv2dNative": ("input", "filter"),
    "AvgPool": ("value",),
    "MaxPool": ("input",),
    "Relu": ("features",),
    "Softmax": ("logits",),
}


def _run(op_type: str, inputs: list[Any], attributes: Any) -> list[Array]:
    if op_type in ARGUMENTS:
        named = ARGUMENTS[op_type](inputs)
    else:
        named = dict(zip(NAMES.get(op_type, ("x", "y")), inputs, strict=False))
    found = getattr(tf.raw_ops, op_type)(**named, **attributes)
    return [np.asarray(t) for t in (found if isinstance(found, (list, tuple)) else [found])]


def test_equations_hold_for_kernels_of_tensorflow() -> None:
    draw = random.Random(40)
    wrong = []
    with context.eager_mode():
        for each in properties():
            some = draw.sample(each.equations, min(len(each.equations), LEAST_EQUATIONS))
            for n, equation in enumerate(some):
                typing = infer(equation.left, equation.right, ranks=dict(equation.ranks))
                sides = (equation.left, equation.right)
                if not agree(*sides, typing, seed=n, trials=1, kind=InTensorFlow):
                    wrong.append(f"{each.name}: {equation}")
    assert not wrong, wrong
