"""From a logical graph to the search's problem: nodes, slots and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import CostModel
from tensoropt.graph.coarsen import Group, groups
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration, configurations, input_slot
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import reshard_times
from tensoropt.parallel.strategy import (
    derivation_of,
    follower_configuration,
    loader_configuration,
    produced_slot,
    redundant,
)
from tensoropt.search.operator_costs import operator_memory_bytes, operator_nanoseconds
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.tdl import Derivation

__all__ = ["GraphProblem", "graph_problem"]


@dataclass(frozen=True, slots=True, eq=False)
class GraphProblem:
    """A search problem and what its numbers stand for.

    Attributes:
        problem: nodes are groups of operators that share a configuration.
        graph: the graph it was made from.
        mesh: the devices.
        members: per node the operators of the group.
        choices: per node and configuration number, each member's configuration.
        derivations: of every operator.
        time: per operator, nanoseconds by configuration number of its node.
        memory: per operator, bytes by configuration number of its node.
    """

    problem: Problem
    graph: Graph
    mesh: Mesh
    members: tuple[tuple[str, ...], ...]
    choices: tuple[tuple[Mapping[str, Configuration], ...], ...]
    derivations: Mapping[str, Derivation]
    time: Mapping[str, npt.NDArray[np.int64]]
    memory: Mapping[str, npt.NDArray[np.int64]]

    def configurations(self, strategy: Sequence[int]) -> dict[str, Configuration]:
        """The configuration of every operator, for the configuration numbers of all nodes."""
        return {
            name: configuration
            for node, number in enumerate(strategy)
            for name, configuration in self.choices[node][number].items()
        }


def graph_problem(
    graph: Graph,
    mesh: Mesh,
    cost: CostModel,
    batch_placeholders: frozenset[str] = frozenset(),
) -> GraphProblem:
    """The search problem of a graph: costs by equations 1 and 2, per configuration and slot pair.

    Constants are no nodes: every rank has them, and takes its piece when the program is built.
    """
    return _Builder(graph, mesh, cost, batch_placeholders).build()


class _Builder:
    def __init__(
        self, graph: Graph, mesh: Mesh, cost: CostModel, batch_placeholders: frozenset[str]
    ) -> None:
        self.graph = graph
        self.mesh = mesh
        self.cost = cost
        self.batch_placeholders = batch_placeholders
        self.derivations = {operator.name: derivation_of(operator) for operator in graph}
        self.differentiated = differentiated_inputs(graph)
        self.groups = [g for g in groups(graph) if not self._is_constant(g)]
        self.node_of = {
            name: number for number, group in enumerate(self.groups) for name in group.members
        }
        self.choices = [self._choices(group) for group in self.groups]

    def build(self) -> GraphProblem:
        time: dict[str, npt.NDArray[np.int64]] = {}
        memory: dict[str, npt.NDArray[np.int64]] = {}
        nodes = []
        for group, choices in zip(self.groups, self.choices, strict=True):
            for name in group.members:
                time[name], memory[name] = self._operator_costs(self.graph[name], choices)
            nodes.append(
                Node(
                    group.leader,
                    np.sum([memory[name] for name in group.members], axis=0, dtype=np.int64),
                    np.sum([time[name] for name in group.members], axis=0, dtype=np.int64),
                )
            )
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
            members=tuple(group.members for group in self.groups),
            choices=tuple(self.choices),
            derivations=self.derivations,
            time=time,
            memory=memory,
        )

    def _is_constant(self, group: Group) -> bool:
        return len(group.members) == 1 and self.graph[group.leader].is_constant

    def _choices(self, group: Group) -> tuple[Mapping[str, Configuration], ...]:
        """Every configuration of the leader that all members can follow."""
        leader = self.derivations[group.leader]
        if self.graph[group.leader].is_placeholder:
            is_batch = group.leader in self.batch_placeholders
            candidates: Sequence[Configuration] = [
                loader_configuration(leader, self.mesh, is_batch)
            ]
        else:
            candidates = configurations(leader, self.mesh)
        choices = []
        for candidate in candidates:
            choice: dict[str, Configuration] = {}
            for name in group.members:
                derivation = self.derivations[name]
                if name == group.leader:
                    choice[name] = candidate
                elif self._lies_as_gradient(name, group.leader):
                    choice[name] = redundant(derivation)
                else:
                    followed = follower_configuration(leader, candidate, derivation)
                    if followed is None:
                        break
                    choice[name] = followed
            else:
                choices.append(choice)
        return tuple(choices)

    def _lies_as_gradient(self, name: str, leader: str) -> bool:
        """Whether an operator is the gradient by a tensor that is no variable: it does no work
        of its own and takes the layout that tensor's gradient has."""
        return self.graph[name].gradient is not None and not self.graph[leader].is_variable

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
        target = self.node_of[operator.name] if operator.name in self.node_of else None
        if source is None or target is None or source == target:
            return None
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

    def _slots(self, node, carries, slot_of):  # type: ignore[no-untyped-def]
        """Distinct slots of a node's choices, and the slot number of each choice."""
        numbers: dict[Slot, int] = {}
        of_choice = np.zeros(len(self.choices[node]), np.int64)
        for number, choice in enumerate(self.choices[node]):
            slot = slot_of(choice)
            if not carries:
                slot = Slot(slot.forward, slot.forward)
            of_choice[number] = numbers.setdefault(slot, len(numbers))
        return list(numbers), of_choice

    def _edge_time(self, spec, made, read, carries):  # type: ignore[no-untyped-def]
        """Equation 2: resharding forward, and of the gradient backward where there is one."""
        time = self._times(spec, [s.forward for s in made], [s.forward for s in read])
        if carries:
            time = time + self._times(spec, [s.gradient for s in read], [s.gradient for s in made]).T
        return time

    def _times(self, spec, sources, targets):  # type: ignore[no-untyped-def]
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


_ = Layout
