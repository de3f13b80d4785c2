"""Emission with open extents, which only a run decides (-1 in a graph's shapes).

A program for all sizes contains no number that follows from one size. The run computes the shapes
that the script computes, for whole tensors; the shape of a device's piece follows from them, since
pieces are equal.
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
    """See `for_any_size`; checks the rules of operators, too."""
    opened = for_any_size(strategy, graph, other)
    for operator in graph:
        rules.check_any_size(operator, opened)
    return opened


def known_shapes(graph: Graph, at: Graph) -> dict[Shape, Shape]:
    """For each shape with open extents the first that occurs in the graph at known sizes."""
    found: dict[Shape, Shape] = {}
    for operator in graph:
        for spec, known in zip(operator.outputs, at[operator.name].outputs, strict=True):
            if -1 in spec.shape:
                found.setdefault(spec.shape, known.shape)
    return found


def plans_at(plan_steps: PlanSteps, sizes: Mapping[Shape, Shape], mesh: Mesh) -> PlanSteps:
    """A planner of reshardings, also of tensors with open extents.

    Args:
        plan_steps: plans a resharding of a tensor of known shape.
        sizes: by open shape a known one to plan with; without one, an open extent is taken as the
            number of its pieces.
        mesh: the devices.
    """

    def planned(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        if -1 not in shape:
            return plan_steps(shape, dtype, source, target)
        known = sizes.get(tuple(shape), ())
        # An extent that depends on values, not on sizes alone, is open at known sizes, too.
        if -1 in known or not (source.fits(known, mesh) and target.fits(known, mesh)):
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
    """A shape as TensorFlow has it."""
    return [None if extent < 0 else extent for extent in shape]


def whole_shapes(
    operator: Operator, shards: Sequence[tf.Tensor], layouts: Sequence[Layout], mesh: Mesh
) -> list[tf.Tensor]:
    """The outputs of Shape, ShapeN or Size of whole tensors, from a device's pieces of them.

    Args:
        operator: an operator of `tensoropt.parallel.any_size.SHAPE_TYPES`.
        shards: a device's shard of each tensor that it reads.
        layouts: the layouts of these tensors.
        mesh: the devices.
    """
    dtype = tf.as_dtype(operator.outputs[0].dtype)
    found = []
    for shard, layout in zip(shards, layouts, strict=True):
        pieces = [mesh.pieces(axes) for axes in layout.dims]
        shape = tf.shape(shard, dtype)
        if any(count > 1 for count in pieces):
            shape = shape * tf.constant(pieces, dtype)
        found.append(tf.reduce_prod(shape) if operator.type == "Size" else shape)
    return found


def local_operand(whole: tf.Tensor, local: Sequence[int], layout: Layout, mesh: Mesh) -> tf.Tensor:
    """An operand that is a shape, for a piece.

    Args:
        whole: the operand for the whole tensor; -1 for an extent that follows from the others.
        local: the piece's shape as far as it is known.
        layout: of what the operator makes.
        mesh: the devices.
    """
    extents = [
        tf.constant(extent, whole.dtype) if extent >= 0 else whole[dim] // mesh.pieces(axes)
        for dim, (extent, axes) in enumerate(zip(local, layout.dims, strict=True))
    ]
    return tf.stack(extents)
