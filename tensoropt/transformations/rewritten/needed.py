"""The operators that some roots need in a graph that is being changed, in topological order."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from tensoropt.graph.operator import Graph, Operator

__all__ = ["needed"]


def needed(operators: Mapping[str, Operator], roots: Collection[str]) -> Graph | None:
    """The operators that the roots need, in topological order and otherwise in the given order.

    None if there is a cycle.
    """
    needs = {name: _needs(operator) for name, operator in operators.items()}
    reached: set[str] = set()
    waiting = [name for name in roots if name in operators]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [before for before in needs[name] if before not in reached]
    in_order: dict[str, Operator] = {}
    for name, operator in operators.items():
        if name in reached:
            if not all(map(in_order.__contains__, needs[name])):
                break
            in_order[name] = operator
    if len(in_order) == len(reached):
        return Graph(in_order)
    place = {name: number for number, name in enumerate(operators) if name in reached}
    users: dict[str, list[str]] = {}
    left = {}
    for name in place:
        before = set(needs[name])
        left[name] = len(before)
        for needed_name in before:
            users.setdefault(needed_name, []).append(name)
    ready = [number for name, number in place.items() if not left[name]]
    heapq.heapify(ready)
    names = list(operators)
    result: dict[str, Operator] = {}
    while ready:
        name = names[heapq.heappop(ready)]
        result[name] = operators[name]
        for user in users.get(name, ()):
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, place[user])
    return Graph(result) if len(result) == len(place) else None


def _needs(operator: Operator) -> list[str]:
    names = operator.predecessors
    if operator.gradient is not None:
        tag = operator.gradient
        names += [tag.x.operator, *(t.operator for t in tag.stop_gradients), *tag.after]
    return names
