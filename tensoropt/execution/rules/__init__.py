"""Emissions spelled out: operators whose kernel or gradient is not local to a split.

Everything else is emitted as the script's own operator at local shapes, and TensorFlow's
registered gradient is right there. Here are the exceptions, each with its reason.
"""

from __future__ import annotations

import tensorflow as tf

from tensoropt.errors import DescriptionError
from tensoropt.execution.rules import classes, spatial
from tensoropt.execution.rules.batch_norm import fused_batch_norm
from tensoropt.execution.rules.extrema import extremum, product
from tensoropt.execution.rules.within import Pieces, Rule
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import gradient_is_local
from tensoropt.parallel.strategy import Strategy

__all__ = ["Pieces", "Rule", "lookup"]

_RULES: dict[str, Rule] = {
    "AvgPool": spatial.average_pool,
    "AvgPool3D": spatial.average_pool,
    "Conv2D": spatial.convolution,
    "Conv2DBackpropInput": spatial.transposed_convolution,
    "Conv3D": spatial.convolution,
    "Conv3DBackpropInputV2": spatial.transposed_convolution,
    "DepthwiseConv2dNative": spatial.convolution,
    "DepthwiseConv2dNativeBackpropInput": spatial.transposed_convolution,
    "FusedBatchNorm": fused_batch_norm,
    "FusedBatchNormV2": fused_batch_norm,
    "FusedBatchNormV3": fused_batch_norm,
    "LogSoftmax": classes.log_softmax,
    "Max": extremum(tf.reduce_max, "max"),
    "MaxPool": spatial.max_pool,
    "MaxPool3D": spatial.max_pool,
    "MaxPoolV2": spatial.max_pool,
    "Min": extremum(tf.reduce_min, "min"),
    "Prod": product,
    "Softmax": classes.softmax,
    "SoftmaxCrossEntropyWithLogits": classes.cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": classes.sparse_cross_entropy,
}


def lookup(operator: Operator, strategy: Strategy) -> Rule | None:
    """The rule for an operator under its configuration, None where it is emitted as it is.

    Raises:
        DescriptionError: if a description promises a split that no rule spells out.
    """
    derivation = strategy.derivations[operator.name]
    configuration = strategy.configurations[operator.name]
    promised = any(
        axes and index.spelled_out
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    )
    if promised and operator.type not in _RULES:
        raise DescriptionError(
            f"a split that is spelled out has a rule in tensoropt/execution/rules. Got "
            f"{operator.type} under {configuration.describe(derivation, strategy.mesh)}."
        )
    if promised or not gradient_is_local(derivation, configuration):
        return _RULES.get(operator.type)
    return None
