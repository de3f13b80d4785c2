"""Steps of an unrolled recurrence: the same operators again and again, with the same variables.

A recurrent layer that a script unrolls over time is one layer, not one for every step: its steps
use the same variables one after the other. Operators that do the same thing in different steps are
found here, so that one choice can be made for them all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise

from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph

__all__ = ["FEWEST_STEPS", "same_in_every_step"]

FEWEST_STEPS = 3
"""Uses of a variable, each depending on the one before, that make a recurrence."""

_Use = tuple[str, int, Hashable]  # a variable, the input that reads it, what the reader is


def same_in_every_step(graph: Graph, signature: Callable[[str], Hashable]) -> Mapping[str, str]:
    """For every operator the first one that does the same in an earlier step; mostly itself.

    A recurrence is where operators alike read one variable at least `FEWEST_STEPS` times, each
    depending on the one before. From every two successive ones on, what makes their inputs is the
    same in both steps, and what uses their outputs, as long as it is alike; an operator that both
    steps share belongs to neither.

    Args:
        graph: the graph.
        signature: equal for operators that are alike, shapes included.
    """
    variable_of = {
        name: leader for name, leader in leaders(graph).items() if graph[leader].is_variable
    }
    uses: dict[_Use, list[str]] = {}
    for operator in graph:
        for number, tensor in enumerate(operator.inputs):
            if tensor.operator in variable_of and operator.name not in variable_of:
                use = variable_of[tensor.operator], number, signature(operator.name)
                uses.setdefault(use, []).append(operator.name)
    found = _Same(graph, signature, variable_of)
    for steps in _recurrences(graph, list(uses.values())):
        for one, other in pairwise(steps):
            found.tie(one, other)
    return {operator.name: found.first(operator.name) for operator in graph}


def _recurrences(graph: Graph, candidates: list[list[str]]) -> list[list[str]]:
    """Those of which each operator depends on the one before."""
    candidates = [names for names in candidates if len(set(names)) >= FEWEST_STEPS]
    number = {name: 0 for names in candidates for name in names}
    number = {name: place for place, name in enumerate(number)}
    before: dict[str, int] = {}
    for operator in graph:
        reached = 1 << number[operator.name] if operator.name in number else 0
        for tensor in operator.inputs:
            reached |= before.get(tensor.operator, 0)
        before[operator.name] = reached
    return [
        names
        for names in candidates
        if all(before[other] >> number[one] & 1 for one, other in pairwise(names))
    ]


class _Same:
    """Classes of operators that do the same in different steps."""

    def __init__(
        self, graph: Graph, signature: Callable[[str], Hashable], excluded: Mapping[str, str]
    ) -> None:
        self._graph = graph
        self._signature = signature
        self._excluded = excluded
        self._order = {operator.name: place for place, operator in enumerate(graph)}
        self._parent = {name: name for name in self._order}
        self._users: dict[str, dict[Hashable, list[str]]] = {name: {} for name in self._order}
        for operator in graph:
            for number, tensor in enumerate(operator.inputs):
                use = operator.type, number, tensor.index
                self._users[tensor.operator].setdefault(use, []).append(operator.name)

    def first(self, name: str) -> str:
        """The first operator of a class."""
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def tie(self, one: str, other: str) -> None:
        """Make two operators of successive steps the same, and what is around them."""
        waiting = [(one, other)]
        while waiting:
            first, second = sorted(map(self.first, waiting[-1]), key=self._order.__getitem__)
            one, other = waiting.pop()
            if first == second or not self._alike(one, other):
                continue
            self._parent[second] = first
            waiting += [
                (here.operator, there.operator)
                for here, there in zip(
                    self._graph[one].inputs, self._graph[other].inputs, strict=True
                )
            ]
            for use, users in self._users[one].items():
                others = self._users[other].get(use, [])
                if len(users) == len(others):
                    waiting += zip(users, others, strict=True)

    def _alike(self, one: str, other: str) -> bool:
        if one == other or one in self._excluded or other in self._excluded:
            return False
        operators = self._graph[one], self._graph[other]
        if any(o.is_constant or o.is_placeholder or o.gradient is not None for o in operators):
            return False
        return self._signature(one) == self._signature(other)
