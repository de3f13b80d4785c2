"""The operators of one microbatch, with their local shapes, operands and attributes.

A microbatch is a shard of the batch. Operands and attributes that describe the whole tensor (the
shape of a Reshape) are adapted to the shard. The mean over its examples, divided by the number of
microbatches, is its share of the mean over all examples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tensoropt.graph.operator import CHANGED, Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration, rescaling
from tensoropt.parallel.local_form import local_form
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.ops.random import DRAWN
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.step_graph import MICROBATCH

__all__ = ["graph_of_one", "operator_of_one", "part_of", "scale"]


def graph_of_one(cut: BatchCut) -> Graph:
    """The graph of one microbatch; operators that a step computes once stay as in the script."""
    operators = {
        operator.name: operator_of_one(cut, operator)[0]
        if operator.name in cut.indices
        else operator
        for operator in cut.graph
    }
    return Graph(operators)


def operator_of_one(
    cut: BatchCut, operator: Operator, microbatch: int = 0
) -> tuple[Operator, dict[int | str, Any]]:
    """An operator on the examples of one microbatch, and its changed operands and attributes.

    The changed operands and attributes replace those of the script, see `local_form`.
    """
    local: dict[int | str, Any] = {}
    if cut.microbatches == 1:
        return operator, local
    if cut.indices[operator.name] is None or operator.type in DRAWN:
        dim = cut.dims[TensorName(operator.name, 0)]
        changed: dict[str, Any] = {MICROBATCH: (dim, microbatch, cut.microbatches)}
    else:
        local.update(
            local_form(
                cut.derivations[operator.name],
                _split(cut, operator.name),
                _mesh(cut),
                operator.input_specs,
                operator.attributes,
            )
        )
        changed = {key: value for key, value in local.items() if isinstance(key, str)}
    outputs = [TensorName(operator.name, number) for number in range(len(operator.outputs))]
    part = replace(
        operator,
        input_specs=_input_specs(cut, operator, local),
        outputs=tuple(_spec_of_one(cut, output) for output in outputs),
        attributes={**operator.attributes, **changed, CHANGED: tuple(changed)},
    )
    return part, local


def part_of(spec: TensorSpec, dim: int, microbatches: int) -> TensorSpec:
    """The specification of a part of a tensor along a dimension."""
    shape = list(spec.shape)
    shape[dim] //= microbatches
    return TensorSpec(tuple(shape), spec.dtype)


def scale(cut: BatchCut, tensor: TensorName) -> float:
    """The factor of each microbatch's tensor in the sum that is the tensor of the whole batch."""
    name, index = tensor.operator, cut.indices[tensor.operator]
    if index is None:
        return 1.0
    if tensor.index in cut.derivations[name].indices[index].partial_outputs:
        return 1.0 / cut.microbatches
    return float(rescaling(cut.derivations[name], _split(cut, name), _mesh(cut)))


def _mesh(cut: BatchCut) -> Mesh:
    """A mesh whose devices are the microbatches."""
    return Mesh((cut.microbatches,) if cut.microbatches > 1 else ())


def _split(cut: BatchCut, name: str) -> Configuration:
    """The configuration that splits an operator over microbatches."""
    count, index = len(cut.derivations[name].indices), cut.indices[name]
    axes = tuple(range(len(_mesh(cut).axes)))
    return Configuration(tuple(axes if n == index else () for n in range(count)))


def _spec_of_one(cut: BatchCut, tensor: TensorName) -> TensorSpec:
    spec, dim = cut.graph.spec(tensor), cut.dims.get(tensor)
    if dim is None:
        return TensorSpec(spec.shape, spec.dtype)
    return part_of(spec, dim, cut.microbatches)


def _input_specs(
    cut: BatchCut, operator: Operator, local: dict[int | str, Any]
) -> tuple[TensorSpec, ...]:
    specs = []
    for number, (tensor, spec) in enumerate(
        zip(operator.inputs, operator.input_specs, strict=True)
    ):
        dim = cut.slices.get((operator.name, number))
        if number in local:
            value = np.asarray(local[number], spec.dtype).reshape(spec.shape)
            specs.append(TensorSpec(spec.shape, spec.dtype, value))
        elif tensor.operator in cut.indices:
            specs.append(_spec_of_one(cut, tensor))
        else:
            specs.append(spec if dim is None else part_of(spec, dim, cut.microbatches))
    return tuple(specs)
