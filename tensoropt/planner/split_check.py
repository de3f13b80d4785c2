"""The preflight check: the operators of a step that cannot be split on a mesh, why, and their cost.

The check does not search. An operator can be split if one of its configurations splits an index,
even if no strategy of the frontier uses that configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tensoropt.cost.model import CostModel
from tensoropt.errors import OptionError
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.assignments import assignment_of
from tensoropt.parallel.choices.choices import Choices, strategy_choices
from tensoropt.parallel.configuration import Configuration, configurations
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivations_of, follower_configuration, redundant
from tensoropt.plan.amounts import devices_of
from tensoropt.planner.operator_kinds import computes, makes_text
from tensoropt.planner.request import Request
from tensoropt.problem.operators.operator_costs import OperatorCosts
from tensoropt.tdl import Derivation, described, lookup
from tensoropt.tdl.ops.random import DRAWN_WHOLE

__all__ = ["Check", "OperatorCheck", "check", "check_graph"]

MARKED_SHARE = 0.01
"""An operator that cannot be split is marked if it takes more than this share of the step."""


@dataclass(frozen=True, slots=True)
class OperatorCheck:
    """One operator that computes, as it runs whole on one device.

    Attributes:
        name: its name in the script.
        type: its TensorFlow type.
        configurations: the number of its configurations on the mesh, with the redundant one.
        pieces: the most shards of a configuration; 1 if it cannot be split.
        reasons: the reasons why it cannot be split, each with the indices of its iteration space
            for which it holds; empty if it can be split.
        time_nanoseconds: the time of the whole operator on one device, forward and backward
            (equation 1). It is too low for an operator without a description, which counts as one
            operation per output element, and for one of unknown shape.
        output_bytes: the bytes of its whole outputs, without variables that it changes in place.
    """

    name: str
    type: str
    configurations: int
    pieces: int
    reasons: tuple[str, ...]
    time_nanoseconds: int
    output_bytes: int

    @property
    def can_split(self) -> bool:
        """Whether devices can share the work of the operator."""
        return self.pieces > 1


@dataclass(frozen=True, slots=True)
class Check:
    """The operators of a step that can be split, and those that cannot.

    Attributes:
        devices: the number of devices.
        mesh_axes: the sizes of the mesh axes, slowest link first.
        cluster: the name of the cluster for which the times hold.
        operators: an entry for each operator that computes, the slowest first.
    """

    devices: int
    mesh_axes: tuple[int, ...]
    cluster: str
    operators: tuple[OperatorCheck, ...]

    @property
    def unsplit(self) -> tuple[OperatorCheck, ...]:
        """The operators that cannot be split, the slowest first."""
        return tuple(operator for operator in self.operators if not operator.can_split)

    @property
    def time_nanoseconds(self) -> int:
        """The time of the step on one device."""
        return sum(operator.time_nanoseconds for operator in self.operators)

    @property
    def unsplit_nanoseconds(self) -> int:
        """The time of the operators that cannot be split, on one device."""
        return sum(operator.time_nanoseconds for operator in self.unsplit)

    @property
    def unsplit_share(self) -> float:
        """The share of the step's time that cannot be split, from 0 to 1."""
        return self._of_step(self.unsplit_nanoseconds)

    @property
    def unsplit_bytes(self) -> int:
        """The output bytes of operators that cannot be split. Every device holds all of them."""
        return sum(operator.output_bytes for operator in self.unsplit)

    def share(self, operator: OperatorCheck) -> float:
        """Return an operator's share of the step's time, from 0 to 1."""
        return self._of_step(operator.time_nanoseconds)

    def is_marked(self, operator: OperatorCheck) -> bool:
        """Whether an operator cannot be split and takes more than 1 % of the step's time."""
        return not operator.can_split and self.share(operator) > MARKED_SHARE

    def __str__(self) -> str:
        mesh = ",".join(map(str, self.mesh_axes))
        where = f"{devices_of(self.devices)} (mesh [{mesh}] of {self.cluster})"
        marked = sum(map(self.is_marked, self.unsplit))
        alone, whole = self.unsplit_nanoseconds / 1e3, self.time_nanoseconds / 1e3
        return (
            f"{len(self.unsplit)} of {len(self.operators)} operators cannot be split on {where}, "
            f"{marked} of them above 1 % of the step: together {self.unsplit_share:.2%} of its "
            f"time ({alone:,.1f} of {whole:,.1f} us on one device) and "
            f"{self.unsplit_bytes / 2**10:,.1f} KiB on every device"
        )

    def _of_step(self, nanoseconds: int) -> float:
        whole = self.time_nanoseconds
        return nanoseconds / whole if whole else 0.0


def check(request: Request) -> Check:
    """Check the step of a request, on its devices and cluster.

    Raises:
        OptionError: for one device.
        LayoutError: if the cluster cannot give a job this number of devices.
    """
    cost = request.cost_model(request.devices)
    mesh = cost.mesh
    operators = check_graph(request.graph, mesh, cost, request.batch_placeholders)
    return Check(mesh.size, mesh.axes, cost.cluster.name, operators)


