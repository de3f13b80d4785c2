"""What one operator of a graph costs under a configuration (equation 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import SPELLED_OUT, OperatorWork
from tensoropt.graph.backward_reads import VIEWS
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.assignments import NO_INDEX, configuration_of, index_pieces
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, lookup
from tensoropt.tdl.registry import find

__all__ = [
    "InnerCollective",
    "again_nanoseconds",
    "all_operator_costs",
    "attributes_that_matter",
    "inner_collectives",
    "moved_memory_bytes",
    "operator_memory_bytes",
    "operator_nanoseconds",
    "operator_work",
]

Int8Array = npt.NDArray[np.int8]
Int64Array = npt.NDArray[np.int64]

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


def all_operator_costs(
    operator: Operator,
    derivation: Derivation,
    assigned: Int8Array,
    mesh: Mesh,
    cost: CostModel,
    differentiated_inputs: int,
    kept: frozenset[TensorName] = frozenset(),
    carried: Sequence[int] = (),
    ways: Sequence[str] = ("both",),
    only_before: frozenset[TensorName] = frozenset(),
) -> tuple[Int64Array, Int64Array]:
    """Nanoseconds and bytes of an operator under every configuration: int64[K] each.

    Both depend on the local shapes alone, and those on the pieces that each index is in, whichever
    axes make them; only collectives inside an operator depend on the axes. So one configuration
    stands for all those alike.

    Args:
        assigned: int8[K, axes], as `tensoropt.parallel.assignments.assignments` has it.
        kept: tensors that are kept where they are made.
        carried: numbers of inputs that are kept as they lie here, and counted here.
        ways: what may be kept, of `tensoropt.parallel.configuration.KEPT`; the arrays are those of
            each, one after the other.
        only_before: tensors that are kept where they are made if only the copies before
            resharding are.
    """
    inside = np.array([*(index.spelled_out for index in derivation.indices), False])
    alike = np.concatenate(
        [
            index_pieces(assigned, len(derivation.indices), mesh),
            np.where(inside[assigned], assigned, NO_INDEX),
        ],
        axis=1,
    )
    _, first, of_option = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    alike_first = [configuration_of(assigned[r], len(derivation.indices)) for r in first]

    def of_all(price: Callable[[Configuration], int]) -> Int64Array:
        found = np.array([price(configuration) for configuration in alike_first], dtype=np.int64)
        of_each: Int64Array = found[of_option.ravel()]
        return of_each

    time = of_all(
        lambda c: operator_nanoseconds(operator, derivation, c, mesh, cost, differentiated_inputs)
    )

    def of_way(way: str) -> tuple[Int64Array, Int64Array]:
        again = way == "recomputed"
        here: frozenset[TensorName] = frozenset() if again or way == "after" else kept
        here |= only_before if way == "before" else frozenset()

        def memory(configuration: Configuration) -> int:
            return operator_memory_bytes(
                operator, derivation, configuration, mesh, cost, here, carried, again
            )

        def once_more(configuration: Configuration) -> int:
            return again_nanoseconds(operator, derivation, configuration, mesh, cost)

        return (time + of_all(once_more) if again else time), of_all(memory)

    costs = [of_way(way) for way in ways]
    return np.concatenate([t for t, _ in costs]), np.concatenate([m for _, m in costs])


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
    moved = _rows_bytes(operator, derivation, configuration, mesh)
    if moved is None:
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
        attributes=(
            *attributes_that_matter(operator),
            *_spelled_out_in_parts(operator, derivation, configuration),
        ),
        local_shapes=tuple(shapes),
    )


def _spelled_out_in_parts(
    operator: Operator, derivation: Derivation, configuration: Configuration
) -> tuple[tuple[str, str], ...]:
    """What tells an operator that is emitted as several from its own kernel at equal shapes."""
    split = [
        index.name
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if axes and index.spelled_out
    ]
    if not split or lookup(operator.type).inner_collectives is None:
        return ()
    return ((SPELLED_OUT, ",".join(split)),)


def attributes_that_matter(operator: Operator) -> tuple[tuple[str, str], ...]:
    """Names and printed values of the attributes that have a bearing on time, sorted."""
    return tuple(sorted((k, repr(v)) for k, v in operator.attributes.items() if _matters(k)))


def _rows_bytes(
    operator: Operator, derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> int | None:
    """What is moved where a description says it: rows that are looked up, not their table."""
    description = find(operator.type)
    if description is None or description.moved is None:
        return None
    split = frozenset(
        index.name
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if axes
    )
    inputs, outputs = _local_shapes(derivation, configuration, mesh)
    specs = (*operator.outputs, *operator.input_specs)
    sizes = [spec.itemsize for spec in specs if not spec.dtype.startswith(("int", "resource"))]
    itemsize = sizes[0] if sizes else max(spec.itemsize for spec in specs)
    return description.moved(split, inputs, outputs) * itemsize


def _local_shapes(
    derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Shapes of a device's pieces of all inputs and all outputs."""
    return (
        tuple(
            input_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
            for n, shape in enumerate(derivation.input_shapes)
        ),
        tuple(
            output_slot(derivation, configuration, n).forward.local_shape(shape, mesh)
            for n, shape in enumerate(derivation.output_shapes)
        ),
    )


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
    return [
        *_spelled_out(operator, derivation, configuration, mesh),
        *_halos(operator, derivation, configuration, mesh, differentiated_inputs),
    ]


