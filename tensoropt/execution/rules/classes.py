"""Rules of softmax and cross entropies that are split over classes. Scores are never gathered.

Every rank has some classes of each row. The row's largest score and its sum of exponentials are
reduced over the ranks; all other operations are elementwise.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tensoropt.execution.rules.within import Rule, Shards, allreduce, axes_of, total
from tensoropt.execution.world.slices import rows_on
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.tdl import Derivation

__all__ = ["cross_entropy", "log_softmax", "softmax", "sparse_cross_entropy"]


def _along_rows(result: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]) -> Rule:
    """Return the rule of an operator that is elementwise after the reductions of rows.

    Args:
        result: computes the output from the scores less their row's maximum, the exponentials of
            these, and the row's sum of exponentials.
    """

    def rule(
        world: World,
        operator: Operator,
        derivation: Derivation,
        configuration: Configuration,
        inputs: Shards,
    ) -> Shards:
        of_classes = derivation.outputs[0][-1]
        assert of_classes is not None, "a rule is for split classes"
        axes = configuration.splits[of_classes]
        shifted, exponentials = _shifted(world, inputs[0], axes, operator.name)
        sums = _row_sums(world, exponentials, axes, operator.name, gradient_is_partial=True)
        return [list(map(result, shifted, exponentials, sums))]

    return rule


softmax = _along_rows(lambda _, exponential, total_of_row: exponential / total_of_row)
log_softmax = _along_rows(lambda shifted, _, total_of_row: shifted - tf.math.log(total_of_row))


def cross_entropy(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """Lower SoftmaxCrossEntropyWithLogits, which returns the loss and its gradient.

    The loss is the sum over classes of label * (log(sum of exponentials) - score).
    """
    axes = axes_of(derivation, configuration, "c")
    features, labels = inputs
    return _cross_entropy(world, features, labels, axes, operator.name)


def sparse_cross_entropy(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """Lower the sparse cross entropy as `cross_entropy`, with ones for a rank's own classes."""
    axes = axes_of(derivation, configuration, "c")
    features, numbers = inputs
    labels = []
    for position, (shard, number) in enumerate(zip(features, numbers, strict=True)):
        rank = world.ranks[position]
        first, end = rows_on(world.mesh, rank, axes, derivation.input_shapes[0][-1])
        local = number - tf.cast(first, number.dtype)
        # A row whose class is on another rank becomes zeros.
        labels.append(tf.one_hot(local, end - first, dtype=shard.dtype))
    return _cross_entropy(world, features, labels, axes, operator.name)


def _cross_entropy(
    world: World,
    features: list[tf.Tensor],
    labels: list[tf.Tensor],
    axes: tuple[int, ...],
    label: str,
) -> Shards:
    shifted, exponentials = _shifted(world, features, axes, label)
    sums = _row_sums(world, exponentials, axes, label, gradient_is_partial=False)
    losses = []
    # Every rank computes the same loss. So the gradients of the loss and of sums are replicated.
    marked = [tf.reduce_sum(y * x, -1) for y, x in zip(labels, shifted, strict=True)]
    weights = [
        tf.reduce_sum(y + tf.zeros_like(x), -1) for y, x in zip(labels, shifted, strict=True)
    ]
    both = [tf.stack([m, w]) for m, w in zip(marked, weights, strict=True)]
    both = total(world, both, axes, f"{label}/labels", gradient_is_partial=False)
    for pair, s in zip(both, sums, strict=True):
        losses.append(tf.math.log(s[..., 0]) * pair[1] - pair[0])
    gradients = [
        tf.stop_gradient(e / s - y) for e, s, y in zip(exponentials, sums, labels, strict=True)
    ]
    return [losses, gradients]


def _shifted(
    world: World, scores: list[tf.Tensor], axes: tuple[int, ...], label: str
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Return the scores less their row's maximum, and the exponentials of these differences."""
    local = [tf.reduce_max(shard, -1, keepdims=True) for shard in scores]
    largest = allreduce(world, local, axes, "max", f"{label}/max")
    shifted = [shard - m for shard, m in zip(scores, largest, strict=True)]
    return shifted, [tf.exp(shard) for shard in shifted]


def _row_sums(
    world: World,
    exponentials: list[tf.Tensor],
    axes: tuple[int, ...],
    label: str,
    *,
    gradient_is_partial: bool,
) -> list[tf.Tensor]:
    local = [tf.reduce_sum(shard, -1, keepdims=True) for shard in exponentials]
    return total(world, local, axes, f"{label}/sum", gradient_is_partial=gradient_is_partial)
