"""Collectives inside an operator under a configuration: of its custom lowering, and halos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.operators.local_work import LocalShapes
from tensoropt.tdl import Derivation, lookup
from tensoropt.tdl.derivation import Halo
from tensoropt.tdl.registry import find

__all__ = [
    "InnerCollective",
    "inner_collectives",
    "local_collectives",
    "only_halos",
]


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
    """The collectives of an operator of which an index is split that has a custom lowering."""
    split = zip(derivation.indices, configuration.splits, strict=True)
    if not any(axes and index.spelled_out for index, axes in split):
        return []
    local = LocalShapes.of(derivation, configuration, mesh)
    return local_collectives(operator, derivation, local, differentiated_inputs)


def local_collectives(
    operator: Operator, derivation: Derivation, local: LocalShapes, differentiated_inputs: int
) -> list[InnerCollective]:
    """The collectives inside an operator, from the local shapes of its tensors."""
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
        if axes and index.has_inner_collectives
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
