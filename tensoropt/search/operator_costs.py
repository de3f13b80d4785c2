"""What one operator of a graph costs under a configuration (equation 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import SPELLED_OUT, OperatorWork
from tensoropt.errors import DescriptionError
from tensoropt.graph.backward_reads import VIEWS
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, lookup
from tensoropt.tdl.derivation import Halo
from tensoropt.tdl.registry import find

__all__ = [
    "InnerCollective",
    "LocalShapes",
    "again_nanoseconds",
    "among_kept",
    "attributes_that_matter",
    "computes",
    "family",
    "inner_collectives",
    "known",
    "local_collectives",
    "local_work",
    "memory_amounts",
    "moved_memory_bytes",
    "moves_rows",
    "only_halos",
    "operator_memory_bytes",
    "operator_nanoseconds",
    "operator_work",
    "rows_bytes",
    "stored_itemsize",
]

Int64Array = npt.NDArray[np.int64]
Amount = TypeVar("Amount", int, Int64Array)

_NO_WORK = frozenset({"Const", "Gradient", "Identity", "NoOp", "Placeholder", "ReadVariableOp"})
_MAKES_NOTHING = VIEWS | (_NO_WORK - {"Placeholder"})
_ADDS_BIAS = frozenset({"BiasAdd", "BiasAddV1"})


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
    inner = inner_collectives(operator, derivation, configuration, mesh, differentiated_inputs)
    return cost.operator_nanoseconds(work).total + sum(
        each.times * cost.collective_nanoseconds(each.kind, each.axes, each.bytes) for each in inner
    )


def again_nanoseconds(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
) -> int:
    """What it takes to compute an operator once more in the backward pass."""
    work = operator_work(operator, derivation, configuration, mesh, 0)
    if work is None:
        return 0
    inner = inner_collectives(operator, derivation, configuration, mesh, 0)
    return cost.operator_nanoseconds(work).forward + sum(
        each.forward * cost.collective_nanoseconds(each.kind, each.axes, each.bytes)
        for each in inner
    )


@dataclass(frozen=True, slots=True)
class LocalShapes:
    """One device's pieces of an operator's tensors.

    Attributes:
        splits: the mesh axes that split each index.
        inputs: shapes of the pieces of all inputs.
        outputs: of all outputs.
    """

    splits: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, derivation: Derivation, configuration: Configuration, mesh: Mesh) -> LocalShapes:
        """The pieces under a configuration."""
        return cls(
            configuration.splits,
            tuple(
                input_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
                for n, shape in enumerate(derivation.input_shapes)
            ),
            tuple(
                output_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
                for n, shape in enumerate(derivation.output_shapes)
            ),
        )


def operator_work(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
) -> OperatorWork | None:
    """What one device does of an operator; None for what only names a value."""
    if not computes(operator):
        return None
    local = LocalShapes.of(derivation, configuration, mesh)
    pieces = mesh.pieces([axis for axes in configuration.splits for axis in axes])
    return local_work(operator, derivation, local, pieces, differentiated_inputs)


def computes(operator: Operator) -> bool:
    """Whether an operator takes time: not what only names a value."""
    return not (operator.is_variable or operator.type in _NO_WORK)


def local_work(
    operator: Operator,
    derivation: Derivation,
    local: LocalShapes,
    pieces: int,
    differentiated_inputs: int,
) -> OperatorWork:
    """What one device does of an operator that computes.

    Args:
        operator: which.
        derivation: its iteration space.
        local: the device's pieces of its tensors.
        pieces: how many the iteration space falls into.
        differentiated_inputs: inputs that a gradient leaves.
    """
    shapes = tuple(
        shape if known(spec) else ()
        for shape, spec in zip(local.inputs, operator.input_specs, strict=True)
    )
    if moves_rows(operator):
        moved = rows_bytes(operator, derivation, local)
    else:
        tensors = zip(
            (*shapes, *local.outputs), (*operator.input_specs, *operator.outputs), strict=False
        )
        moved = sum(prod(shape) * spec.itemsize for shape, spec in tensors if known(spec))
    return OperatorWork(
        family=family(derivation),
        dtype=operator.outputs[0].dtype if operator.outputs else "float32",
        flops=derivation.flops // pieces,
        bytes=moved,
        differentiated_inputs=differentiated_inputs,
        operator=operator.type,
        attributes=(
            *attributes_that_matter(operator),
            *_spelled_out_in_parts(operator, derivation, local),
        ),
        local_shapes=shapes,
    )


def _spelled_out_in_parts(
    operator: Operator, derivation: Derivation, local: LocalShapes
) -> tuple[tuple[str, str], ...]:
    """What tells an operator that is emitted as several from its own kernel at equal shapes."""
    split = [
        index.name
        for index, axes in zip(derivation.indices, local.splits, strict=True)
        if axes and index.spelled_out
    ]
    if not split or lookup(operator.type).inner_collectives is None:
        return ()
    return ((SPELLED_OUT, ",".join(split)),)


def attributes_that_matter(operator: Operator) -> tuple[tuple[str, str], ...]:
    """Names and printed values of the attributes that have a bearing on time, sorted."""
    return tuple(sorted((k, repr(v)) for k, v in operator.attributes.items() if _matters(k)))


def moves_rows(operator: Operator) -> bool:
    """Whether a description says what is moved: rows that are looked up, not their table."""
    description = find(operator.type)
    return description is not None and description.moved is not None


def rows_bytes(operator: Operator, derivation: Derivation, local: LocalShapes) -> int:
    """What is moved where a description says it (`moves_rows`)."""
    moved = lookup(operator.type).moved
    if moved is None:
        raise DescriptionError(
            f"only a description with moved= says how many rows move. Got {operator.type}."
        )
    split = frozenset(
        index.name for index, axes in zip(derivation.indices, local.splits, strict=True) if axes
    )
    specs = (*operator.outputs, *operator.input_specs)
    sizes = [spec.itemsize for spec in specs if not spec.dtype.startswith(("int", "resource"))]
    itemsize = sizes[0] if sizes else max(spec.itemsize for spec in specs)
    return moved(split, local.inputs, local.outputs) * itemsize


def _matters(attribute: str) -> bool:
    """Whether an attribute has a bearing on time: names and hints have none."""
    return not attribute.startswith("_") and attribute not in ("container", "shared_name")


@dataclass(frozen=True, slots=True)
class InnerCollective:
    """A collective, or a local copy, that an operator's rule runs.

    Attributes:
        kind: as `tensoropt.cost.model.CostModel` names it.
        axes: the mesh axes of the groups.
        bytes: that a device holds.
        times: how often, forward and backward.
        backward: of these, how often backward.
    """

    kind: str
    axes: tuple[int, ...]
    bytes: int
    times: int
    backward: int = 0

    @property
    def forward(self) -> int:
        """How often when the operator is computed once."""
        return self.times - self.backward


def inner_collectives(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
) -> list[InnerCollective]:
    """What moves inside an operator whose split is spelled out: collectives, and halos."""
    split = zip(derivation.indices, configuration.splits, strict=True)
    if not any(axes and index.spelled_out for index, axes in split):
        return []
    local = LocalShapes.of(derivation, configuration, mesh)
    return local_collectives(operator, derivation, local, differentiated_inputs)


def local_collectives(
    operator: Operator, derivation: Derivation, local: LocalShapes, differentiated_inputs: int
) -> list[InnerCollective]:
    """What moves inside an operator with these pieces of its tensors on a device."""
    return [
        *_spelled_out(operator, derivation, local),
        *_halos(operator, derivation, local, differentiated_inputs),
    ]


def only_halos(operator: Operator, derivation: Derivation) -> tuple[Halo, ...]:
    """An operator's halos, where `local_collectives` are theirs alone."""
    description = find(operator.type)
    inner = description is not None and description.inner_collectives is not None
    return () if inner else derivation.halos


