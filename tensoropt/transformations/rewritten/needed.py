"""The operators that some roots need in a graph that is being changed, in topological order."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.per_graph import per_graph

__all__ = ["is_needed_in_order", "needed", "operators_needed"]


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


@per_graph
def is_needed_in_order(graph: Graph, roots: frozenset[str]) -> bool:
    """Whether `needed` leaves a graph as it is."""
    result = needed(graph.operators, roots)
    return result is not None and list(result.operators) == list(graph.operators)


@per_graph
def operators_needed(graph: Graph, type_: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The operators of a type that each operator needs, as bits.

    Returns:
        The bit of each operator of the type; and for each operator the bits of itself and of all
        that it needs through inputs and control inputs.
    """
    names = [operator.name for operator in graph if operator.type == type_]
    own = {name: 1 << number for number, name in enumerate(names)}
    bits: dict[str, int] = {}
    for operator in graph:
        needed_by = own.get(operator.name, 0)
        for name in operator.predecessors:
            needed_by |= bits.get(name, 0)
        bits[operator.name] = needed_by
    return own, bits


def _needs(operator: Operator) -> list[str]:
    names = operator.predecessors
    if operator.gradient is not None:
        tag = operator.gradient
        names += [tag.x.operator, *(t.operator for t in tag.stop_gradients), *tag.after]
    return names
