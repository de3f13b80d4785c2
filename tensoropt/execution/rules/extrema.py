"""Rules of Max, Min and Prod split along reduced dimensions: their gradients are not local."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.execution.rules.within import Rule, Shards, SplitOperator, allreduce
from tensoropt.graph.operator import Operator
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep

__all__ = ["extremum", "product"]


def _reduction_arguments(operator: Operator) -> dict[str, Any]:
    value = operator.input_specs[1].value
    assert value is not None, "a reduction is split only where its axes are known"
    return {
        "axis": [int(axis) for axis in value.reshape(-1)],
        "keepdims": bool(operator.attributes.get("keep_dims", False)),
    }


def extremum(reduce: Callable[..., tf.Tensor], reducer: str) -> Rule:
    """Return the rule of Max or Min. Tied elements, also on other ranks, share the gradient."""

    def rule(split: SplitOperator, inputs: Shards) -> Shards:
        world, axes, label = split.world, split.reduced_axes, split.operator.name
        arguments = _reduction_arguments(split.operator)
        kept = {**arguments, "keepdims": True}

        def function(*shards: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
                local = [reduce(shard, **kept) for shard in shards]
                best = allreduce(world, local, axes, reducer, label)
                ties = [
                    tf.cast(tf.equal(shard, top), shard.dtype)
                    for shard, top in zip(shards, best, strict=True)
                ]
                counts = [tf.reduce_sum(tie, **kept) for tie in ties]
                totals = allreduce(world, counts, axes, "sum", label)
                return [
                    tie / total * tf.reshape(dy, total.shape)
                    for tie, total, dy in zip(ties, totals, upstream, strict=True)
                ]

            return [reduce(shard, **arguments) for shard in shards], gradient

        return [_as_list(tf.custom_gradient(function)(*inputs[0]))]

    return rule


def product(split: SplitOperator, inputs: Shards) -> Shards:
    """Lower Prod: the gradient of a local product is multiplied by the products of other ranks."""
    arguments = _reduction_arguments(split.operator)

    def scaled(*products: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            others = _products_of_others(split, list(products))
            return [dy * other for dy, other in zip(upstream, others, strict=True)]

        return [tf.identity(product) for product in products], gradient

    local = [tf.reduce_prod(shard, **arguments) for shard in inputs[0]]
    return [_as_list(tf.custom_gradient(scaled)(*local))]


def _products_of_others(split: SplitOperator, products: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return on each rank the product of the other ranks' values. Zeros rule out a division."""
    world, axes = split.world, split.reduced_axes
    stacked = [tf.expand_dims(product, 0) for product in products]
    rank = len(products[0].shape)
    source = Layout((axes, *((),) * rank))
    step = ReshardStep("allgather", axes, source, Layout.replicated(rank + 1), from_dim=0)
    gathered = world.reshard(stacked, (step,), f"{split.operator.name}/factors")
    results = []
    for position, values in enumerate(gathered):
        piece = world.mesh.piece(world.ranks[position], axes)
        factors = [values[k] for k in range(world.mesh.pieces(axes)) if k != piece]
        results.append(functools.reduce(tf.multiply, factors))
    return results


def _as_list(tensors: Any) -> list[tf.Tensor]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
