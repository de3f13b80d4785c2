"""Rules: custom lowerings of operators whose kernel or gradient is not local to a split.

All other operators are emitted as the script's own operators, at local shapes, and TensorFlow's
registered gradients are right for them. Each rule says why its operator is an exception.
"""

from __future__ import annotations

import tensorflow as tf

from tensoropt.errors import DescriptionError
from tensoropt.execution.rules import classes, rows, spatial
from tensoropt.execution.rules.batch_norm import fused_batch_norm
from tensoropt.execution.rules.extrema import extremum, product
from tensoropt.execution.rules.within import Rule, Shards, SplitOperator
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.any_size import SizeError
from tensoropt.parallel.configuration import Configuration, gradient_is_local
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import Derivation, operator_type
from tensoropt.tdl.any_size import along_known
from tensoropt.tdl.ops.random import DRAWN

__all__ = [
    "RULES",
    "Rule",
    "Shards",
    "SplitOperator",
    "check_any_size",
    "local_operands",
    "lookup",
    "rule_of",
    "under",
]

RULES: dict[str, Rule] = {
    "average pool": spatial.average_pool,
    "batch norm": fused_batch_norm,
    "convolution": spatial.convolution,
    "cross entropy": classes.cross_entropy,
    "gather": rows.gather,
    "log softmax": classes.log_softmax,
    "max": extremum(tf.reduce_max, "max"),
    "max pool": spatial.max_pool,
    "min": extremum(tf.reduce_min, "min"),
    "product": product,
    "softmax": classes.softmax,
    "sparse cross entropy": classes.sparse_cross_entropy,
    "transposed convolution": spatial.transposed_convolution,
}
"""The rules by name. The record of an operator type has the name of its rule."""


def check_any_size(operator: Operator, strategy: Strategy) -> None:
    """Check that an operator's rule holds for all sizes that only a run decides.

    Raises:
        SizeError: if the rule needs known sizes, or the configuration splits an open extent.
    """
    derivation = strategy.derivations[operator.name]
    configuration = strategy.configurations[operator.name]
    shapes = (*derivation.input_shapes, *derivation.output_shapes)
    if operator.type in DRAWN or not any(-1 in shape for shape in shapes):
        return  # `random.draw_piece` draws at any size.
    promised = _is_promised(derivation, configuration)
    if not promised and lookup(operator, strategy) is None:
        return
    spelled = [
        strategy.mesh.pieces(axes) if index.spelled_out else 1
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    ]
    if not operator_type(operator.type).any_size_rule or not along_known(derivation, spelled):
        raise SizeError(f"{operator.name!r}, of type {operator.type}, is spelled out for its size.")


def lookup(operator: Operator, strategy: Strategy) -> Rule | None:
    """Return the rule for an operator under its configuration; None if it needs none.

    Raises:
        DescriptionError: if a description promises a split that has no rule.
    """
    derivation = strategy.derivations[operator.name]
    return rule_of(operator, derivation, strategy.configurations[operator.name], strategy.mesh)


def rule_of(
    operator: Operator, derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> Rule | None:
    """Return the rule for one operator, as `lookup` does."""
    promised = _is_promised(derivation, configuration)
    record = operator_type(operator.type)
    if promised and record.rows is not None:
        return None
    if promised and record.rule is None:
        raise DescriptionError(
            "a description spells out only splits that have a rule in tensoropt/execution/rules. "
            f"Got {operator.type} under {configuration.describe(derivation, mesh)}."
        )
    if promised or not gradient_is_local(derivation, configuration):
        return None if record.rule is None else RULES[record.rule]
    return None


def local_operands(world: World, operator: Operator, strategy: Strategy, inputs: Shards) -> Shards:
    """Return the inputs with which an operator's own kernel computes a rank's shard."""
    split = under(world, operator, strategy)
    numbers = operator_type(operator.type).rows
    if numbers is None or not _is_promised(split.derivation, split.configuration):
        return inputs
    return rows.own_slices(*numbers)(split, inputs)


def under(world: World, operator: Operator, strategy: Strategy) -> SplitOperator:
    """Return an operator under its configuration in a strategy."""
    name = operator.name
    return SplitOperator(world, operator, strategy.derivations[name], strategy.configurations[name])


def _is_promised(derivation: Derivation, configuration: Configuration) -> bool:
    """Whether a configuration splits an index that a description spells out, so needs a rule."""
    return any(
        axes and index.spelled_out
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    )
