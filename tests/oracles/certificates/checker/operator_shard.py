"""The shard of an operator on one device, and the device's work on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import find
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.certificates.checker.cheapest_way import blocks

__all__ = [
    "NAMES",
    "OperatorShard",
    "Shape",
    "halos",
    "inside",
    "is_known",
    "local_shape",
    "whole_sum",
    "work_of",
]

Shape = tuple[int, ...]
Splits = tuple[tuple[int, ...], ...]

NAMES = frozenset({"Const", "Gradient", "Identity", "NoOp", "Placeholder", "ReadVariableOp"})
"""Operators that name a value or stand for a gradient. They take no time, and no memory unless they
load data."""


class OperatorShard:
    """The shard of one operator on one device.

    Attributes:
        operator: the operator.
        derivation: its iteration space.
        splits: for each index the mesh axes that split it.
        mesh: the devices.
        inputs, outputs: local shapes by the derivation, whose dimensions are those of the specs.
    """

    def __init__(
        self, operator: Operator, derivation: Derivation, splits: Splits, mesh: Mesh
    ) -> None:
        self.operator = operator
        self.derivation = derivation
        self.splits = splits
        self.mesh = mesh
        self.inputs = self._local(self.derivation.inputs, self.derivation.input_shapes)
        self.outputs = self._local(self.derivation.outputs, self.derivation.output_shapes)

    def _local(
        self, dims: tuple[tuple[int | None, ...], ...], shapes: tuple[Shape, ...]
    ) -> tuple[Shape, ...]:
        axes = [tuple(() if n is None else self.splits[n] for n in numbers) for numbers in dims]
        return tuple(local_shape(s, a, self.mesh) for s, a in zip(shapes, axes, strict=True))

    def output_bytes(self, numbers: Sequence[int] | None = None) -> int:
        """Bytes of all outputs of a known size, or of the outputs with these numbers."""
        return sum(
            prod(shape) * spec.itemsize
            for number, (spec, shape) in enumerate(
                zip(self.operator.outputs, self.outputs, strict=False)
            )
            if is_known(spec) and (numbers is None or number in numbers)
        )

    def input_bytes(self, numbers: Sequence[int]) -> int:
        """Bytes, in this operator's layout, of the inputs with these numbers that have a known
        size."""
        specs = self.operator.input_specs
        return sum(
            prod(self.inputs[number]) * specs[number].itemsize
            for number in numbers
            if is_known(specs[number])
        )

    @property
    def split_names(self) -> frozenset[str]:
        """The names of the indices that are split."""
        indices = zip(self.derivation.indices, self.splits, strict=True)
        return frozenset(index.name for index, axes in indices if axes)


def whole_sum(part: TensorSpec, count: int, mesh: Mesh) -> OperatorShard:
    """The shard of an operator that adds ``count`` tensors on one device."""
    operator = Operator(
        name="sum",
        type="AddN",
        inputs=tuple(TensorName(f"term{number}", 0) for number in range(count)),
        input_specs=(part,) * count,
        outputs=(part,),
        attributes={"N": count, "T": part.dtype},
    )
    derivation = derivation_of(operator)
    return OperatorShard(operator, derivation, ((),) * len(derivation.indices), mesh)


def work_of(shard: OperatorShard, backward: int) -> OperatorWork:
    """The work of a device on its shard: forward, and backward for the gradients of ``backward``
    inputs."""
    operator, derivation = shard.operator, shard.derivation
    largest = whole = 1
    for index, axes in zip(derivation.indices, shard.splits, strict=True):
        if not index.partial_inputs and index.extent:
            count = blocks(index.extent, shard.mesh)
            largest *= -(-count // shard.mesh.pieces(axes))
            whole *= count
    known = [is_known(spec) for spec in operator.input_specs]
    shapes = tuple(s if k else () for s, k in zip(shard.inputs, known, strict=True))
    description = find(operator.type)
    if description is not None and description.moved is not None:
        elements = description.moved(shard.split_names, shard.inputs, shard.outputs)
        specs = (*operator.outputs, *operator.input_specs)
        values = [s.itemsize for s in specs if not s.dtype.startswith(("int", "resource"))]
        moved = elements * (values[0] if values else max(s.itemsize for s in specs))
    else:
        read = zip(shapes, operator.input_specs, strict=True)
        moved = sum(prod(shape) * spec.itemsize for shape, spec in read) + shard.output_bytes()
    contracts = any(
        index.reducer == "sum" and sum(number in dims for dims in derivation.inputs) > 1
        for number, index in enumerate(derivation.indices)
    )
    attributes = {
        key: repr(value)
        for key, value in operator.attributes.items()
        if not key.startswith("_") and key not in ("container", "shared_name")
    }
    return OperatorWork(
        family="contraction" if contracts else "elementwise",
        dtype=operator.outputs[0].dtype if operator.outputs else "float32",
        flops=derivation.flops * largest // whole,
        bytes=moved,
        differentiated_inputs=backward,
        operator=operator.type,
        attributes=tuple(sorted(attributes.items())),
        local_shapes=shapes,
    )


Collective = tuple[str, tuple[int, ...], int, int]  # kind, axes, bytes, number of times


def inside(shard: OperatorShard) -> Iterator[Collective]:
    """The collectives inside an operator whose split has a custom lowering."""
    description = find(shard.operator.type)
    if description is None or description.inner_collectives is None:
        return
    split = {
        index.name: axes
        for index, axes in zip(shard.derivation.indices, shard.splits, strict=True)
        if index.spelled_out and axes and not index.partial_outputs
    }
    if not split:
        return
    axes = tuple(sorted(axis for own in split.values() for axis in own))
    for each in description.inner_collectives(frozenset(split), shard.inputs, shard.outputs):
        yield each.kind, axes, each.elements * shard.operator.outputs[0].itemsize, each.times


def halos(shard: OperatorShard, backward: int) -> Iterator[Collective]:
    """The collectives that fetch windows' halos from neighbours, and return their gradients if the
    input has one."""
    for halo in shard.derivation.halos:
        axes = shard.splits[halo.index]
        if not axes or not shard.derivation.indices[halo.index].spelled_out:
            continue
        shape, specs = shard.inputs[halo.input], shard.operator.input_specs
        row = prod(shape) // shape[halo.dim] * specs[halo.input].itemsize
        floating = [s.dtype.startswith(("float", "bfloat", "half")) for s in specs]
        times = 2 if backward > sum(floating) - floating[halo.input] else 1
        width = halo.before + halo.after
        yield "exchange", axes, row * width, times
        yield "slice", axes, row * (shape[halo.dim] + width), times


def local_shape(shape: Shape, dims: tuple[tuple[int, ...], ...], mesh: Mesh) -> Shape:
    """The shape of the largest shard of a tensor whose dimensions are split by these axes."""
    return tuple(
        -(-blocks(extent, mesh) // mesh.pieces(axes)) * (extent // max(blocks(extent, mesh), 1))
        for extent, axes in zip(shape, dims, strict=True)
    )


def is_known(spec: TensorSpec) -> bool:
    """Whether a tensor's shape is known before anything runs."""
    return all(extent >= 0 for extent in spec.shape)
