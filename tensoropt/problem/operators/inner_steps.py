"""Collectives and copies inside an operator: those of its lowering rule, and exchanges of halos."""

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
    "InnerStep",
    "inner_steps",
    "local_inner_steps",
    "only_halos",
]


@dataclass(frozen=True, slots=True)
class InnerStep:
    """A collective or a local copy inside an operator.

    Attributes:
        kind: kind of step, as in `tensoropt.cost.model.CostModel`.
        axes: the mesh axes of its groups.
        bytes: bytes that a device holds.
        times: number of times in a step, forward and backward.
        backward: number of times backward.
    """

    kind: str
    axes: tuple[int, ...]
    bytes: int
    times: int
    backward: int = 0

    @property
    def forward(self) -> int:
        """The number of times in one forward pass."""
        return self.times - self.backward


def inner_steps(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    differentiated_inputs: int,
) -> list[InnerStep]:
    """Return the steps inside an operator; none unless a split index has a lowering rule."""
    split = zip(derivation.indices, configuration.splits, strict=True)
    if not any(axes and index.spelled_out for index, axes in split):
        return []
    local = LocalShapes.of(derivation, configuration, mesh)
    return local_inner_steps(operator, derivation, local, differentiated_inputs)


def local_inner_steps(
    operator: Operator, derivation: Derivation, local: LocalShapes, differentiated_inputs: int
) -> list[InnerStep]:
    """Return the steps inside an operator, from the local shapes of its tensors."""
    return [
        *_collectives_of_rule(operator, derivation, local),
        *_halos(operator, derivation, local, differentiated_inputs),
    ]


def only_halos(operator: Operator, derivation: Derivation) -> tuple[Halo, ...]:
    """Return the halos of an operator if exchanging them is all that `local_inner_steps` has."""
    description = find(operator.type)
    has_rule = description is not None and description.inner_collectives is not None
    return () if has_rule else derivation.halos


def _collectives_of_rule(
    operator: Operator, derivation: Derivation, local: LocalShapes
) -> Iterator[InnerStep]:
    split = {
        index.name: axes
        for index, axes in zip(derivation.indices, local.splits, strict=True)
        if axes and index.has_inner_collectives
    }
    rule_collectives = lookup(operator.type).inner_collectives if split else None
    if rule_collectives is None:
        return
    axes = tuple(sorted(axis for splits in split.values() for axis in splits))
    itemsize = operator.outputs[0].itemsize
    for each in rule_collectives(frozenset(split), local.inputs, local.outputs):
        size = each.elements * itemsize
        yield InnerStep(each.kind, axes, size, each.times, each.backward)


def _halos(
    operator: Operator, derivation: Derivation, local: LocalShapes, differentiated_inputs: int
) -> Iterator[InnerStep]:
    """Yield the exchange of each halo and the copy of its window, forward and backward.

    The backward exchange counts if all inputs with floating-point elements have a gradient.
    Otherwise the data are assumed to have none, since a script that leaves out one input's gradient
    mostly leaves out the data's.
    """
    for halo in derivation.halos:
        axes = local.splits[halo.index]
        if not axes or not derivation.indices[halo.index].spelled_out:
            continue
        shape = local.inputs[halo.input]
        itemsize = operator.input_specs[halo.input].itemsize
        row_bytes = prod(shape) // shape[halo.dim] * itemsize
        other_gradients = sum(
            spec.dtype.startswith(("float", "bfloat", "half"))
            for number, spec in enumerate(operator.input_specs)
            if number != halo.input
        )
        width = halo.before + halo.after
        times = 2 if differentiated_inputs > other_gradients else 1
        yield InnerStep("exchange", axes, row_bytes * width, times, times - 1)
        window_bytes = row_bytes * (shape[halo.dim] + width)
        yield InnerStep("slice", axes, window_bytes, times, times - 1)
