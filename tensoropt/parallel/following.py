"""Layouts for operators outside the plan that compute the new value of a variable.

A plan has no configurations for the operators that initialise variables. Without one, each device
would compute the whole initial value and then cut out its piece, so that a large variable would
exist whole on every device. Here these operators get the layout of the variable instead.
"""

from __future__ import annotations

from collections.abc import Collection

from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration, fitted
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import Derivation

__all__ = ["follow_assigned"]


def follow_assigned(strategy: Strategy, planned: Collection[str]) -> None:
    """Give the operators that compute an assigned value the layout in which it is stored.

    The operators are visited backwards from every assignment. An operator without a planned
    configuration is split so that its output has the layout of its first reader, as far as its
    indices can be split. A reduction index is not split.

    Args:
        strategy: changed in place, only for operators that are replicated.
        planned: names of the operators that have a planned configuration.
    """
    graph = strategy.graph
    reached = {operator.name for operator in graph if operator.mutates}
    for operator in reversed(tuple(graph)):
        if operator.name not in reached:
            continue
        for number, tensor in enumerate(operator.inputs):
            source = graph[tensor.operator]
            if source.name in reached or source.name in planned or not _computes(source):
                continue
            if number in operator.mutates or any(strategy.configurations[source.name].splits):
                continue
            wanted = strategy.input_slot(operator, number).forward
            derivation = strategy.derivations[source.name]
            configuration = fitted(
                _producing(derivation, wanted, tensor.index), derivation, strategy.mesh
            )
            if any(configuration.splits):
                strategy.reconfigure(source.name, configuration)
                reached.add(source.name)


def _computes(operator: Operator) -> bool:
    """Whether the operator's own configuration decides the layout of its outputs."""
    if operator.is_variable or operator.is_placeholder or operator.is_constant:
        return False
    dtypes = [spec.dtype for spec in operator.input_specs]
    # An operator that reads a variable has the layout of the variable.
    reads = any(dtype == "resource" or dtype.endswith("_ref") for dtype in dtypes)
    return not reads and operator.gradient is None


def _producing(derivation: Derivation, wanted: Layout, output: int) -> Configuration:
    """Return the configuration whose output has the wanted layout, as far as indices allow."""
    splits: list[tuple[int, ...]] = [()] * len(derivation.indices)
    for number, axes in zip(derivation.outputs[output], wanted.dims, strict=True):
        if number is not None:
            splits[number] = axes
    return Configuration(tuple(splits))
