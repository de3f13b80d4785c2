"""From a logical graph to the search's problem: nodes, slots and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import CostModel
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.choices import Choices, configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration, input_slot
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import reshard_times
from tensoropt.parallel.strategy import (
    derivation_of,
    produced_slot,
)
from tensoropt.search.operator_costs import operator_memory_bytes, operator_nanoseconds
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.tdl import Derivation

__all__ = ["GraphProblem", "graph_problem", "least_memory_bytes"]


@dataclass(frozen=True, slots=True, eq=False)
class GraphProblem:
    """A search problem and what its numbers stand for.

    Attributes:
        problem: nodes are groups of operators that share a configuration.
        graph: the graph it was made from.
        mesh: the devices.
        choices: per node the group and its options, numbered as the node's configurations.
        derivations: of every operator.
        time: per operator, nanoseconds by configuration number of its node.
        memory: per operator, bytes by configuration number of its node.
    """

    problem: Problem
    graph: Graph
    mesh: Mesh
    choices: tuple[Choices, ...]
    derivations: Mapping[str, Derivation]
    time: Mapping[str, npt.NDArray[np.int64]]
    memory: Mapping[str, npt.NDArray[np.int64]]

    def configurations(self, strategy: Sequence[int]) -> dict[str, Configuration]:
        """The configuration of every operator, for the configuration numbers of all nodes."""
        return configurations_of(self.choices, strategy)


def graph_problem(
    graph: Graph,
    mesh: Mesh,
    cost: CostModel,
    batch_placeholders: frozenset[str] = frozenset(),
) -> GraphProblem:
    """The search problem of a graph: costs by equations 1 and 2, per configuration and slot pair.

    What a step takes besides (starting it) is the first node's, whatever its configuration.
    Constants are no nodes: every rank has them, and takes its piece when the program is built.
    """
    return _Builder(graph, mesh, cost, batch_placeholders).build()


def least_memory_bytes(
    graph: Graph,
    mesh: Mesh,
    cost: CostModel,
    batch_placeholders: frozenset[str] = frozenset(),
) -> int:
    """The least memory per device of any strategy.

    Edges take no memory (equation 2), so it is the sum of every node's least, without a search.
    """
    return _Builder(graph, mesh, cost, batch_placeholders).least_memory_bytes()


class _Builder:
    def __init__(
        self, graph: Graph, mesh: Mesh, cost: CostModel, batch_placeholders: frozenset[str]
    ) -> None:
        self.graph = graph
        self.mesh = mesh
        self.cost = cost
        self.derivations = {operator.name: derivation_of(operator) for operator in graph}
        self.differentiated = differentiated_inputs(graph)
        self.choices = strategy_choices(graph, mesh, batch_placeholders, self.derivations)
        self.node_of = {
            name: number for number, group in enumerate(self.choices) for name in group.members
        }

    def build(self) -> GraphProblem:
        time: dict[str, npt.NDArray[np.int64]] = {}
        memory: dict[str, npt.NDArray[np.int64]] = {}
        nodes = []
        for group in self.choices:
            for name in group.members:
                time[name], memory[name] = self._operator_costs(self.graph[name], group.options)
            nodes.append(
                Node(
                    group.leader,
                    np.sum([memory[name] for name in group.members], axis=0, dtype=np.int64),
                    np.sum([time[name] for name in group.members], axis=0, dtype=np.int64),
                )
            )
        if nodes:
            first = nodes[0]
            overhead = self.cost.step_nanoseconds()
            nodes[0] = Node(first.name, first.memory, first.time + overhead)
        edges = [
            edge
            for operator in self.graph
            for number in range(len(operator.inputs))
            if (edge := self._edge(operator, number)) is not None
        ]
        return GraphProblem(
            problem=Problem(tuple(nodes), tuple(edges)),
            graph=self.graph,
            mesh=self.mesh,
            choices=self.choices,
            derivations=self.derivations,
            time=time,
            memory=memory,
        )

    def least_memory_bytes(self) -> int:
        """See the function of this name."""
        total = 0
        for group in self.choices:
            parts = [
                self._operator_costs(self.graph[name], group.options)[1] for name in group.members
            ]
            total += int(np.sum(parts, axis=0).min())
        return total

    def _operator_costs(
        self, operator: Operator, choices: Sequence[Mapping[str, Configuration]]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        derivation = self.derivations[operator.name]
        backward = len(self.differentiated.get(operator.name, ()))
        time = np.zeros(len(choices), np.int64)
        memory = np.zeros(len(choices), np.int64)
        known: dict[Configuration, tuple[int, int]] = {}
        for number, choice in enumerate(choices):
            configuration = choice[operator.name]
            if configuration not in known:
                known[configuration] = (
                    operator_nanoseconds(
                        operator, derivation, configuration, self.mesh, self.cost, backward
                    ),
                    operator_memory_bytes(
                        operator, derivation, configuration, self.mesh, self.cost
                    ),
                )
            time[number], memory[number] = known[configuration]
        return time, memory

    def _edge(self, operator: Operator, number: int) -> Edge | None:
        tensor = operator.inputs[number]
        source = self.node_of.get(tensor.operator)
        target = self.node_of.get(operator.name)
        if source is None or target is None or source == target or operator.gradient is not None:
            return None  # what a gradient is of stays where it is made
        carries = number in self.differentiated.get(operator.name, ())
        made, made_slots = self._slots(source, carries, lambda choice: self._made(tensor, choice))
        read, read_slots = self._slots(
            target,
            carries,
            lambda choice: input_slot(
                self.derivations[operator.name], choice[operator.name], number
            ),
        )
        time = self._edge_time(operator.input_specs[number], made, read, carries)
        if not time.any():
            return None
        memory = np.zeros_like(time)
        if source < target:
            return Edge(source, target, made_slots, read_slots, memory, time)
        return Edge(target, source, read_slots, made_slots, memory.T.copy(), time.T.copy())

    def _made(self, tensor: TensorName, choice: Mapping[str, Configuration]) -> Slot:
        return produced_slot(self.graph, self.derivations, choice, tensor)

    def _slots(
        self, node: int, carries: bool, slot_of: Callable[[Mapping[str, Configuration]], Slot]
    ) -> tuple[list[Slot], npt.NDArray[np.int64]]:
        """Distinct slots of a node's choices, and the slot number of each choice."""
        numbers: dict[Slot, int] = {}
        of_choice = np.zeros(len(self.choices[node].options), np.int64)
        for number, choice in enumerate(self.choices[node].options):
            slot = slot_of(choice)
            if not carries:
                slot = Slot(slot.forward, slot.forward)
            of_choice[number] = numbers.setdefault(slot, len(numbers))
        return list(numbers), of_choice

    def _edge_time(
        self, spec: TensorSpec, made: Sequence[Slot], read: Sequence[Slot], carries: bool
    ) -> npt.NDArray[np.int64]:
        """Equation 2: resharding forward, and of the gradient backward where there is one."""
        time = self._times(spec, [s.forward for s in made], [s.forward for s in read])
        if carries:
            time = (
                time + self._times(spec, [s.gradient for s in read], [s.gradient for s in made]).T
            )
        return time

    def _times(
        self, spec: TensorSpec, sources: Sequence[Layout], targets: Sequence[Layout]
    ) -> npt.NDArray[np.int64]:
        one = list(dict.fromkeys(sources))
        other = list(dict.fromkeys(targets))
        if -1 in spec.shape or (len(one) == 1 and one == other):
            return np.zeros((len(sources), len(targets)), np.int64)
        table = reshard_times(
            self.mesh, spec.shape, spec.itemsize, one, other, self.cost.collective_nanoseconds
        )
        rows = [one.index(layout) for layout in sources]
        columns = [other.index(layout) for layout in targets]
        return table[np.ix_(rows, columns)]
