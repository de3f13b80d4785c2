"""Strategies that hold for all sizes of dimensions that only a run decides.

A graph may leave extents open (-1) that differ from run to run, as the length of padded sequences
does. What TensorFlow's shape inference says of such a graph holds for all sizes, and so does what
is folded. Configurations need numbers, so they are found at the sizes of one run, and kept where
they are shown not to depend on these: by induction over the operators every device has an equal
piece of each tensor at every size. A placeholder is split along known dimensions only; an operator
that is split is described so that it makes pieces of pieces (`tensoropt.tdl.any_size`); and no
resharding cuts along an open dimension in another way than its tensor was made.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensoropt.errors import TensorOptError
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import Derivation, types_with
from tensoropt.tdl.any_size import along_known
from tensoropt.tdl.registry import find
from tensoropt.tensor_spec import TensorSpec

__all__ = ["SHAPE_TYPES", "SizeError", "check_steps", "for_any_size", "sized"]

Shape = tuple[int, ...]

SHAPE_TYPES = types_with(role="reads shapes") - {"Rank"}
"""Types of operators whose outputs a device can compute from the shape of its piece. A rank is
known before a run."""

_LEAST = 2  # a dimension of one element is broadcast


class SizeError(TensorOptError):
    """A strategy is not shown to hold for all sizes."""


def sized(graph: Graph, shapes: Mapping[str, Sequence[Shape]]) -> Graph:
    """A graph at the sizes of one run; what depends on them has no value.

    Args:
        graph: with open dimensions.
        shapes: by operator those of its outputs, of the operators that have open ones.

    Raises:
        SizeError: if how many dimensions a tensor has depends on sizes, or one is too small to
            stand for others.
    """
    found: dict[str, Operator] = {}
    for operator in graph:
        outputs = operator.outputs
        if operator.name in shapes:
            pairs = zip(outputs, shapes[operator.name], strict=True)
            outputs = tuple(_at(spec, shape, operator) for spec, shape in pairs)
        inputs = tuple(found[name.operator].outputs[name.index] for name in operator.inputs)
        found[operator.name] = replace(operator, input_specs=inputs, outputs=outputs)
    return Graph(found)


def _at(spec: TensorSpec, shape: Shape, operator: Operator) -> TensorSpec:
    if len(spec.shape) != len(shape):
        raise SizeError(f"{operator.name!r} has {len(shape)} dimensions at one size.")
    pairs = zip(spec.shape, shape, strict=True)
    if any(known < 0 <= extent < _LEAST for known, extent in pairs):
        raise SizeError(f"{operator.name!r} has shape {shape} at one size.")
    return TensorSpec(shape, spec.dtype, spec.value)


def for_any_size(strategy: Strategy, graph: Graph, other: Strategy) -> Strategy:
    """A strategy of a graph with open dimensions, from one at the sizes of a run.

    Args:
        strategy: of the graph `sized`.
        graph: with open dimensions.
        other: at other sizes, which is to split operators alike.

    Raises:
        SizeError: if it is not shown to hold for all sizes.
    """
    opened = copy.copy(strategy)
    opened.graph = graph
    opened.derivations = {op.name: _opened(strategy.derivations[op.name], op) for op in graph}
    for operator in graph:
        name = operator.name
        is_there = name in other.graph and not other.graph[name].is_constant
        if is_there and opened.configurations[name] != other.configurations[name]:
            raise SizeError(f"{name!r} is split otherwise at another size.")
        if not _holds(operator, opened):
            raise SizeError(f"{name!r}, of type {operator.type}, is split by its size.")
        _check_inputs(operator, opened)
    return opened


def _opened(derivation: Derivation, operator: Operator) -> Derivation:
    """What an operator's description says, with the open shapes."""
    inputs = tuple(spec.shape for spec in operator.input_specs)
    outputs = tuple(spec.shape for spec in operator.outputs)
    return replace(
        derivation,
        input_shapes=inputs if derivation.input_shapes else (),
        output_shapes=outputs or derivation.output_shapes,
    )


def _holds(operator: Operator, strategy: Strategy) -> bool:
    """Whether an operator on equal pieces makes equal pieces at all sizes."""
    derivation = strategy.derivations[operator.name]
    splits = strategy.configurations[operator.name].splits
    shapes = (*derivation.input_shapes, *derivation.output_shapes)
    if not any(splits) or not any(-1 in shape for shape in shapes):
        return True
    pieces = [strategy.mesh.pieces(axes) for axes in splits]
    if not derivation.input_shapes or operator.gradient is not None:  # fed, or as what it is of
        return operator.gradient is not None or along_known(derivation, pieces)
    description = find(operator.type)
    if description is None:
        return False
    any_size = description.any_size or (along_known if description.open_shapes else None)
    return any_size is not None and any_size(derivation, pieces)


def _check_inputs(operator: Operator, strategy: Strategy) -> None:
    """See that an operator reads open dimensions in no other pieces than they are in."""
    if operator.type in SHAPE_TYPES or operator.gradient is not None:
        return
    for number, spec in enumerate(operator.input_specs):
        if number in operator.mutates or -1 not in spec.shape:
            continue
        made = strategy.output_slot(operator.inputs[number]).forward
        read = strategy.input_slot(operator, number).forward
        for extent, before, after in zip(spec.shape, made.dims, read.dims, strict=True):
            if extent < 0 and not set(after) <= set(before):
                raise SizeError(f"{operator.name!r} reads input {number} in pieces of its size.")


def check_steps(
    steps: Sequence[ReshardStep], shape: Sequence[int], source: Layout, target: Layout
) -> None:
    """See that a resharding cuts an open dimension only as it is cut before or after.

    Raises:
        SizeError: if it does otherwise on its way.
    """
    for step in steps:
        dim = step.to_dim
        if dim is None or shape[dim] >= 0:
            continue
        if not set(step.axes) <= {*source.dims[dim], *target.dims[dim]}:
            raise SizeError(f"a resharding from {source} to {target} cuts an open dimension.")
