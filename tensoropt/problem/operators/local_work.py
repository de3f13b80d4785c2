"""The part of an operator's work that one device does under a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from tensoropt.cost.operator_time import SPELLED_OUT, OperatorWork, WorkOfRank
from tensoropt.errors import DescriptionError
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import (
    Configuration,
    input_slot,
    largest_share,
    output_slot,
    shares_of,
)
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, lookup, operator_type
from tensoropt.tdl.derivation import Index
from tensoropt.tdl.registry import moves_rows
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "LocalShapes",
    "attributes_that_matter",
    "computes",
    "family",
    "has_known_shape",
    "local_work",
    "operator_work",
    "rows_bytes",
    "work_of_rank",
]


@dataclass(frozen=True, slots=True)
class LocalShapes:
    """Shapes of one device's shards of an operator's tensors.

    Attributes:
        splits: the mesh axes that split each index.
        inputs: shapes of all inputs.
        outputs: shapes of all outputs.
    """

    splits: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        derivation: Derivation,
        configuration: Configuration,
        mesh: Mesh,
        rank: int | None = None,
    ) -> LocalShapes:
        """Return the shapes of a device under a configuration; the largest ones if it is None."""

        def local(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
            if rank is None:
                return layout.local_shape(shape, mesh)
            return layout.shape_on(shape, mesh, rank)

        return cls(
            configuration.splits,
            tuple(
                local(input_slot(derivation, configuration, n).forward, shape)
                for n, shape in enumerate(derivation.input_shapes)
            ),
            tuple(
                local(output_slot(derivation, configuration, n).forward, shape)
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
    """Return the work of the device with the largest pieces of an operator.

    If pieces are in proportion to speeds, it is the device that ends last. None if the operator
    takes no time.
    """
    if not computes(operator):
        return None
    if mesh.shares is not None:
        return _work_of_last(operator, derivation, configuration, mesh, differentiated_inputs)
    local = LocalShapes.of(derivation, configuration, mesh)
    pieces = [
        1 if index.partial_inputs else mesh.pieces(axes)
        for index, axes in zip(derivation.indices, configuration.splits, strict=True)
    ]
    flops = int(derivation.flops * largest_share(derivation, pieces, mesh))
    return local_work(operator, derivation, local, flops, differentiated_inputs)


def _work_of_last(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
) -> OperatorWork:
    """Return the work of the device that computes the longest, by its share and its speed."""
    assert mesh.shares is not None, "the pieces are in proportion to speeds"
    speeds = mesh.shares.speeds
    shares, _ = shares_of(derivation, configuration, mesh)
    last = max(mesh, key=lambda rank: Fraction(shares[rank], speeds[rank]))
    return work_of_rank(operator, derivation, configuration, mesh, differentiated_inputs, last)


def work_of_rank(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
    rank: int,
) -> WorkOfRank:
    """Return the work of one device for an operator that takes time."""
    local = LocalShapes.of(derivation, configuration, mesh, rank)
    shares, whole = shares_of(derivation, configuration, mesh)
    flops = derivation.flops * shares[rank] // whole
    work = local_work(operator, derivation, local, flops, differentiated_inputs)
    return WorkOfRank(**{name: getattr(work, name) for name in OperatorWork.__slots__}, rank=rank)


def computes(operator: Operator) -> bool:
    """Whether an operator takes time: one that only names a value takes none."""
    return operator_type(operator.type).role in ("computes", "reads shapes", "calls functions")


def local_work(
    operator: Operator,
    derivation: Derivation,
    local: LocalShapes,
    flops: int,
    differentiated_inputs: int,
) -> OperatorWork:
    """Return the work of one device for an operator that takes time.

    Args:
        operator: the operator.
        derivation: its derivation.
        local: shapes of the device's shards.
        flops: operations of the device, forward.
        differentiated_inputs: number of inputs whose gradient is computed.
    """
    shapes = tuple(
        shape if has_known_shape(spec) else ()
        for shape, spec in zip(local.inputs, operator.input_specs, strict=True)
    )
    if moves_rows(operator.type):
        moved = rows_bytes(operator, derivation, local)
    else:
        tensors = zip(
            (*shapes, *local.outputs), (*operator.input_specs, *operator.outputs), strict=False
        )
        moved = sum(prod(shape) * spec.itemsize for shape, spec in tensors if has_known_shape(spec))
    return OperatorWork(
        family=family(derivation),
        dtype=operator.outputs[0].dtype if operator.outputs else "float32",
        flops=flops,
        bytes=moved,
        differentiated_inputs=differentiated_inputs,
        operator=operator.type,
        attributes=(
            *attributes_that_matter(operator),
            *_rule_attribute(operator, derivation, local),
        ),
        local_shapes=shapes,
    )


def _rule_attribute(
    operator: Operator, derivation: Derivation, local: LocalShapes
) -> tuple[tuple[str, str], ...]:
    """Return an attribute of operators that a lowering rule divides, and none for other operators.

    It distinguishes their measured times from those of TensorFlow's kernel at the same shapes: that
    computes without statistics of other devices, and pads a piece where the rule has halos.
    """
    with_halos = {halo.index for halo in derivation.halos}
    split = [
        index.name
        for number, (index, axes) in enumerate(zip(derivation.indices, local.splits, strict=True))
        if axes and (number in with_halos or _has_collectives(operator, index))
    ]
    return ((SPELLED_OUT, ",".join(split)),) if split else ()


def _has_collectives(operator: Operator, index: Index) -> bool:
    """Whether the rule of an operator has collectives besides halos for splits of an index."""
    return index.has_inner_collectives and lookup(operator.type).inner_collectives is not None


def attributes_that_matter(operator: Operator) -> tuple[tuple[str, str], ...]:
    """Return names and printed values of the attributes that the time depends on, sorted."""
    return tuple(sorted((k, repr(v)) for k, v in operator.attributes.items() if _matters(k)))


def rows_bytes(operator: Operator, derivation: Derivation, local: LocalShapes) -> int:
    """Return the bytes of the rows that an operator moves, as its description says
    (`tensoropt.tdl.registry.moves_rows`)."""
    moved = lookup(operator.type).moved
    if moved is None:
        raise DescriptionError(
            f"only a description with moved= gives the number of rows that move. Got "
            f"{operator.type}."
        )
    split = frozenset(
        index.name for index, axes in zip(derivation.indices, local.splits, strict=True) if axes
    )
    specs = (*operator.outputs, *operator.input_specs)
    sizes = [spec.itemsize for spec in specs if not spec.dtype.startswith(("int", "resource"))]
    itemsize = sizes[0] if sizes else max(spec.itemsize for spec in specs)
    return moved(split, local.inputs, local.outputs) * itemsize


def _matters(attribute: str) -> bool:
    """Whether the time depends on an attribute. It does not depend on names and hints."""
    return not attribute.startswith("_") and attribute not in ("container", "shared_name")


def has_known_shape(spec: TensorSpec) -> bool:
    """Whether all dimensions of a tensor are known before the step runs."""
    return all(extent >= 0 for extent in spec.shape)


def family(derivation: Derivation) -> str:
    """Return the cost class of an operator: "contraction" or "elementwise".

    A contraction sums products over an index that several inputs have. All other operators are
    limited by memory bandwidth, and count as elementwise.
    """
    for number, index in enumerate(derivation.indices):
        if index.reducer == "sum" and sum(number in dims for dims in derivation.inputs) > 1:
            return "contraction"
    return "elementwise"
