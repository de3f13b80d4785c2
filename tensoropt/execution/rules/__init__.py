"""Custom lowerings: operators whose kernel or gradient is not local to a split.

Everything else is emitted as the script's own operator at local shapes, and TensorFlow's
registered gradient is right there. Here are the exceptions, each with its reason.
"""

from __future__ import annotations

import tensorflow as tf

from tensoropt.errors import DescriptionError
from tensoropt.execution.rules import classes, rows, spatial
from tensoropt.execution.rules.batch_norm import fused_batch_norm
from tensoropt.execution.rules.extrema import extremum, product
from tensoropt.execution.rules.random import TYPES
from tensoropt.execution.rules.within import Rule, Shards
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.any_size import SizeError
from tensoropt.parallel.configuration import Configuration, gradient_is_local
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import Derivation
from tensoropt.tdl.any_size import along_known
from tensoropt.tdl.ops.state import SPARSE_UPDATES

__all__ = ["Rule", "Shards", "check_any_size", "local_operands", "lookup", "rule_of"]

_RULES: dict[str, Rule] = {
    "AvgPool": spatial.average_pool,
    "AvgPool3D": spatial.average_pool,
    "Conv2D": spatial.convolution,
    "Conv2DBackpropInput": spatial.transposed_convolution,
    "Conv3D": spatial.convolution,
    "Conv3DBackpropInputV2": spatial.transposed_convolution,
    "DepthwiseConv2dNative": spatial.convolution,
    "DepthwiseConv2dNativeBackpropInput": spatial.transposed_convolution,
    "Dilation2D": spatial.convolution,
    "FusedBatchNorm": fused_batch_norm,
    "FusedBatchNormV2": fused_batch_norm,
    "FusedBatchNormV3": fused_batch_norm,
    "Gather": rows.gather,
    "GatherV2": rows.gather,
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

# Operators whose own kernel does a split shard, once it is given other operands.
_OPERANDS: dict[str, Rule] = {
    **{
        f"{form}SparseApply{name}": rows.own_slices(slices, slices + 1)
        for name, slices in SPARSE_UPDATES.items()
        for form in ("", "Resource")
    },
    **{
        f"{form}Scatter{name}": rows.own_slices(2, 1)
        for name in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Update")
        for form in ("", "Resource")
    },
}


# Rules that hold whatever the extents of dimensions that they do not split.
_ANY_SIZE = frozenset(
    {"Gather", "GatherV2", "LogSoftmax", "Softmax", *_OPERANDS}
    | {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}
)


def check_any_size(operator: Operator, strategy: Strategy) -> None:
    """See that a custom lowering holds for all sizes that only a run decides.

    Raises:
        SizeError: if it does not say so, or splits what is of such a size.
    """
    derivation = strategy.derivations[operator.name]
    configuration = strategy.configurations[operator.name]
    shapes = (*derivation.input_shapes, *derivation.output_shapes)
    if operator.type in TYPES or not any(-1 in shape for shape in shapes):
        return  # what is drawn: see `random.draw_piece`
    promised = _is_promised(derivation, configuration)
    if not promised and lookup(operator, strategy) is None:
        return
    spelled = [
        strategy.mesh.pieces(axes) if index.spelled_out else 1
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    ]
    if operator.type not in _ANY_SIZE or not along_known(derivation, spelled):
        raise SizeError(f"{operator.name!r}, of type {operator.type}, is spelled out for its size.")


def lookup(operator: Operator, strategy: Strategy) -> Rule | None:
    """The rule for an operator under its configuration, None where it is emitted as it is.

    Raises:
        DescriptionError: if a description promises a split that has no rule.
    """
    derivation = strategy.derivations[operator.name]
    return rule_of(operator, derivation, strategy.configurations[operator.name], strategy.mesh)


def rule_of(
    operator: Operator, derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> Rule | None:
    """The same for one operator by itself."""
    promised = _is_promised(derivation, configuration)
    if promised and operator.type in _OPERANDS:
        return None
    if promised and operator.type not in _RULES:
        raise DescriptionError(
            f"a split that is spelled out has a rule in tensoropt/execution/rules. Got "
            f"{operator.type} under {configuration.describe(derivation, mesh)}."
        )
    if promised or not gradient_is_local(derivation, configuration):
        return _RULES.get(operator.type)
    return None


def local_operands(world: World, operator: Operator, strategy: Strategy, inputs: Shards) -> Shards:
    """The inputs with which an operator's own kernel does a rank's shard."""
    derivation = strategy.derivations[operator.name]
    configuration = strategy.configurations[operator.name]
    if operator.type not in _OPERANDS or not _is_promised(derivation, configuration):
        return inputs
    return _OPERANDS[operator.type](world, operator, derivation, configuration, inputs)


def _is_promised(derivation: Derivation, configuration: Configuration) -> bool:
    """Whether a split needs a custom lowering."""
    return any(
        axes and index.spelled_out
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    )
