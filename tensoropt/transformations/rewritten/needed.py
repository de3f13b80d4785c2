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
    needs: dict[str, tuple[str, ...]] = {}
    waiting = [name for name in roots if name in operators]
    while waiting:
        name = waiting.pop()
        if name not in needs:
            needs[name] = before = _needs(operators[name])
            waiting += before
    in_order: dict[str, Operator] = {}
    for name, operator in operators.items():
        if name in needs:
            if not all(map(in_order.__contains__, needs[name])):
                break
            in_order[name] = operator
    if len(in_order) == len(needs):
        return Graph(in_order)
    place = {name: number for number, name in enumerate(operators) if name in needs}
    users: dict[str, list[str]] = {}
    left = {}
    for name in place:
        needed_names = set(needs[name])
        left[name] = len(needed_names)
        for needed_name in needed_names:
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


def _needs(operator: Operator) -> tuple[str, ...]:
    tag = operator.gradient
    if tag is None:
        return operator.predecessors
    stops = (tensor.operator for tensor in tag.stop_gradients)
    return (*operator.predecessors, tag.x.operator, *stops, *tag.after)