def _spelled_out(
    operator: Operator, derivation: Derivation, configuration: Configuration, mesh: Mesh
) -> Iterator[InnerCollective]:
    split = {
        index.name: axes
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
        if axes and index.spelled_out
    }
    inner = lookup(operator.type).inner_collectives if split else None
    if inner is None:
        return
    inputs, outputs = _local_shapes(derivation, configuration, mesh)
    axes = tuple(sorted(axis for splits in split.values() for axis in splits))
    itemsize = operator.outputs[0].itemsize
    for each in inner(frozenset(split), inputs, outputs):
        size = each.elements * itemsize
        yield InnerCollective(each.kind, axes, size, each.times, each.backward)


def _halos(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
) -> Iterator[InnerCollective]:
    """Exchanges of halos forward, and of their gradients backward, with the copy into a window.

    An input's gradient is counted where all others have one: it is that of the data, the first
    that a script can do without.
    """
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
        times = 2 if differentiated_inputs > others else 1
        yield InnerCollective("exchange", axes, row_bytes * width, times, times - 1)
        whole = row_bytes * (local[halo.dim] + width)
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
        if number in carried and _known(spec)
    )
    if operator.is_variable:
        spec = operator.outputs[0]
        dtype = str(operator.attributes.get("dtype", spec.dtype)).removesuffix("_ref")
        layout = output_slot(derivation, configuration, 0).forward
        elements = layout.local_elements(spec.shape, mesh)
        footprint = Footprint(variable_bytes=elements * TensorSpec((), dtype).itemsize)
    elif operator.gradient is not None:
        made = _output_bytes(operator, derivation, configuration, mesh)
        footprint = Footprint(gradient_bytes=made)
    elif recomputed or operator.mutates or operator.type in _MAKES_NOTHING:
        footprint = Footprint(moved_bytes=inputs)
    else:
        made = _output_bytes(operator, derivation, configuration, mesh)
        among = None if operator.is_placeholder else kept  # what is fed stays
        footprint = Footprint(
            output_bytes=made,
            added_bytes=made if operator.type in _ADDS_BIAS else 0,
            kept_bytes=_output_bytes(operator, derivation, configuration, mesh, among),
            moved_bytes=inputs,
        )
    return cost.operator_memory(footprint).kept


def moved_memory_bytes(
    layout: Layout, shape: Sequence[int], itemsize: int, mesh: Mesh, cost: CostModel
) -> int:
    """What a copy in another layout takes that the backward pass reads (equation 2), on one
    device."""
    moved = layout.local_elements(shape, mesh) * itemsize
    return cost.operator_memory(Footprint(moved_bytes=moved)).kept


def _output_bytes(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    among: frozenset[TensorName] | None = None,
) -> int:
    """Of all outputs, or of those among some tensors."""
    return sum(
        output_slot(derivation, configuration, number).forward.local_elements(spec.shape, mesh)
        * spec.itemsize
        for number, spec in enumerate(operator.outputs)
        if _known(spec) and (among is None or TensorName(operator.name, number) in among)
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
