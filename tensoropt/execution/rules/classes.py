"""Rules of softmax and cross entropies that are split over classes. Scores are never gathered.

Every rank has some classes of each row. The row's largest score and its sum of exponentials are
reduced over the ranks; all other operations are elementwise.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tensoropt.execution.rules.within import Rule, Shards, SplitOperator, allreduce, total
from tensoropt.execution.world.slices import rows_on

__all__ = ["cross_entropy", "log_softmax", "softmax", "sparse_cross_entropy"]


def _along_rows(result: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]) -> Rule:
    """Return the rule of an operator that is elementwise after the reductions of rows.

    Args:
        result: computes the output from the scores less their row's maximum, the exponentials of
            these, and the row's sum of exponentials.
    """

    def rule(split: SplitOperator, inputs: Shards) -> Shards:
        of_classes = split.derivation.outputs[0][-1]
        assert of_classes is not None, "a rule is for split classes"
        axes = split.configuration.splits[of_classes]
        shifted, exponentials = _shifted(split, inputs[0], axes)
        sums = _row_sums(split, exponentials, axes, gradient_is_partial=True)
        return [list(map(result, shifted, exponentials, sums))]

    return rule


softmax = _along_rows(lambda _, exponential, total_of_row: exponential / total_of_row)
log_softmax = _along_rows(lambda shifted, _, total_of_row: shifted - tf.math.log(total_of_row))


def cross_entropy(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower SoftmaxCrossEntropyWithLogits, which returns the loss and its gradient.

    The loss is the sum over classes of label * (log(sum of exponentials) - score).
    """
    features, labels = inputs
    return _cross_entropy(split, features, labels)


def sparse_cross_entropy(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower the sparse cross entropy as `cross_entropy`, with ones for a rank's own classes."""
    world, classes = split.world, split.derivation.input_shapes[0][-1]
    features, numbers = inputs
    labels = []
    for position, (shard, number) in enumerate(zip(features, numbers, strict=True)):
        rank = world.ranks[position]
        first, end = rows_on(world.mesh, rank, split.axes_of("c"), classes)
        local = number - tf.cast(first, number.dtype)
        # A row whose class is on another rank becomes zeros.
        labels.append(tf.one_hot(local, end - first, dtype=shard.dtype))
    return _cross_entropy(split, features, labels)


def _cross_entropy(
    split: SplitOperator, features: list[tf.Tensor], labels: list[tf.Tensor]
) -> Shards:
    axes = split.axes_of("c")
    shifted, exponentials = _shifted(split, features, axes)
    sums = _row_sums(split, exponentials, axes, gradient_is_partial=False)
    losses = []
    # Every rank computes the same loss. So the gradients of the loss and of sums are replicated.
    marked = [tf.reduce_sum(y * x, -1) for y, x in zip(labels, shifted, strict=True)]
    weights = [
        tf.reduce_sum(y + tf.zeros_like(x), -1) for y, x in zip(labels, shifted, strict=True)
    ]
    both = [tf.stack([m, w]) for m, w in zip(marked, weights, strict=True)]
    label = f"{split.operator.name}/labels"
    both = total(split.world, both, axes, label, gradient_is_partial=False)
    for pair, s in zip(both, sums, strict=True):
        losses.append(tf.math.log(s[..., 0]) * pair[1] - pair[0])
    gradients = [
        tf.stop_gradient(e / s - y) for e, s, y in zip(exponentials, sums, labels, strict=True)
    ]
    return [losses, gradients]


def _shifted(
    split: SplitOperator, scores: list[tf.Tensor], axes: tuple[int, ...]
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Return the scores less their row's maximum, and the exponentials of these differences."""
    local = [tf.reduce_max(shard, -1, keepdims=True) for shard in scores]
    largest = allreduce(split.world, local, axes, "max", f"{split.operator.name}/max")
    shifted = [shard - m for shard, m in zip(scores, largest, strict=True)]
    return shifted, [tf.exp(shard) for shard in shifted]


def _row_sums(
    split: SplitOperator,
    exponentials: list[tf.Tensor],
    axes: tuple[int, ...],
    *,
    gradient_is_partial: bool,
) -> list[tf.Tensor]:
    local = [tf.reduce_sum(shard, -1, keepdims=True) for shard in exponentials]
    label = f"{split.operator.name}/sum"
    return total(split.world, local, axes, label, gradient_is_partial=gradient_is_partial)
