"""Orders that the script leaves open: of reads and changes of variables, of reads of statistics.

In a run of a training operator and of something made from a counter, TensorFlow may read the
counter before or after the step that counts. On several ranks each would choose for itself, so
here the read comes first: one of the orders that TensorFlow allows, and the same on all ranks.
(Of a variable that is fetched itself the value is the one after the run.)
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
"""By operator, the operators that it gets to run after, besides those that it says itself."""


def in_order(operators: Mapping[str, Operator]) -> Graph | None:
    """Make a graph of operators that are listed in any order; None where they need each other.

    The order is topological, by control inputs, too, and as near to the given one as that allows.
    """
    names = _sorted(operators, {})
    return (
        Graph({name: operators[name] for name in names}) if len(names) == len(operators) else None
    )


def reads_first(graph: Graph, unset: frozenset[str] = frozenset()) -> Graph:
    """Let every change of a variable wait for the reads that nothing orders before or after it.

    Args:
        graph: operators in topological order.
        unset: variables that have no value before the run; their reads wait for one.

    Returns:
        The same operators, with further control inputs, in topological order.
    """
    after: dict[str, set[str]] = defaultdict(set)
    for read, change in _unordered(graph, unset):
        if not _reaches(graph, after, change, read):
            after[change].add(read)
    if not after:
        return graph
    waiting = {
        operator.name: replace(
            operator,
            control_inputs=(*operator.control_inputs, *sorted(after[operator.name])),
        )
        if operator.name in after
        else operator
        for operator in graph
    }
    return Graph({name: waiting[name] for name in _sorted(graph.operators, after)})


def statistics_last(graph: Graph) -> Graph:
    """Put off what needs local statistics of batch normalisation until nothing else can be next.

    Those of all layers are there when the first is read, and are averaged together.

    Args:
        graph: operators in topological order.

    Returns:
        The same operators in topological order; the graph itself where there is nothing to do.
    """
    late: set[str] = set()
    for operator in graph:
        needs = any(
            tensor.index and LOCAL_STATISTICS in graph[tensor.operator].attributes
            for tensor in operator.inputs
        )
        if needs or not late.isdisjoint(_needed(graph, operator)):
            late.add(operator.name)
    if not late:
        return graph
    return Graph({name: graph[name] for name in _sorted(graph.operators, {}, late)})


def changes_last(graph: Graph) -> Graph:
    """Put off changes of variables, and what needs them, until nothing else can be next.

    Args:
        graph: operators in topological order.

    Returns:
        The same operators in topological order.
    """
    late: set[str] = set()
    for operator in graph:
        if operator.mutates or not late.isdisjoint(_needed(graph, operator)):
            late.add(operator.name)
    return Graph({name: graph[name] for name in _sorted(graph.operators, {}, late)})


def _unordered(graph: Graph, unset: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Pairs of a read and a change of one variable, neither of which needs the other."""
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
    behind: dict[str, int] = {}
    for operator in graph:
        found = bits.get(operator.name, 0)
        for name in _needed(graph, operator):
            found |= behind.get(name, 0)
        behind[operator.name] = found
    for variable in shared:
        for change in changes[variable]:
            for read in reads[variable]:
                if not (behind[change] & bits[read] or behind[read] & bits[change]):
                    yield read, change


def _needed(graph: Container[str], operator: Operator) -> list[str]:
    return [name for name in operator.predecessors if name in graph]


def _reaches(graph: Graph, after: After, start: str, end: str) -> bool:
    """Whether ``end`` needs ``start``, directly or not."""
    waiting, seen = [end], {end}
    while waiting:
        name = waiting.pop()
        if name == start:
            return True
        for needed in (*_needed(graph, graph[name]), *after.get(name, ())):
            if needed not in seen:
                seen.add(needed)
                waiting.append(needed)
    return False


def _sorted(
    operators: Mapping[str, Operator], after: After, late: Set[str] = frozenset()
) -> list[str]:
    """Topological order, as near to the given one as the new edges let it be.

    What is late comes where nothing else can come next. Operators of a cycle are left out.
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
    found = []
    while ready:
        name = names[heapq.heappop(ready)]
        found.append(name)
        for user in users[name]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, position[user])
    return found
