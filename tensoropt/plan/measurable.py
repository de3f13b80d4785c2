"""Which operators of a graph are worth timing: each at each local shape, the weightiest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.cost.cluster import Device
from tensoropt.cost.local_operator import LocalOperator
from tensoropt.cost.operator_time import roofline_time
from tensoropt.cost.operator_times import work_key
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices import strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.search.operator_costs import operator_work

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
        device: whose roofline says what weighs how much.
        batch_placeholders: placeholders loaded data parallel.
        differentiated: per operator the inputs with a gradient; by default the graph's own.
        strategies: of which the configurations are wanted; by default of all.

    Returns:
        Those first whose estimated time, times the operators that share it, is the longest.
    """
    gradients = differentiated_inputs(graph) if differentiated is None else differentiated
    derivations = {operator.name: derivation_of(operator) for operator in graph}
    found: dict[object, LocalOperator] = {}
    weight: dict[object, int] = {}
    for group in strategy_choices(graph, mesh, batch_placeholders, derivations):
        for name in group.members:
            operator, derivation = graph[name], derivations[name]
            inputs = gradients.get(name, ())
            among = group.options if strategies is None else strategies
            for configuration in dict.fromkeys(option[name] for option in among):
                work = operator_work(operator, derivation, configuration, mesh, len(inputs))
                if work is None:
                    continue
                key = work_key(work)
                found.setdefault(
                    key, LocalOperator(operator, derivation, configuration, inputs, work)
                )
                weight[key] = weight.get(key, 0) + roofline_time(device, work).total
    return tuple(found[key] for key in sorted(found, key=lambda key: -weight[key]))