def _spelled_out(
    operator: Operator, derivation: Derivation, local: LocalShapes
) -> Iterator[InnerCollective]:
    split = {
        index.name: axes
        for index, axes in zip(derivation.indices, local.splits, strict=True)
        if axes and index.spelled_out
    }
    inner = lookup(operator.type).inner_collectives if split else None
    if inner is None:
        return
    axes = tuple(sorted(axis for splits in split.values() for axis in splits))
    itemsize = operator.outputs[0].itemsize
    for each in inner(frozenset(split), local.inputs, local.outputs):
        size = each.elements * itemsize
        yield InnerCollective(each.kind, axes, size, each.times, each.backward)


def _halos(
    operator: Operator, derivation: Derivation, local: LocalShapes, differentiated_inputs: int
) -> Iterator[InnerCollective]:
    """Exchanges of halos forward, and of their gradients backward, with the copy into a window.

    An input's gradient is counted where all others have one: it is that of the data, the first
    that a script can do without.
    """
    for halo in derivation.halos:
        axes = local.splits[halo.index]
        if not axes or not derivation.indices[halo.index].spelled_out:
            continue
        shape = local.inputs[halo.input]
        itemsize = operator.input_specs[halo.input].itemsize
        row_bytes = prod(shape) // shape[halo.dim] * itemsize
        others = sum(
            spec.dtype.startswith(("float", "bfloat", "half"))
            for number, spec in enumerate(operator.input_specs)
            if number != halo.input
        )
        width = halo.before + halo.after
        times = 2 if differentiated_inputs > others else 1
        yield InnerCollective("exchange", axes, row_bytes * width, times, times - 1)
        whole = row_bytes * (shape[halo.dim] + width)
        yield InnerCollective("slice", axes, whole, times, times - 1)


