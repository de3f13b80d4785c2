"""Operators outside of the plan that compute a variable's new value: they lie as it is stored.

A program that initialises variables has operators that no plan knows. Left to themselves they run
whole on every device, and a large variable then exists whole before each device cuts its piece.
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
    """Let what an assignment stores be computed in the layout that it is stored in.

    Backwards from every assignment: an operator without a planned configuration is split so that
    its output has its first reader's layout, as far as it can be split without a reduction.

    Args:
        strategy: changed in place, where an operator would run whole on every device.
        planned: names of the operators that have a configuration of their own.
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
            found = fitted(_producing(derivation, wanted, tensor.index), derivation, strategy.mesh)
            if any(found.splits):
                strategy.reconfigure(source.name, found)
                reached.add(source.name)


def _computes(operator: Operator) -> bool:
    """Whether a configuration of its own decides how the operator's outputs lie."""
    if operator.is_variable or operator.is_placeholder or operator.is_constant:
        return False
    types = [spec.dtype for spec in operator.input_specs]  # what reads a variable lies as it does
    reads = any(dtype == "resource" or dtype.endswith("_ref") for dtype in types)
    return not reads and operator.gradient is None


def _producing(derivation: Derivation, wanted: Layout, output: int) -> Configuration:
    """The configuration that makes an output in a layout, as far as its indices can be split."""
    splits: list[tuple[int, ...]] = [()] * len(derivation.indices)
    for number, axes in zip(derivation.outputs[output], wanted.dims, strict=True):
        if number is not None:
            splits[number] = axes
    return Configuration(tuple(splits))
