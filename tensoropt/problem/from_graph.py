"""From a logical graph to the search's problem: nodes, slots and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices import Choices, configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.kinds import Kinds
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.edges.cost_tables import EdgeTables
from tensoropt.problem.edges.kinds import EdgeKinds
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.edges.tensor_reuse import PLAIN, KeptTensors, Space
from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem, SlotMap
from tensoropt.problem.operators.node_costs import NodeCosts
from tensoropt.tdl import Derivation

__all__ = ["GraphProblem", "graph_problem", "least_memory_bytes"]

Costs = tuple[Int64Array, Int64Array]


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
    time: Mapping[str, Int64Array]
    memory: Mapping[str, Int64Array]

    def configurations(self, strategy: Sequence[int]) -> dict[str, Configuration]:
        """The configuration of every operator, for the configuration numbers of all nodes."""
        return configurations_of(self.choices, self.simplest(strategy))

    def simplest(self, strategy: Sequence[int]) -> list[int]:
        """Numbers that cost the same at every node, and keep all copies where that does: what is
        kept of a tensor that is not resharded, or not read, makes no difference."""
        numbers = list(strategy)
        incident: dict[int, list[Edge]] = {}
        for edge in self.problem.edges:
            incident.setdefault(edge.source, []).append(edge)
            incident.setdefault(edge.target, []).append(edge)

        def cost(node: int, number: int) -> tuple[int, int]:
            chosen = self.problem.nodes[node]
            memory, time = int(chosen.memory[number]), int(chosen.time[number])
            for edge in incident.get(node, ()):
                cell = (
                    edge.source_slots[number if edge.source == node else numbers[edge.source]],
                    edge.target_slots[number if edge.target == node else numbers[edge.target]],
                )
                memory, time = memory + int(edge.memory[cell]), time + int(edge.time[cell])
            return memory, time

        for node, group in enumerate(self.choices):
            plain = numbers[node] % (len(group.options) // len(group.options.kept))
            if plain != numbers[node] and cost(node, plain) == cost(node, numbers[node]):
                numbers[node] = plain
        return numbers


def graph_problem(
    graph: Graph,
    mesh: Mesh,
    cost: CostModel,
    batch_placeholders: frozenset[str] = frozenset(),
    reads: BackwardReads | None = None,
    space: Space = PLAIN,
) -> GraphProblem:
    """The search problem of a graph: costs by equations 1 and 2, per configuration and slot pair.

    What a step takes besides (starting it) is the first node's, whatever its configuration.
    ``reads`` says what the backward pass reads, ``space`` whether it may be kept otherwise than in
    every layout that is read. Constants are no nodes: every rank has them, and takes its piece
    when the program is built.
    """
    return _Builder(graph, mesh, cost, batch_placeholders, reads, space).build()


def least_memory_bytes(
    graph: Graph,
    mesh: Mesh,
    cost: CostModel,
    batch_placeholders: frozenset[str] = frozenset(),
    reads: BackwardReads | None = None,
    space: Space = PLAIN,
) -> int:
    """A bound below the memory per device of any strategy, without a search.

    It is the sum of every node's least: exact in the paper's model, in which edges take no memory
    (equation 2); beside it edges take what they keep of resharded copies.
    """
    return _Builder(graph, mesh, cost, batch_placeholders, reads, space).least_memory_bytes()


def _joined(kinds: Sequence[tuple[EdgeKind, int]]) -> EdgeKind:
    """One kind of edges for so many of some kinds that join the same slots."""
    kind, count = kinds[0]
    if count == 1 and len(kinds) == 1:
        return kind
    memory = _sum((each.costs.memory, count) for each, count in kinds)
    time = _sum((each.costs.time, count) for each, count in kinds)
    return replace(kind, costs=CostTable(memory, time))


def _sum(parts: Iterable[tuple[Int64Array, int]]) -> Int64Array:
    several: dict[int, tuple[Int64Array, int]] = {}
    for table, count in parts:
        several[id(table)] = table, several.get(id(table), (table, 0))[1] + count
    tables = [table * count if count > 1 else table for table, count in several.values()]
    return tables[0] if len(tables) == 1 else np.sum(tables, axis=0)


class _Builder:
    """Works out costs and slots once for all operators that are alike."""

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        cost: CostModel,
        batch_placeholders: frozenset[str],
        reads: BackwardReads | None,
        space: Space,
    ) -> None:
        self.graph = graph
        self.mesh = mesh
        self.cost = cost
        self.kinds = Kinds(graph)
        self.differentiated = differentiated_inputs(graph)
        self.sparse = frozenset().union(*sparse_tensors(graph).values())
        derivations = self.kinds.derivations
        self.kept = KeptTensors(graph, derivations, reads or BackwardReads(), space, mesh.size)
        leader_of = leaders(graph)
        self.choices = strategy_choices(
            graph, mesh, batch_placeholders, derivations, self.kept.offered, leader_of
        )
        self.slots = GraphSlots(graph, self.kinds, self.choices)
        self.costs = NodeCosts(
            graph,
            derivations,
            mesh,
            cost,
            self.choices,
            self.slots,
            self.kept,
            self.differentiated,
            self.sparse,
        )
        self.edges = EdgeKinds(
            self.choices,
            self.slots,
            self.kept,
            EdgeTables(mesh, cost),
            self.differentiated,
            self.sparse,
        )
        tied = Counter(leader_of.values())
        self.tied = {name for name, leader in leader_of.items() if tied[leader] > 1}
        self._inside: dict[Hashable, Costs] = {}

    def build(self) -> GraphProblem:
        time: dict[str, Int64Array] = {}
        memory: dict[str, Int64Array] = {}
        nodes = []
        for group in self.choices:
            for name in group.members:
                time[name], memory[name] = self._costs_of(name)
            nodes.append(
                Node(
                    group.leader,
                    _sum((memory[name], 1) for name in group.members),
                    _sum((time[name], 1) for name in group.members),
                )
            )
        if nodes:
            first = nodes[0]
            overhead = self.cost.step_nanoseconds()
            nodes[0] = Node(first.name, first.memory, first.time + overhead)
        edges = self._all_edges()
        return GraphProblem(
            problem=Problem(tuple(nodes), tuple(edges)),
            graph=self.graph,
            mesh=self.mesh,
            choices=self.choices,
            derivations=self.kinds.derivations,
            time=time,
            memory=memory,
        )

    def least_memory_bytes(self) -> int:
        """See the function of this name."""
        total = 0
        for group in self.choices:
            parts = [self.costs.of(self.graph[name])[1] for name in group.members]
            total += int(np.sum(parts, axis=0).min())
        return total

    def _costs_of(self, name: str) -> Costs:
        """Nanoseconds and bytes of an operator by configuration, with what moves between it and
        others of its node. Operators alike share the arrays.

        What is tied to a variable lies as it does; from one step of a recurrence to the next a
        tensor may have to move although both have the same configuration.
        """
        operator = self.graph[name]
        alone = self.costs.of(operator)
        if name in self.tied:
            return alone
        node, node_of = self.slots.node_of[name], self.slots.node_of
        moved = [
            self.edges.inside(operator, number)
            for number, tensor in enumerate(operator.inputs)
            if node_of.get(tensor.operator) == node
        ]
        if not moved:
            return alone
        key = id(alone), tuple(map(id, moved))  # which are remembered, so ids stay theirs
        if key not in self._inside:
            times, memories = zip(alone, *moved, strict=True)
            self._inside[key] = np.sum(times, axis=0), np.sum(memories, axis=0)
        return self._inside[key]

    def _all_edges(self) -> list[Edge]:
        """An edge for all reads that join the same slots of two nodes, with all their costs."""
        carried: Counter[tuple[int, int, EdgeKind]] = Counter()
        node_of = self.slots.node_of
        for operator in self.graph:
            target = node_of.get(operator.name)
            if target is None or operator.gradient is not None:
                continue  # what a gradient is of stays where it is made
            for number, tensor in enumerate(operator.inputs):
                source = node_of.get(tensor.operator)
                if source is None or source == target:
                    continue
                kind = self.edges.of(operator, number, source < target)
                if kind is not None:
                    carried[min(source, target), max(source, target), kind] += 1
        parallel: dict[tuple[int, int, SlotMap, SlotMap], list[tuple[EdgeKind, int]]] = {}
        for (first, last, kind), count in carried.items():
            key = first, last, kind.source_map, kind.target_map
            parallel.setdefault(key, []).append((kind, count))
        joined: dict[tuple[tuple[EdgeKind, int], ...], EdgeKind] = {}
        edges = []
        for (first, last, *_), kinds in parallel.items():
            alike = tuple(kinds)
            if alike not in joined:
                joined[alike] = _joined(kinds)
            edges.append(Edge(first, last, joined[alike]))
        return edges
