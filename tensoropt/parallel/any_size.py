"""Strategies that are valid for every size of the open dimensions of a graph.

An open dimension has extent -1 in the graph: its size is known when a step runs, and may differ
from run to run (for example the length of padded sequences). TensorFlow's shape inference and
constant folding on such a graph are valid for every size.

The search needs numbers, so it plans for the sizes of one run. This module keeps the strategy if
every device holds an equal piece of each tensor at every other size, too. It proves this by
induction over the operators:

- A placeholder is split along dimensions of known extent only.
- The description of a split operator says that equal pieces of its inputs give equal pieces of its
  outputs (`tensoropt.tdl.any_size`).
- A resharding splits an open dimension only over axes that split it before or after.
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

_SMALLEST_EXTENT = 2  # an extent of 1 could be broadcast, which larger extents are not


class SizeError(TensorOptError):
    """The strategy cannot be proved valid for every size."""


def sized(graph: Graph, shapes: Mapping[str, Sequence[Shape]]) -> Graph:
    """Return the graph with the shapes of one run.

    Args:
        graph: graph with open dimensions.
        shapes: for each operator with open dimensions, the shapes of its outputs in that run.

    Raises:
        SizeError: if the number of dimensions of a tensor depends on the sizes, or if an open
            dimension has fewer than 2 elements in that run.
    """
    operators: dict[str, Operator] = {}
    for operator in graph:
        outputs = operator.outputs
        if operator.name in shapes:
            pairs = zip(outputs, shapes[operator.name], strict=True)
            outputs = tuple(_spec_in_run(spec, shape, operator) for spec, shape in pairs)
        inputs = tuple(operators[name.operator].outputs[name.index] for name in operator.inputs)
        operators[operator.name] = replace(operator, input_specs=inputs, outputs=outputs)
    return Graph(operators)


def _spec_in_run(spec: TensorSpec, shape: Shape, operator: Operator) -> TensorSpec:
    if len(spec.shape) != len(shape):
        raise SizeError(
            "a tensor has the same number of dimensions at every size. Got "
            f"{spec.shape} in the graph and {shape} in a run for {operator.name!r}."
        )
    pairs = zip(spec.shape, shape, strict=True)
    if any(known < 0 <= extent < _SMALLEST_EXTENT for known, extent in pairs):
        raise SizeError(
            f"an open dimension has at least {_SMALLEST_EXTENT} elements in the planned run. "
            f"Got shape {shape} for {operator.name!r}."
        )
    return TensorSpec(shape, spec.dtype, spec.value)


def for_any_size(strategy: Strategy, graph: Graph, other: Strategy) -> Strategy:
    """Return a strategy for the graph with open dimensions from the strategy of one run.

    Args:
        strategy: strategy of the graph that `sized` returns.
        graph: the graph with open dimensions.
        other: strategy at other sizes. It has to split every operator in the same way.

    Raises:
        SizeError: if the strategy cannot be proved valid for every size.
    """
    opened = copy.copy(strategy)
    opened.graph = graph
    opened.derivations = {op.name: _opened(strategy.derivations[op.name], op) for op in graph}
    for operator in graph:
        name = operator.name
        is_planned = name in other.graph and not other.graph[name].is_constant
        if is_planned and opened.configurations[name] != other.configurations[name]:
            raise SizeError(
                f"an operator has the same configuration at every size. Got "
                f"{opened.configurations[name]} and {other.configurations[name]} for {name!r}."
            )
        if not _has_equal_pieces(operator, opened):
            raise SizeError(
                f"the pieces of a split operator are equal at every size. Got "
                f"{opened.configurations[name]} for {name!r} of type {operator.type}."
            )
        _check_inputs(operator, opened)
    return opened


def _opened(derivation: Derivation, operator: Operator) -> Derivation:
    """Return the derivation with the open shapes of the operator."""
    inputs = tuple(spec.shape for spec in operator.input_specs)
    outputs = tuple(spec.shape for spec in operator.outputs)
    return replace(
        derivation,
        input_shapes=inputs if derivation.input_shapes else (),
        output_shapes=outputs or derivation.output_shapes,
    )


def _has_equal_pieces(operator: Operator, strategy: Strategy) -> bool:
    """Whether the devices compute equal pieces of the outputs at every size."""
    derivation = strategy.derivations[operator.name]
    splits = strategy.configurations[operator.name].splits
    shapes = (*derivation.input_shapes, *derivation.output_shapes)
    if not any(splits) or not any(-1 in shape for shape in shapes):
        return True
    if strategy.is_uneven(operator.name):
        return False
    pieces = [strategy.mesh.pieces(axes) for axes in splits]
    if operator.gradient is not None:  # has the pieces of the tensor that it is the gradient of
        return True
    if not derivation.input_shapes:  # a placeholder
        return along_known(derivation, pieces)
    description = find(operator.type)
    if description is None:
        return False
    any_size = description.any_size or (along_known if description.open_shapes else None)
    return any_size is not None and any_size(derivation, pieces)


def _check_inputs(operator: Operator, strategy: Strategy) -> None:
    """Check that no input is resharded along an open dimension to axes that did not split it."""
    if operator.type in SHAPE_TYPES or operator.gradient is not None:
        return
    for number, spec in enumerate(operator.input_specs):
        if number in operator.mutates or -1 not in spec.shape:
            continue
        source = strategy.output_slot(operator.inputs[number]).forward
        target = strategy.input_slot(operator, number).forward
        for extent, before, after in zip(spec.shape, source.dims, target.dims, strict=True):
            if extent < 0 and not set(after) <= set(before):
                raise SizeError(
                    "a reader splits an open dimension only over axes that split it at the "
                    f"producer. Got {source} at the producer and {target} at input {number} of "
                    f"{operator.name!r}."
                )


def check_steps(
    steps: Sequence[ReshardStep], shape: Sequence[int], source: Layout, target: Layout
) -> None:
    """Check that a resharding splits open dimensions only over axes of its source or target.

    Raises:
        SizeError: if a step splits an open dimension over another axis.
    """
    for step in steps:
        dim = step.to_dim
        if dim is None or shape[dim] >= 0:
            continue
        if not set(step.axes) <= {*source.dims[dim], *target.dims[dim]}:
            raise SizeError(
                f"a resharding splits an open dimension only over axes that split it before or "
                f"after. Got {step} on the way from {source} to {target}."
            )
