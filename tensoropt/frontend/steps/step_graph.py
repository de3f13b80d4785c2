"""The script graph that steps with the same variables share, so that a variable exists once.

A step that computes gradients has a graph of its own, since a plan is for one training step. A step
without gradients, such as an evaluation, becomes part of the graph that has its variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

__all__ = ["Captured", "StepGraph", "graph_for", "home_changes", "home_of", "settle"]

_HOME = "_tensoropt_home"


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A variable that a step captures, and its counterparts in the step's graph.

    Attributes:
        variable: the script's variable.
        handle: name of the graph's variable.
        value: name of the tensor that reads the graph's variable at the end of a step.
        assign: name of the operator that sets the graph's variable to the value fed to ``given``.
        given: name of a placeholder.
        is_written: whether the step may change the variable.
    """

    variable: tf.Variable
    handle: str
    value: str
    assign: str
    given: str
    is_written: bool


@dataclass(slots=True, eq=False)
class StepGraph:
    """A script graph of one or more steps.

    Attributes:
        trains: whether it has a step that computes gradients.
        graph: the graph.
        captured: the variables of the graph, by the `id` of the script's variable.
        functions: number of functions in the graph.
        owners: number of steps that keep the graph alive: the training step, or all steps of a
            graph without one.
    """

    trains: bool
    graph: tf.Graph = field(default_factory=tf.Graph)
    captured: dict[int, Captured] = field(default_factory=dict)
    functions: int = 0
    owners: int = 0

    @property
    def variables(self) -> list[Any]:
        """The script's variables that the graph has."""
        return [captured.variable for captured in self.captured.values()]

    def close(self) -> None:
        """Make the graph no variable's home. The next trace makes another one."""
        global _changes
        _changes += 1
        for variable in self.variables:
            if variable.__dict__.get(_HOME) is self:
                del variable.__dict__[_HOME]


# Each variable of the script knows its home: the graph of the last training step that captures it,
# or of the first step without gradients. The number counts changes of homes.
_changes = 0


def home_changes() -> int:
    """The number of times that homes have changed."""
    return _changes


def home_of(variables: Iterable[Any]) -> StepGraph | None:
    """The graph that is the home of most elements of some variables; None if none has a home."""
    elements: dict[StepGraph, int] = {}
    for variable in variables:
        home = variable.__dict__.get(_HOME)
        if home is not None:
            count = variable.shape.num_elements() or 0
            elements[home] = elements.get(home, 0) + count + 1
    return max(elements, key=elements.__getitem__, default=None)


def graph_for(variables: Iterable[Any], trains: bool) -> StepGraph:
    """The graph into which a step with some variables is imported."""
    home = None if trains else home_of(variables)
    return StepGraph(trains) if home is None else home


def settle(step_graph: StepGraph) -> list[StepGraph]:
    """Make a graph the home of its variables.

    A graph that trains becomes the home of all of them; another graph, of variables without a home.

    Returns:
        The graphs without a training step that are no longer the home of any variable.
    """
    global _changes
    left: dict[StepGraph, None] = {}
    for variable in step_graph.variables:
        home = variable.__dict__.get(_HOME)
        if home is None or (step_graph.trains and home is not step_graph):
            variable.__dict__[_HOME] = step_graph
            if home is not None:
                left[home] = None
                _changes += 1
    return [
        graph
        for graph in left
        if not graph.trains
        and all(variable.__dict__.get(_HOME) is not graph for variable in graph.variables)
    ]
