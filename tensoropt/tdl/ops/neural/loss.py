"""Softmax and cross entropies.

TensorFlow's kernels need whole rows. To split the classes, a lowering rule of
`tensoropt.execution.rules` computes rows in pieces: it reduces the rows' maxima and sums of
exponentials over the pieces, and does not gather the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.derivation import InnerCollective
from tensoropt.tdl.expression import Expression, Opaque, Operand, Sum, elementwise
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

WHOLE = slice(None)

_exp = elementwise("exp")
_log = elementwise("log")
_Shapes = Sequence[tuple[int, ...]]


def _softmax_collectives(
    split: frozenset[str], inputs: _Shapes, outputs: _Shapes
) -> list[InnerCollective]:
    """Maxima and sums forward, one sum backward."""
    del split, inputs
    return [InnerCollective("allreduce", prod(outputs[0][:-1]), 3, backward=1)]


def _entropy_collectives(
    split: frozenset[str], inputs: _Shapes, outputs: _Shapes
) -> list[InnerCollective]:
    """Maxima, sums of exponentials and the labels' scores forward; nothing backward."""
    del split, inputs
    return [InnerCollective("allreduce", prod(outputs[0]), 3)]


def _five_per_score(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    """Five operations per score; the description would repeat a row's sum for every element."""
    del outputs
    return 5 * inputs[0].elements


_of_scores = partial(describe, flops=_five_per_score, any_size=by_index)
_of_softmax = partial(_of_scores, spelled_out=(-1,), inner_collectives=_softmax_collectives)
_of_entropy = partial(_of_scores, spelled_out=("c",), inner_collectives=_entropy_collectives)


def _sum_of_exponentials(logits: Operand, row: Sequence[Expression | int]) -> Expression:
    return Sum(lambda j: _exp(logits.at(*row, j)), j=logits.shape[-1])


@_of_softmax("Softmax")
def softmax(logits: Operand) -> Any:
    return lambda *i: _exp(logits[i]) / _sum_of_exponentials(logits, i[:-1])


@_of_softmax("LogSoftmax")
def log_softmax(logits: Operand) -> Any:
    return lambda *i: logits[i] - _log(_sum_of_exponentials(logits, i[:-1]))


@_of_scores(
    "SoftmaxCrossEntropyWithLogits", spelled_out=("c",), inner_collectives=_entropy_collectives
)
def softmax_cross_entropy(features: Operand, labels: Operand) -> Any:
    """The loss and its gradient by the features; either input may have a batch of 1.

    TensorFlow's registered gradient by an input with a batch of 1 has the wrong shape.
    """

    def row(x: Operand, b: Any) -> Any:
        return 0 if x.shape[0] == 1 else b

    def total(b: Any) -> Expression:
        return _sum_of_exponentials(features, (row(features, b),))

    def loss(b: Any) -> Expression:
        return Sum(
            lambda k: labels[row(labels, b), k] * (_log(total(b)) - features[row(features, b), k])
        )

    def gradient(b: Any, c: Any) -> Expression:
        return _exp(features[row(features, b), c]) / total(b) - labels[row(labels, b), c]

    return lambda b: loss(b), lambda b, c: gradient(b, c)


@_of_scores(
    "SparseSoftmaxCrossEntropyWithLogits",
    spelled_out=("c",),
    inner_collectives=_entropy_collectives,
)
def sparse_softmax_cross_entropy(features: Operand, labels: Operand) -> Any:
    """The loss and its gradient by the features; a label is the number of a class."""
    score = Opaque("score")
    marked = Opaque("marked")

    def total(b: Any) -> Expression:
        return _sum_of_exponentials(features, (b,))

    return (
        lambda b: _log(total(b)) - score(features[b, WHOLE], labels[b]),
        lambda b, c: _exp(features[b, c]) / total(b) - marked(labels[b]),
    )


_with_rule = partial(OperatorType, any_size_rule=True, uneven_rule=True)
_of_entropies = partial(_with_rule, overwrites=((0, 1),), outputs_for_gradient=True)
record("LogSoftmax", facts=_with_rule(overwrites=((0, 0),), rule="log softmax"))
record("Softmax", facts=_with_rule(overwrites=((0, 0),), onednn=True, rule="softmax"))
record("SoftmaxCrossEntropyWithLogits", facts=_of_entropies(rule="cross entropy"))
record("SparseSoftmaxCrossEntropyWithLogits", facts=_of_entropies(rule="sparse cross entropy"))
