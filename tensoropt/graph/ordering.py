"""Decide orders that the script leaves open, so that all ranks run operators in the same order.

For example, a run may fetch a tensor computed from a counter together with the training operator.
TensorFlow may then read the counter before or after the step changes it, and each rank would choose
for itself. Here the read comes first, which is one of the orders that TensorFlow allows. (A
variable that is fetched itself has the value after the run.)
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import replace

from tensoropt.graph.batch_norm import LOCAL_STATISTICS
from tensoropt.graph.operator import Graph, Operator
from tensoropt.tdl import operator_type

__all__ = ["changes_last", "in_order", "reads_first", "statistics_last"]

After = Mapping[str, set[str]]
"""For each operator, further operators after which it runs."""


def in_order(operators: Mapping[str, Operator]) -> Graph | None:
    """Return a graph of operators that are listed in any order, None if they have a cycle.

    The order is topological, also by control inputs, and otherwise close to the given one.
    """
    names = _sorted(operators, {})
    if len(names) < len(operators):
        return None
    return Graph({name: operators[name] for name in names})


def reads_first(graph: Graph, unset: frozenset[str] = frozenset()) -> Graph:
    """Let every change of a variable wait for the reads whose order the script leaves open.

    Args:
        graph: the operators in topological order.
        unset: variables that have no value before the run. Their reads have to wait for one.

    Returns:
        The same operators with further control inputs, in topological order.
    """
    after: dict[str, set[str]] = defaultdict(set)
    for read, change in _unordered(graph, unset):
        if not _reaches(graph, after, change, read):
            after[change].add(read)
    if not after:
        return graph
    ordered = {
        operator.name: replace(
            operator,
            control_inputs=(*operator.control_inputs, *sorted(after[operator.name])),
        )
        if operator.name in after
        else operator
        for operator in graph
    }
    return Graph({name: ordered[name] for name in _sorted(graph.operators, after)})


def statistics_last(graph: Graph) -> Graph:
    """Move operators that need local statistics of batch normalisation as far back as possible.

    The statistics of all layers are then computed when the first of them is read, and are averaged
    together.

    Args:
        graph: the operators in topological order.

    Returns:
        The same operators in topological order, or the same graph if it has no local statistics.
    """
    late: set[str] = set()
    for operator in graph:
        reads_statistics = any(
            tensor.index and LOCAL_STATISTICS in graph[tensor.operator].attributes
            for tensor in operator.inputs
        )
        if reads_statistics or not late.isdisjoint(_needed(graph, operator)):
            late.add(operator.name)
    if not late:
        return graph
    return Graph({name: graph[name] for name in _sorted(graph.operators, {}, late)})


def changes_last(graph: Graph) -> Graph:
    """Move changes of variables, and operators that need them, as far back as possible.

    Args:
        graph: the operators in topological order.

    Returns:
        The same operators in topological order.
    """
    late: set[str] = set()
    for operator in graph:
        if operator.mutates or not late.isdisjoint(_needed(graph, operator)):
            late.add(operator.name)
    return Graph({name: graph[name] for name in _sorted(graph.operators, {}, late)})


def _unordered(graph: Graph, unset: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of a read and a change of one variable, neither of which needs the other."""
    reads: dict[str, list[str]] = defaultdict(list)
    changes: dict[str, list[str]] = defaultdict(list)
    for operator in graph:
        for number, tensor in enumerate(operator.inputs):
            if tensor.operator not in graph or not graph[tensor.operator].is_variable:
                continue
            if number in operator.mutates:
                changes[tensor.operator].append(operator.name)
            elif operator_type(operator.type).reads_variable and tensor.operator not in unset:
                reads[tensor.operator].append(operator.name)
    shared = sorted(reads.keys() & changes.keys())
    marked = [name for variable in shared for name in (*reads[variable], *changes[variable])]
    bits = {name: 1 << number for number, name in enumerate(dict.fromkeys(marked))}
    ancestors: dict[str, int] = {}
    for operator in graph:
        marked_ancestors = bits.get(operator.name, 0)
        for name in _needed(graph, operator):
            marked_ancestors |= ancestors.get(name, 0)
        ancestors[operator.name] = marked_ancestors
    for variable in shared:
        for change in changes[variable]:
            for read in reads[variable]:
                if not (ancestors[change] & bits[read] or ancestors[read] & bits[change]):
                    yield read, change


def _needed(graph: Container[str], operator: Operator) -> list[str]:
    return [name for name in operator.predecessors if name in graph]


def _reaches(graph: Graph, after: After, start: str, end: str) -> bool:
    """Whether ``end`` needs ``start``, directly or through other operators."""
    waiting, visited = [end], {end}
    while waiting:
        name = waiting.pop()
        if name == start:
            return True
        for needed in (*_needed(graph, graph[name]), *after.get(name, ())):
            if needed not in visited:
                visited.add(needed)
                waiting.append(needed)
    return False


def _sorted(
    operators: Mapping[str, Operator], after: After, late: Set[str] = frozenset()
) -> list[str]:
    """Return the names in topological order, otherwise close to the given order.

    Operators in ``late`` come when no other operator can come next. Operators of a cycle are left
    out.
    """
    names = sorted(operators, key=late.__contains__)
    position = {name: number for number, name in enumerate(names)}
    missing: dict[str, int] = {}
    users: dict[str, list[str]] = defaultdict(list)
    for operator in operators.values():
        needed = {*_needed(operators, operator), *after.get(operator.name, ())}
        missing[operator.name] = len(needed)
        for name in needed:
            users[name].append(operator.name)
    ready = [position[name] for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for user in users[name]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, position[user])
    return order
