"""Which operators of a graph are worth timing: each at each local shape, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensoropt.cost.cluster import Device
from tensoropt.cost.local_operator import LocalOperator
from tensoropt.cost.measured_operator_times import work_key
from tensoropt.cost.operator_time import roofline_time
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.configuration import Configuration, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_under, derivations_of
from tensoropt.problem.operators.gradient_sums import gradient_sums, sum_as_measured
from tensoropt.problem.operators.joined_products import MATRIX, joined_product, sharing_products
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.tdl import Derivation

__all__ = ["measurable"]


def measurable(
    graph: Graph,
    mesh: Mesh,
    device: Device,
    batch_placeholders: frozenset[str] = frozenset(),
    differentiated: Mapping[str, tuple[int, ...]] | None = None,
    strategies: Sequence[Mapping[str, Configuration]] | None = None,
) -> tuple[LocalOperator, ...]:
    """Every operator under every configuration that a strategy may give it, each work once.

    Args:
        graph: one training step, shapes bound.
        mesh: the devices.
        device: whose roofline estimates times.
        batch_placeholders: placeholders loaded data parallel.
        differentiated: per operator the inputs with a gradient; by default the graph's own.
        strategies: of which the configurations are wanted; by default of all.

    Returns:
        Sorted by estimated time, times the number of operators that share it, the longest first.
    """
    gradients = differentiated_inputs(graph) if differentiated is None else differentiated
    derivations = derivations_of(graph)
    sums = gradient_sums(graph, gradients)
    alike = {
        name: len(names) for names in sharing_products(graph, gradients).values() for name in names
    }
    found: dict[object, LocalOperator] = {}
    weight: dict[object, int] = {}
    for group in strategy_choices(graph, mesh, batch_placeholders, derivations):
        for name in group.members:
            operator = graph[name]
            inputs = gradients.get(name, ())
            among = group.options if strategies is None else strategies
            # All of them are of one problem, in which it may read partial sums or not.
            derivation = derivation_under(operator, among[0][name])
            for configuration in dict.fromkeys(option[name] for option in among):
                work = operator_work(operator, derivation, configuration, mesh, len(inputs))
                if work is None:
                    continue
                key = work_key(work)
                found.setdefault(
                    key, LocalOperator(operator, derivation, configuration, inputs, work)
                )
                weight[key] = weight.get(key, 0) + roofline_time(device, work).total
                if name not in alike:
                    continue
                joined = joined_product(operator, derivation, configuration, mesh, alike[name])
                if joined is None:
                    continue
                others = tuple(number for number in inputs if number != MATRIX)
                less = operator_work(operator, derivation, configuration, mesh, len(others))
                assert less is not None, "it computes"
                rest = LocalOperator(operator, derivation, configuration, others, less)
                for local in (rest, joined.product):
                    key = work_key(local.work)
                    found.setdefault(key, local)
                    own = roofline_time(device, local.work).total
                    weight[key] = weight.get(key, 0) + own
            for local in _sums(graph, name, derivation, among, mesh, sums):
                key = work_key(local.work)
                found.setdefault(key, local)
                weight[key] = weight.get(key, 0) + roofline_time(device, local.work).total
    return tuple(found[key] for key in sorted(found, key=lambda key: -weight[key]))


def _sums(
    graph: Graph,
    name: str,
    derivation: Derivation,
    options: Sequence[Mapping[str, Configuration]],
    mesh: Mesh,
    sums: Mapping[TensorName, int],
) -> Iterator[LocalOperator]:
    """The sums of gradients that arrive at an operator's outputs."""
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
