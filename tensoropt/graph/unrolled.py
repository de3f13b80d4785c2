"""Find the steps of an unrolled recurrence, which repeat the same operators with the same
variables.

A recurrent layer that a script unrolls over time is one layer, not one for every step. This module
finds the operators that correspond to each other in different steps, so that one configuration can
be chosen for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise

from tensoropt.graph.operator import Graph
from tensoropt.graph.tied_operators import leaders

__all__ = ["FEWEST_STEPS", "same_in_every_step"]

FEWEST_STEPS = 3
"""Smallest number of uses of a variable, each depending on the one before, in a recurrence."""

_VariableUse = tuple[str, int, Hashable]
"""A variable, the number of the input that reads it, and the signature of the reader."""


def same_in_every_step(
    graph: Graph,
    signature: Callable[[str], Hashable],
    leader_of: Mapping[str, str] | None = None,
) -> Mapping[str, str]:
    """Return for every operator the corresponding operator of the first step, mostly itself.

    A recurrence consists of operators with equal signatures that use one variable at least
    `FEWEST_STEPS` times, where each depends on the one before. Starting from two successive uses,
    operators correspond if their signatures are equal and they make the same inputs of
    corresponding operators, or read the same outputs. An operator that both steps share corresponds
    to none.

    Args:
        graph: the graph.
        signature: a key that is equal for equal operators, including their shapes.
        leader_of: by default `tensoropt.graph.tied_operators.leaders` of the graph.
    """
    leader_of = leaders(graph) if leader_of is None else leader_of
    variable_of = {name: leader for name, leader in leader_of.items() if graph[leader].is_variable}
    uses: dict[_VariableUse, list[str]] = {}
    for operator in graph:
        if operator.name in variable_of:
            continue
        for number, tensor in enumerate(operator.inputs):
            if tensor.operator in variable_of:
                use = variable_of[tensor.operator], number, signature(operator.name)
                uses.setdefault(use, []).append(operator.name)
    recurrences = _recurrences(graph, list(uses.values()))
    if not recurrences:
        return {name: name for name in graph.operators}
    classes = _Classes(graph, signature, variable_of)
    for steps in recurrences:
        for step, next_step in pairwise(steps):
            classes.tie(step, next_step)
    return classes.first()


def _recurrences(graph: Graph, candidates: list[list[str]]) -> list[list[str]]:
    """Return the candidates in which each operator depends on the one before."""
    candidates = [names for names in candidates if len(set(names)) >= FEWEST_STEPS]
    number = {name: 0 for names in candidates for name in names}
    number = {name: position for position, name in enumerate(number)}
    ancestors: dict[str, int] = {}  # bit n stands for the operator with number n
    for operator in graph:
        bits = 1 << number[operator.name] if operator.name in number else 0
        for tensor in operator.inputs:
            bits |= ancestors.get(tensor.operator, 0)
        ancestors[operator.name] = bits
    return [
        names
        for names in candidates
        if all(ancestors[later] >> number[earlier] & 1 for earlier, later in pairwise(names))
    ]


class _Classes:
    """Classes of corresponding operators. Inside it an operator is a number."""

    def __init__(
        self, graph: Graph, signature: Callable[[str], Hashable], excluded: Mapping[str, str]
    ) -> None:
        self._names = list(graph.operators)
        self._number = number_of = {name: number for number, name in enumerate(self._names)}
        self._parent = list(range(len(self._names)))
        self._inputs: list[list[int]] = []
        # The readers of each operator, and the kind of each read, which is mostly the same in two
        # steps.
        self._users: list[list[int]] = [[] for _ in self._names]
        self._uses: list[list[Hashable]] = [[] for _ in self._names]
        self._signature: list[Hashable] = []  # None for an operator that corresponds to no other
        for number, (name, operator) in enumerate(graph.operators.items()):
            is_single = (
                name in excluded
                or operator.is_constant
                or operator.is_placeholder
                or operator.gradient is not None
            )
            self._signature.append(None if is_single else signature(name))
            producers = [number_of[tensor.operator] for tensor in operator.inputs]
            self._inputs.append(producers)
            for input_number, producer in enumerate(producers):
                if self._signature[producer] is not None:
                    self._users[producer].append(number)
                    use = operator.type, input_number, operator.inputs[input_number].index
                    self._uses[producer].append(use)

    def first(self) -> dict[str, str]:
        """Return the first operator of every operator's class."""
        return {name: self._names[self._root(number)] for number, name in enumerate(self._names)}

    def _root(self, number: int) -> int:
        parent = self._parent
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    def tie(self, step: str, next_step: str) -> None:
        """Put two operators of successive steps in one class, and those around them."""
        waiting = [(self._number[step], self._number[next_step])]
        while waiting:
            first, second = waiting.pop()
            if self._parent[first] == self._parent[second]:
                continue
            roots = self._root(first), self._root(second)
            if roots[0] == roots[1] or not self._corresponds(first, second):
                continue
            self._parent[max(roots)] = min(roots)
            waiting += zip(self._inputs[first], self._inputs[second], strict=True)
            waiting += self._same_users(first, second)

    def _same_users(self, first: int, second: int) -> list[tuple[int, int]]:
        """Return pairs of readers that read two operators in the same way, equally often."""
        if self._uses[first] == self._uses[second]:
            return list(zip(self._users[first], self._users[second], strict=True))
        pairs = []
        users_of_second = self._by_use(second)
        for use, users in self._by_use(first).items():
            same = users_of_second.get(use, [])
            if len(users) == len(same):
                pairs += list(zip(users, same, strict=True))
        return pairs

    def _by_use(self, number: int) -> dict[Hashable, list[int]]:
        users_by_use: dict[Hashable, list[int]] = {}
        for use, user in zip(self._uses[number], self._users[number], strict=True):
            users_by_use.setdefault(use, []).append(user)
        return users_by_use

    def _corresponds(self, first: int, second: int) -> bool:
        """Whether two operators may be in one class. An operator that two steps share may not."""
        signature = self._signature[first]
        return first != second and signature is not None and signature == self._signature[second]
