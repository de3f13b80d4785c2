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


def same_in_every_step(
    graph: Graph,
    signature: Callable[[str], Hashable],
    leader_of: Mapping[str, str] | None = None,
) -> Mapping[str, str]:
    """For every operator the first one that does the same in an earlier step; mostly itself.

    A recurrence is where operators alike read one variable at least `FEWEST_STEPS` times, each
    depending on the one before. From every two successive ones on, what makes their inputs is the
    same in both steps, and what uses their outputs, as long as it is alike; an operator that both
    steps share belongs to neither.

    Args:
        graph: the graph.
        signature: equal for operators that are alike, shapes included.
        leader_of: by default `tensoropt.graph.coarsen.leaders` of the graph.
    """
    leader_of = leaders(graph) if leader_of is None else leader_of
    variable_of = {name: leader for name, leader in leader_of.items() if graph[leader].is_variable}
    uses: dict[_Use, list[str]] = {}
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
    found = _Same(graph, signature, variable_of)
    for steps in recurrences:
        for one, other in pairwise(steps):
            found.tie(one, other)
    return found.first()


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
    """Classes of operators that do the same in different steps. Operators are numbered here."""

    def __init__(
        self, graph: Graph, signature: Callable[[str], Hashable], excluded: Mapping[str, str]
    ) -> None:
        self._names = list(graph.operators)
        self._place = place_of = {name: place for place, name in enumerate(self._names)}
        self._parent = list(range(len(self._names)))
        self._inputs: list[list[int]] = []
        # Who reads an operator that is not alone, and how, which mostly is the same in two steps.
        self._users: list[list[int]] = [[] for _ in self._names]
        self._uses: list[list[Hashable]] = [[] for _ in self._names]
        self._signature: list[Hashable] = []  # None where an operator is like no other
        for place, (name, operator) in enumerate(graph.operators.items()):
            alone = (
                name in excluded
                or operator.is_constant
                or operator.is_placeholder
                or operator.gradient is not None
            )
            self._signature.append(None if alone else signature(name))
            makers = [place_of[tensor.operator] for tensor in operator.inputs]
            self._inputs.append(makers)
            for number, maker in enumerate(makers):
                if self._signature[maker] is not None:
                    self._users[maker].append(place)
                    self._uses[maker].append((operator.type, number, operator.inputs[number].index))

    def first(self) -> dict[str, str]:
        """The first operator of every operator's class."""
        return {name: self._names[self._root(place)] for place, name in enumerate(self._names)}

    def _root(self, place: int) -> int:
        parent = self._parent
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place

    def tie(self, one: str, other: str) -> None:
        """Make two operators of successive steps the same, and what is around them."""
        waiting = [(self._place[one], self._place[other])]
        while waiting:
            here, there = waiting.pop()
            if self._parent[here] == self._parent[there]:
                continue
            roots = self._root(here), self._root(there)
            if roots[0] == roots[1] or not self._alike(here, there):
                continue
            self._parent[max(roots)] = min(roots)
            waiting += zip(self._inputs[here], self._inputs[there], strict=True)
            waiting += self._same_users(here, there)

    def _same_users(self, here: int, there: int) -> list[tuple[int, int]]:
        """Those that use one as they do the other, as often."""
        if self._uses[here] == self._uses[there]:
            return list(zip(self._users[here], self._users[there], strict=True))
        found = []
        others = self._by_use(there)
        for use, users in self._by_use(here).items():
            same = others.get(use, [])
            if len(users) == len(same):
                found += list(zip(users, same, strict=True))
        return found

    def _by_use(self, place: int) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = {}
        for use, user in zip(self._uses[place], self._users[place], strict=True):
            found.setdefault(use, []).append(user)
        return found

    def _alike(self, here: int, there: int) -> bool:
        """Whether they may be one; an operator that two steps share stays by itself."""
        own = self._signature[here]
        return here != there and own is not None and own == self._signature[there]