def check_graph(
    graph: Graph,
    mesh: Mesh,
    cost: CostModel,
    batch_placeholders: frozenset[str] = frozenset(),
) -> tuple[OperatorCheck, ...]:
    """Check every operator of a graph that computes, the slowest first.

    Args:
        graph: one training step, shapes bound.
        mesh: the devices.
        cost: the cost model of the devices.
        batch_placeholders: the placeholders that are loaded data parallel.

    Raises:
        OptionError: for one device, on which nothing is split.
    """
    if mesh.size < 2:
        raise OptionError(
            "a check is for several devices. Got 1 device; check for the number of "
            "devices that the script is to run on, with --devices or preflight(devices=...)."
        )
    derivations = derivations_of(graph)
    differentiated = differentiated_inputs(graph)
    costs = OperatorCosts(mesh, cost)
    checks = []
    for group in strategy_choices(graph, mesh, batch_placeholders, derivations):
        for name in group.members:
            operator, derivation = graph[name], derivations[name]
            if operator.is_constant or not computes(operator):
                continue
            whole = assignment_of(redundant(derivation), mesh)
            inputs = len(differentiated.get(name, ()))
            options = {option[name] for option in group.options}
            pieces = max(_pieces(option, mesh) for option in options)
            checks.append(
                OperatorCheck(
                    name=name,
                    type=operator.type,
                    configurations=len(options),
                    pieces=pieces,
                    reasons=() if pieces > 1 else _reasons(operator, group, derivations, mesh),
                    time_nanoseconds=int(costs.of(operator, derivation, whole, inputs).time[0]),
                    output_bytes=_output_bytes(operator),
                )
            )
    return tuple(sorted(checks, key=lambda check: -check.time_nanoseconds))


def _output_bytes(operator: Operator) -> int:
    """Return the bytes of the outputs whose shapes are known."""
    return sum(
        prod(spec.shape) * spec.itemsize
        for spec in operator.outputs
        if -1 not in spec.shape and not spec.dtype.endswith("_ref")
    )


def _pieces(configuration: Configuration, mesh: Mesh) -> int:
    return prod(mesh.pieces(axes) for axes in configuration.splits)


def _reasons(
    operator: Operator, group: Choices, derivations: Mapping[str, Derivation], mesh: Mesh
) -> tuple[str, ...]:
    """Return the reasons why no option of the operator's group splits it."""
    derivation = derivations[operator.name]
    if any(map(any, (option.splits for option in configurations(derivation, mesh)))):
        return (_tied(operator, group, derivations, mesh),)
    if not derivation.indices:
        return (_without_indices(operator, derivation),)
    indices: dict[str, list[str]] = {}
    for number, index in enumerate(derivation.indices):
        reason = _indivisible(derivation, number, mesh) or index.reason
        indices.setdefault(reason, []).append(index.name)
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in indices.items())


def _tied(
    operator: Operator, group: Choices, derivations: Mapping[str, Derivation], mesh: Mesh
) -> str:
    """Return the reason for an operator that shares its layout with one that cannot be split.

    The text names one such operator of each type.
    """
    leader = derivations[group.leader]
    shares = f"has the layout of {group.leader!r}"
    splits = [option for option in configurations(leader, mesh) if any(option.splits)]
    if not splits:
        return f"{shares}, which cannot be split"
    blocking = [
        name
        for name in group.members
        if all(
            follower_configuration(leader, split, derivations[name], mesh) is None
            for split in splits
        )
    ]
    if operator.name in blocking:
        return f"{shares}, whose splits do not fit it"
    first = {derivations[name].op_type: name for name in reversed(blocking)}
    named = ", ".join(f"{op_type} {name!r}" for op_type, name in sorted(first.items()))
    return f"{shares}, and no split fits {named or 'all operators that share it'}"


def _without_indices(operator: Operator, derivation: Derivation) -> str:
    """Return the reason for an operator whose iteration space has no indices."""
    if operator.type in DRAWN_WHOLE:
        return f"random: {DRAWN_WHOLE[operator.type]}"
    if operator.type not in described():
        return "makes text" if makes_text(operator) else "no description"
    specs = (*operator.input_specs, *operator.outputs)
    if any(spec.dtype == "string" for spec in specs):
        return "makes text" if makes_text(operator) else "reads text"
    if any(-1 in spec.shape for spec in specs):
        return "a dimension is not known before it runs"
    if all(shape == () for shape in derivation.output_shapes):
        return "makes a scalar, without a reduction"
    constants = lookup(operator.type).constants(len(operator.inputs))
    unknown = [number for number in constants if operator.input_specs[number].value is None]
    if unknown:
        return f"the value of input {unknown[0]} is not known before it runs"
    return "its description does not cover this use"


def _indivisible(derivation: Derivation, number: int, mesh: Mesh) -> str:
    """Return the reason for an index whose extents the mesh axes do not divide; else empty."""
    index = derivation.indices[number]
    if not index.splittable:
        return ""
    sizes = {index.extent}
    for dims, shapes in (
        (derivation.inputs, derivation.input_shapes),
        (derivation.outputs, derivation.output_shapes),
    ):
        for numbers, shape in zip(dims, shapes, strict=True):
            sizes |= {size for n, size in zip(numbers, shape, strict=True) if n == number}
    axes = " or ".join(str(size) for size in sorted(set(mesh.axes)))
    if len(sizes) == 1:
        return f"extent {index.extent} does not divide by {axes}"
    return f"extents {', '.join(map(str, sorted(sizes)))} do not all divide by {axes}"
