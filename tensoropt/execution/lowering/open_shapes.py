"""Emission of tensors with open extents: -1 in a graph's shapes, which only a run decides.

A program for all sizes contains no number that follows from one size. A run computes the shapes of
whole tensors, as the script does. The shape of a device's piece follows from them, since all pieces
are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.execution import rules
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.any_size import check_steps, for_any_size
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.strategy import Strategy

__all__ = [
    "checked_for_any_size",
    "known_shapes",
    "local_operand",
    "plans_at",
    "static_shape",
    "whole_shapes",
]

Shape = tuple[int, ...]


def checked_for_any_size(strategy: Strategy, graph: Graph, other: Strategy) -> Strategy:
    """Return a strategy for any size, as `for_any_size` does, after a check of operators' rules."""
    opened = for_any_size(strategy, graph, other)
    for operator in graph:
        rules.check_any_size(operator, opened)
    return opened


def known_shapes(graph: Graph, at: Graph) -> dict[Shape, Shape]:
    """Return for each shape with open extents a shape that occurs in the graph at known sizes.

    Args:
        graph: the graph with open extents.
        at: the same graph at known sizes.
    """
    shapes: dict[Shape, Shape] = {}
    for operator in graph:
        for spec, known in zip(operator.outputs, at[operator.name].outputs, strict=True):
            if -1 in spec.shape:
                shapes.setdefault(spec.shape, known.shape)
    return shapes


def plans_at(plan_steps: PlanSteps, sizes: Mapping[Shape, Shape], mesh: Mesh) -> PlanSteps:
    """Return a function that plans reshardings, also of tensors with open extents.

    Args:
        plan_steps: plans a resharding of a tensor of known shape.
        sizes: known shapes with which to plan, by open shape. If there is none, an open extent is
            planned as the number of its pieces.
        mesh: the devices.
    """

    def planned(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        if -1 not in shape:
            return plan_steps(shape, dtype, source, target)
        known = sizes.get(tuple(shape), ())
        # An extent that depends on values is open even if all fed sizes are known.
        is_even = known and not (source.uneven_dims(known, mesh) or target.uneven_dims(known, mesh))
        if -1 in known or not is_even:
            dims = zip(shape, source.dims, target.dims, strict=True)
            known = tuple(
                mesh.pieces(tuple({*before, *after})) if extent < 0 else extent
                for extent, before, after in dims
            )
        steps = plan_steps(known, dtype, source, target)
        check_steps(steps, shape, source, target)
        return steps

    return planned


def static_shape(shape: Sequence[int]) -> list[int | None]:
    """Return a shape as TensorFlow writes it, with None for open extents."""
    return [None if extent < 0 else extent for extent in shape]


def whole_shapes(
    operator: Operator, shards: Sequence[tf.Tensor], layouts: Sequence[Layout], mesh: Mesh
) -> list[tf.Tensor]:
    """Emit Shape, ShapeN or Size of whole tensors, from a device's pieces.

    Args:
        operator: an operator of `tensoropt.parallel.any_size.SHAPE_TYPES`.
        shards: a device's shard of each tensor that the operator reads.
        layouts: the layouts of these tensors.
        mesh: the devices.
    """
    dtype = tf.as_dtype(operator.outputs[0].dtype)
    results = []
    for shard, layout, spec in zip(shards, layouts, operator.input_specs, strict=True):
        if -1 not in spec.shape and layout.uneven_dims(spec.shape, mesh):
            shape = tf.constant(spec.shape, dtype)
            results.append(tf.reduce_prod(shape) if operator.type == "Size" else shape)
            continue
        pieces = [mesh.pieces(axes) for axes in layout.dims]
        shape = tf.shape(shard, dtype)
        if any(count > 1 for count in pieces):
            shape = shape * tf.constant(pieces, dtype)
        results.append(tf.reduce_prod(shape) if operator.type == "Size" else shape)
    return results


def local_operand(whole: tf.Tensor, local: Sequence[int], layout: Layout, mesh: Mesh) -> tf.Tensor:
    """Return an operand that is the shape of a tensor, for a piece of the tensor.

    Args:
        whole: the operand for the whole tensor; it may have -1 for one extent that follows from
            the number of elements.
        local: the piece's shape, with -1 for unknown extents.
        layout: the layout of the operator's output.
        mesh: the devices.
    """
    extents = [
        tf.constant(extent, whole.dtype) if extent >= 0 else whole[dim] // mesh.pieces(axes)
        for dim, (extent, axes) in enumerate(zip(local, layout.dims, strict=True))
    ]
    return tf.stack(extents)