def operator_memory_bytes(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
    kept: frozenset[TensorName] = frozenset(),
    carried: Sequence[int] = (),
    recomputed: bool = False,
) -> int:
    """m of equation 1, on one device.

    Args:
        operator: which.
        derivation: its iteration space.
        configuration: how it is split.
        mesh: the devices.
        cost: says what of it counts.
        kept: the tensors that are kept where they are made.
        carried: numbers of inputs that are kept as they lie here.
        recomputed: whether no output is kept, the operator being computed again.
    """
    inputs = sum(
        input_slot(derivation, configuration, number).forward.local_elements(spec.shape, mesh)
        * spec.itemsize
        for number, spec in enumerate(operator.input_specs)
        if number in carried and known(spec)
    )

    def outputs(among: frozenset[TensorName] | None) -> int:
        return sum(
            output_slot(derivation, configuration, number).forward.local_elements(spec.shape, mesh)
            * stored_itemsize(operator, number)
            for number, spec in enumerate(operator.outputs)
            if known(spec) and (among is None or TensorName(operator.name, number) in among)
        )

    made, remaining = outputs(None), outputs(among_kept(operator, kept))
    amounts = memory_amounts(operator, made, remaining, inputs, recomputed)
    return cost.operator_memory(Footprint(**amounts)).kept


def memory_amounts(
    operator: Operator, made: Amount, kept: Amount, inputs: Amount, recomputed: bool
) -> dict[str, Amount]:
    """The `Footprint` of an operator, from bytes: of one device, or arrays of many cases.

    Args:
        operator: which.
        made: of its outputs.
        kept: of those of them that the backward pass reads.
        inputs: of what is counted here of its inputs.
        recomputed: whether no output is kept, the operator being computed again.
    """
    if operator.is_variable:
        return {"variable_bytes": made}
    if operator.gradient is not None:
        return {"gradient_bytes": made}
    if recomputed or operator.mutates or operator.type in _MAKES_NOTHING:
        return {"moved_bytes": inputs}
    added = {"added_bytes": made} if operator.type in _ADDS_BIAS else {}
    return {"output_bytes": made, **added, "kept_bytes": kept, "moved_bytes": inputs}


def among_kept(operator: Operator, kept: frozenset[TensorName]) -> frozenset[TensorName] | None:
    """Of which tensors an operator's outputs stay: of all (None) where they are fed."""
    return None if operator.is_placeholder else kept


def stored_itemsize(operator: Operator, output: int) -> int:
    """Bytes of an element of an output; of a variable's values, where it is a handle."""
    spec = operator.outputs[output]
    if not operator.is_variable:
        return spec.itemsize
    dtype = str(operator.attributes.get("dtype", spec.dtype)).removesuffix("_ref")
    return TensorSpec((), dtype).itemsize


def moved_memory_bytes(
    layout: Layout, shape: Sequence[int], itemsize: int, mesh: Mesh, cost: CostModel
) -> int:
    """What a copy in another layout takes that the backward pass reads (equation 2), on one
    device."""
    moved = layout.local_elements(shape, mesh) * itemsize
    return cost.operator_memory(Footprint(moved_bytes=moved)).kept


def known(spec: TensorSpec) -> bool:
    """Whether a tensor's shape is known before anything runs."""
    return all(extent >= 0 for extent in spec.shape)


def family(derivation: Derivation) -> str:
    """Contractions sum products over an index that several inputs share; the rest streams."""
    for number, index in enumerate(derivation.indices):
        if index.reducer == "sum" and _sharing(derivation.inputs, number) > 1:
            return "contraction"
    return "elementwise"


def _sharing(inputs: Sequence[Sequence[int | None]], index: int) -> int:
    return sum(index in dims for dims in inputs)
