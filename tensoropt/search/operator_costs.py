"""What one operator of a graph costs under a configuration (equation 1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.operator import Operator
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, lookup

__all__ = ["operator_memory_bytes", "operator_nanoseconds", "operator_work"]

_NO_WORK = frozenset({"Const", "Gradient", "Identity", "NoOp", "Placeholder", "ReadVariableOp"})


def operator_nanoseconds(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
    differentiated_inputs: int,
) -> int:
    """t_c of equation 1: computing the operator forward and backward, on one device's piece.

    What only names a value (a variable, a loader, a read) takes no time.
    """
    work = operator_work(operator, derivation, configuration, mesh, differentiated_inputs)
    if work is None:
        return 0
    inner = _inner_nanoseconds(operator, derivation, configuration, mesh, cost)
    inner += _halo_nanoseconds(
        operator, derivation, configuration, mesh, cost, differentiated_inputs
    )
    return cost.operator_nanoseconds(work).total + inner


def operator_work(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
) -> OperatorWork | None:
    """What one device does of an operator; None for what only names a value."""
    if operator.is_variable or operator.type in _NO_WORK:
        return None
    pieces = mesh.pieces([axis for axes in configuration.splits for axis in axes])
    shapes = [
        input_slot(derivation, configuration, number).forward.local_shape(spec.shape, mesh)
        if _known(spec)
        else ()
        for number, spec in enumerate(operator.input_specs)
    ]
    moved = sum(
        prod(shape) * spec.itemsize
        for shape, spec in zip(shapes, operator.input_specs, strict=True)
    )
    moved += _output_bytes(operator, derivation, configuration, mesh)
    return OperatorWork(
        family=_family(derivation),
        dtype=operator.outputs[0].dtype if operator.outputs else "float32",
        flops=derivation.flops // pieces,
        bytes=moved,
        differentiated_inputs=differentiated_inputs,
        operator=operator.type,
        attributes=tuple(
            sorted((k, repr(v)) for k, v in operator.attributes.items() if _matters(k))
        ),
        local_shapes=tuple(shapes),
    )


def _matters(attribute: str) -> bool:
    """Whether an attribute has a bearing on time: names and hints have none."""
    return not attribute.startswith("_") and attribute not in ("container", "shared_name")


def _inner_nanoseconds(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
) -> int:
    """Collectives inside an operator whose split is spelled out."""
    split = {
        index.name: axes
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if axes and index.spelled_out
    }
    if not split:
        return 0
    inner = lookup(operator.type).inner_collectives
    if inner is None:
        return 0
    inputs = tuple(
        input_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
        for n, shape in enumerate(derivation.input_shapes)
    )
    outputs = tuple(
        output_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
        for n, shape in enumerate(derivation.output_shapes)
    )
    axes = tuple(sorted(axis for splits in split.values() for axis in splits))
    itemsize = operator.outputs[0].itemsize
    return sum(
        each.times * cost.collective_nanoseconds(each.kind, axes, each.elements * itemsize)
        for each in inner(frozenset(split), inputs, outputs)
    )


def _halo_nanoseconds(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
    differentiated_inputs: int,
) -> int:
    """Exchanges of halos forward, and of their gradients backward, with the copy into a window.

    An input's gradient is counted where all others have one: it is that of the data, the first
    that a script can do without.
    """
    total = 0
    for halo in derivation.halos:
        axes = configuration.splits[halo.index]
        if not axes or not derivation.indices[halo.index].spelled_out:
            continue
        layout = input_slot(derivation, configuration, halo.input).forward
        local = layout.local_shape(derivation.input_shapes[halo.input], mesh)
        itemsize = operator.input_specs[halo.input].itemsize
        row_bytes = prod(local) // local[halo.dim] * itemsize
        others = sum(
            spec.dtype.startswith(("float", "bfloat", "half"))
            for number, spec in enumerate(operator.input_specs)
            if number != halo.input
        )
        width = halo.before + halo.after
        each = cost.collective_nanoseconds("exchange", axes, row_bytes * width)
        each += cost.collective_nanoseconds("slice", axes, row_bytes * (local[halo.dim] + width))
        total += each * (2 if differentiated_inputs > others else 1)
    return total


def operator_memory_bytes(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
) -> int:
    """m of equation 1, on one device."""
    if operator.is_variable:
        spec = operator.outputs[0]
        dtype = str(operator.attributes.get("dtype", spec.dtype)).removesuffix("_ref")
        layout = output_slot(derivation, configuration, 0).forward
        elements = layout.local_elements(spec.shape, mesh)
        footprint = Footprint(variable_bytes=elements * TensorSpec((), dtype).itemsize)
    elif operator.mutates or operator.type in _NO_WORK - {"Placeholder"}:
        footprint = Footprint()
    else:
        footprint = Footprint(output_bytes=_output_bytes(operator, derivation, configuration, mesh))
    return cost.operator_memory(footprint).kept


def _output_bytes(
    operator: Operator, derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> int:
    return sum(
        output_slot(derivation, configuration, number).forward.local_elements(spec.shape, mesh)
        * spec.itemsize
        for number, spec in enumerate(operator.outputs)
        if _known(spec)
    )


def _known(spec: TensorSpec) -> bool:
    return all(extent >= 0 for extent in spec.shape)


def _family(derivation: Derivation) -> str:
    """Contractions sum products over an index that several inputs share; the rest streams."""
    for number, index in enumerate(derivation.indices):
        if index.reducer == "sum" and _sharing(derivation.inputs, number) > 1:
            return "contraction"
    return "elementwise"


def _sharing(inputs: Sequence[Sequence[int | None]], index: int) -> int:
    return sum(index in dims for dims in inputs)
