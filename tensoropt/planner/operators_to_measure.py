"""The operators of a graph that are worth measuring, each at its local shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensoropt.cost.cluster import Device
from tensoropt.cost.measured_operator_times import work_key
from tensoropt.cost.operator_time import LocalOperator, roofline_time
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.configuration import Configuration, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_under, derivations_of
from tensoropt.problem.operators.joined_products import (
    MATRIX,
    joined_product,
    number_sharing,
    sharing_products,
)
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.problem.operators.reader_gradient_sums import reader_gradient_sums, sum_as_measured
from tensoropt.tdl import Derivation

__all__ = ["measurable"]

_WASTED = 1.5
"""A configuration that takes longer than an operator's fastest by this factor, as where devices
compute the same, is measured after all that do not: plans seldom have it."""


def measurable(
    graph: Graph,
    mesh: Mesh,
    device: Device,
    batch_placeholders: frozenset[str] = frozenset(),
    differentiated: Mapping[str, tuple[int, ...]] | None = None,
    strategies: Sequence[Mapping[str, Configuration]] | None = None,
) -> tuple[LocalOperator, ...]:
    """Return every operator under every configuration that strategies may give it.

    Operators with the same work are returned once.

    Args:
        graph: one training step, shapes bound.
        mesh: the devices.
        device: its roofline model estimates times.
        batch_placeholders: the placeholders that are loaded data parallel.
        differentiated: for each operator the inputs with a gradient; by default those of the graph.
        strategies: the strategies whose configurations are wanted; by default all.

    Returns:
        The operators, by the estimated time of all operators with the same work, longest first.
        Those under configurations that leave devices unused come last.
    """
    gradients = differentiated_inputs(graph) if differentiated is None else differentiated
    derivations = derivations_of(graph)
    sums = reader_gradient_sums(graph, gradients)
    sharing = number_sharing(sharing_products(graph, gradients))
    first: dict[object, LocalOperator] = {}
    weight: dict[object, int] = {}
    useful: set[object] = set()
    for group in strategy_choices(graph, mesh, batch_placeholders, derivations):
        options = group.options if strategies is None else strategies
        for name in group.members:
            operator, inputs = graph[name], gradients.get(name, ())
            # All options belong to one problem, so one of them tells whether the operator may read
            # partial sums.
            derivation = derivation_under(operator, options[0][name])
            configurations = dict.fromkeys(option[name] for option in options)
            times: dict[tuple[str, int], dict[object, int]] = {}  # of kernels that do the same
            for local in (
                *_forms(operator, derivation, configurations, mesh, inputs, sharing.get(name, 1)),
                *_sums(graph, name, derivation, options, mesh, sums),
            ):
                work, key = local.work, work_key(local.work)
                first.setdefault(key, local)
                time = roofline_time(device, work).total
                weight[key] = weight.get(key, 0) + time
                times.setdefault((work.operator, work.differentiated_inputs), {})[key] = time
            for alike in times.values():
                most = _WASTED * min(alike.values())
                useful |= {key for key, time in alike.items() if time <= most}
    ordered = sorted(first, key=lambda key: (key not in useful, -weight[key]))
    return tuple(first[key] for key in ordered)


def _forms(
    operator: Operator,
    derivation: Derivation,
    configurations: Iterable[Configuration],
    mesh: Mesh,
    inputs: tuple[int, ...],
    sharing: int,
) -> Iterator[LocalOperator]:
    """Yield an operator under each of its configurations.

    If several products share a matrix, their gradients by the matrix may be computed as one. Then
    the operator without this gradient, and the joined product, are yielded, too.
    """
    for configuration in configurations:
        work = operator_work(operator, derivation, configuration, mesh, len(inputs))
        if work is None:
            continue
        yield LocalOperator(operator, derivation, configuration, inputs, work)
        if sharing == 1:
            continue
        joined = joined_product(operator, derivation, configuration, mesh, sharing)
        if joined is None:
            continue
        rest = tuple(number for number in inputs if number != MATRIX)
        rest_work = operator_work(operator, derivation, configuration, mesh, len(rest))
        assert rest_work is not None, "the operator computes"
        yield LocalOperator(operator, derivation, configuration, rest, rest_work)
        yield joined.product


def _sums(
    graph: Graph,
    name: str,
    derivation: Derivation,
    options: Sequence[Mapping[str, Configuration]],
    mesh: Mesh,
    sums: Mapping[TensorName, int],
) -> Iterator[LocalOperator]:
    """Yield the sums of gradients that arrive at an operator's outputs."""
    for number, spec in enumerate(graph[name].outputs):
        tensor = TensorName(name, number)
        if tensor not in sums:
            continue
        layouts = dict.fromkeys(
            output_slot(derivation, option[name], number).gradient for option in options
        )
        dtype = graph[name].value_spec(number).dtype
        for shape in dict.fromkeys(layout.local_shape(spec.shape, mesh) for layout in layouts):
            yield sum_as_measured(shape, dtype, sums[tensor], mesh)
