"""Emissions spelled out: operators whose kernel or gradient is not local to a split.

The rest is emitted as the script's own operator at local shapes, and TensorFlow's registered
gradient is right there. Here are the exceptions, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.execution.pieces import reduce_pieces
from tensoropt.execution.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import Derivation

__all__ = ["Rule", "lookup"]

Rule = Callable[
    [World, Operator, Derivation, Configuration, list[list[tf.Tensor]]], list[tf.Tensor]
]


def lookup(operator: Operator, strategy: Strategy) -> Rule | None:
    """The rule for an operator under its configuration, None where it is emitted as it is."""
    derivation = strategy.derivations[operator.name]
    configuration = strategy.configurations[operator.name]
    if not _reduced_axes(derivation, configuration):
        return None
    return _REDUCTIONS.get(operator.type)


def _reduced_axes(derivation: Derivation, configuration: Configuration) -> tuple[int, ...]:
    return tuple(
        axis
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if index.reducer is not None
        for axis in axes
    )


def _reduction_arguments(operator: Operator) -> dict[str, Any]:
    value = operator.input_specs[1].value
    assert value is not None, "a reduction is split only where its axes are known"
    return {
        "axis": [int(axis) for axis in value.reshape(-1)],
        "keepdims": bool(operator.attributes.get("keep_dims", False)),
    }


def _extremum(reduce: Callable[..., tf.Tensor], reducer: str) -> Rule:
    """Max and Min: their gradient shares the upstream among ties, which may lie on other ranks."""

    def rule(
        world: World,
        operator: Operator,
        derivation: Derivation,
        configuration: Configuration,
        inputs: list[list[tf.Tensor]],
    ) -> list[tf.Tensor]:
        axes = _reduced_axes(derivation, configuration)
        arguments = _reduction_arguments(operator)
        kept = {**arguments, "keepdims": True}

        def function(*pieces: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
                local = [reduce(piece, **kept) for piece in pieces]
                best = _allreduce(world, local, axes, reducer, operator.name)
                ties = [
                    tf.cast(tf.equal(piece, top), piece.dtype)
                    for piece, top in zip(pieces, best, strict=True)
                ]
                counts = [tf.reduce_sum(tie, **kept) for tie in ties]
                totals = _allreduce(world, counts, axes, "sum", operator.name)
                return [
                    tie / total * tf.reshape(dy, total.shape)
                    for tie, total, dy in zip(ties, totals, upstream, strict=True)
                ]

            return [reduce(piece, **arguments) for piece in pieces], gradient

        return _as_list(tf.custom_gradient(function)(*inputs[0]))

    return rule


def _prod(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: list[list[tf.Tensor]],
) -> list[tf.Tensor]:
    """A local product's gradient lacks the factors of the other ranks."""
    axes = _reduced_axes(derivation, configuration)
    arguments = _reduction_arguments(operator)

    def scaled(*products: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            others = _products_of_others(world, list(products), axes, operator.name)
            return [dy * other for dy, other in zip(upstream, others, strict=True)]

        return [tf.identity(product) for product in products], gradient

    local = [tf.reduce_prod(piece, **arguments) for piece in inputs[0]]
    return _as_list(tf.custom_gradient(scaled)(*local))


def _products_of_others(
    world: World, products: list[tf.Tensor], axes: tuple[int, ...], label: str
) -> list[tf.Tensor]:
    """On each rank the product of the group's other ranks' values (no division: zeros occur)."""
    stacked = [tf.expand_dims(product, 0) for product in products]
    rank = len(products[0].shape)
    source = Layout((axes, *((),) * rank))
    step = ReshardStep("allgather", axes, source, Layout.replicated(rank + 1), from_dim=0)
    everyone = world.reshard(stacked, (step,), f"{label}/factors")
    others = []
    for position, values in enumerate(everyone):
        own = world.mesh.piece(world.ranks[position], axes)
        parts = [values[k] for k in range(world.mesh.pieces(axes)) if k != own]
        others.append(reduce_pieces(parts, "prod"))
    return others


def _allreduce(
    world: World, pieces: list[tf.Tensor], axes: tuple[int, ...], reducer: str, label: str
) -> list[tf.Tensor]:
    whole = Layout.replicated(len(pieces[0].shape))
    source = Layout(whole.dims, axes, reducer)
    step = ReshardStep("allreduce", axes, source, whole, reducer=reducer)
    return world.reshard(pieces, (step,), f"{label}/{reducer}")


def _as_list(tensors: Any) -> list[tf.Tensor]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


_REDUCTIONS: dict[str, Rule] = {
    "Max": _extremum(tf.reduce_max, "max"),
    "Min": _extremum(tf.reduce_min, "min"),
    "Prod": _prod,
}
