"""Named dimensions: classes of dimensions of tensors that are one and the same.

In Mesh-TensorFlow a script names every dimension of every tensor. Here names are derived from the
operators' iteration spaces: an index ties the dimensions that it runs along. The batch, a layer's
channels and the heads of an attention each are one class, from the tensor where the class begins to
the last operator that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.graph.operator import TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.problem.from_graph import GraphProblem

__all__ = ["NamedDimensions", "named_dimensions"]

_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class NamedDimensions:
    """The name of every index of every operator.

    Attributes:
        of_operator: for each operator the name of each index of its iteration space. Different
            indices of an operator have different names.
        count: names are 0 to count - 1, in the order of the graph.
    """

    of_operator: Mapping[str, tuple[int, ...]]
    count: int


class _Classes:
    """Union-find over dimensions of tensors and indices of operators.

    A class has at most one dimension of each tensor and one index of each operator, as
    Mesh-TensorFlow demands of names. Classes whose union would have two stay apart (there a script
    renames the dimension).
    """

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._owners: list[set[str]] = []
        self._number: dict[_Place, int] = {}

    def find(self, place: _Place) -> int:
        number = self._number.setdefault(place, len(self._parent))
        if number == len(self._parent):
            self._parent.append(number)
            self._owners.append({place[0]})
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def unite(self, one: _Place, other: _Place) -> None:
        first, second = self.find(one), self.find(other)
        if first == second or not self._owners[first].isdisjoint(self._owners[second]):
            return
        if len(self._owners[first]) < len(self._owners[second]):
            first, second = second, first
        self._parent[second] = first
        self._owners[first] |= self._owners[second]
        self._owners[second] = set()


def named_dimensions(problem: GraphProblem) -> NamedDimensions:
    """Name the indices of a graph's operators, see the head of this file.

    A gradient's dimensions have the names of the differentiated tensor's. Operators that are
    configured together have the same names.
    """
    classes = _Classes()
    for operator in problem.graph:
        _unite_operator(classes, problem, operator.name)
    tied = leaders(problem.graph)
    for group in problem.choices:
        for name in group.members:
            # A weight that is stored as it is read has the names of its reader's input.
            leader = tied[name] if name in group.weights else group.leader
            own, indices = (problem.derivations[each].indices for each in (leader, name))
            if [index.extent for index in indices] == [index.extent for index in own]:
                for number in range(len(indices)):
                    classes.unite((leader, number), (name, number))
    numbers: dict[int, int] = {}
    names = {}
    for operator in problem.graph:
        indices = problem.derivations[operator.name].indices
        roots = [classes.find((operator.name, number)) for number in range(len(indices))]
        names[operator.name] = tuple(numbers.setdefault(root, len(numbers)) for root in roots)
    return NamedDimensions(names, len(numbers))


def _unite_operator(classes: _Classes, problem: GraphProblem, name: str) -> None:
    operator, derivation = problem.graph[name], problem.derivations[name]
    outputs = [TensorName(name, number) for number in range(len(operator.outputs))]
    ends = [*zip(outputs, derivation.outputs, strict=False)]
    if operator.gradient is None:
        ends += zip(operator.inputs, derivation.inputs, strict=False)
    elif operator.gradient.part == "dense":
        ends += [(operator.gradient.x, dims) for dims in derivation.outputs]
    for tensor, dims in ends:
        for dim, index in enumerate(dims):
            if index is not None:
                classes.unite((name, index), (f"{tensor.operator}:{tensor.index}", dim))
