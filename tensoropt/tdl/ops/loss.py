"""Softmax and cross entropies: opaque over the classes."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Expression, Opaque, Operand
from tensoropt.tdl.registry import describe

__all__: list[str] = []

WHOLE = slice(None)


def _along_classes(name: str, logits: Operand) -> Any:
    def element(*i: Expression) -> Expression:
        row = (*i[:-1], WHOLE)
        return Opaque(name)(logits[row])[i[-1]]

    return element


@describe("Softmax")
def softmax(logits: Operand) -> Any:
    return _along_classes("Softmax", logits)


@describe("LogSoftmax")
def log_softmax(logits: Operand) -> Any:
    return _along_classes("LogSoftmax", logits)


@describe("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(features: Operand, labels: Operand) -> Any:
    """Loss and its gradient by the features; either input may have a batch of 1.

    The registered gradient of an input so broadcast has the wrong shape, split or not.
    """
    entropy = Opaque("SoftmaxCrossEntropy")

    def call(b: Any) -> Any:
        return entropy(*(x[0 if x.shape[0] == 1 else b, WHOLE] for x in (features, labels)))

    return lambda b: call(b), lambda b, c: call(b)[c]


@describe("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(features: Operand, labels: Operand) -> Any:
    entropy = Opaque("SparseSoftmaxCrossEntropy")
    return (
        lambda b: entropy(features[b, WHOLE], labels[b]),
        lambda b, c: entropy(features[b, WHOLE], labels[b])[c],
    )
