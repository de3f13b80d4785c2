"""From a logical graph to a search problem: nodes with costs, edges with slots and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.choices.choices import Choices, configurations_of
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.edge_kinds import EdgeKinds
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.model import Edge, EdgeKind, Node, Problem
from tensoropt.problem.operators.node_costs import NodeCosts
from tensoropt.problem.operators.operator_costs import ConfigurationCosts
from tensoropt.problem.parallel_edges import merged_edges
from tensoropt.tdl import Derivation

__all__ = ["GraphProblem", "graph_problem", "least_memory_bytes", "moved_reads", "simplest"]


@dataclass(frozen=True, slots=True, eq=False)
class GraphProblem:
    """A search problem and what its numbers stand for.

    Attributes:
        problem: nodes are groups of operators that share a configuration.
        graph: the graph it was made from.
        mesh: the devices.
        choices: per node the group and its options, numbered as the node's configurations.
        derivations: of every operator.
        costs: per operator, by configuration number of its node.
    """

    problem: Problem
    graph: Graph
    mesh: Mesh
    choices: tuple[Choices, ...]
    derivations: Mapping[str, Derivation]
    costs: Mapping[str, ConfigurationCosts]

    def configurations(self, strategy: Sequence[int]) -> dict[str, Configuration]:
        """The configuration of every operator, for the configuration numbers of all nodes."""
        return configurations_of(self.choices, self.simplest(strategy))

    def simplest(self, strategy: Sequence[int]) -> list[int]:
        """See `simplest`."""
        return simplest(self.problem, self.choices, strategy)


def simplest(problem: Problem, choices: Sequence[Choices], strategy: Sequence[int]) -> list[int]:
    """Configuration numbers of the same costs that save all copies wherever that is as cheap: what
    is saved of a tensor that is not resharded, or not read, makes no difference.

    Args:
        problem: whose nodes are groups of operators.
        choices: of each node.
        strategy: a configuration number of each node.
    """
    numbers = list(strategy)
    incident: dict[int, list[Edge]] = {}
    for edge in problem.edges:
        incident.setdefault(edge.source, []).append(edge)
        incident.setdefault(edge.target, []).append(edge)

    def cost(node: int, number: int) -> tuple[int, int]:
        chosen = problem.nodes[node]
        memory, time = int(chosen.memory[number]), int(chosen.time[number])
        for edge in incident.get(node, ()):
            cell = (
                edge.source_slots[number if edge.source == node else numbers[edge.source]],
                edge.target_slots[number if edge.target == node else numbers[edge.target]],
            )
            memory, time = memory + int(edge.memory[cell]), time + int(edge.time[cell])
        return memory, time

    for node, group in enumerate(choices):
        plain = numbers[node] % (len(group.options) // len(group.options.kept))
        if plain != numbers[node] and cost(node, plain) == cost(node, numbers[node]):
            numbers[node] = plain
    return numbers


def graph_problem(annotated: AnnotatedGraph) -> GraphProblem:
    """The search problem of a graph: costs by equations 1 and 2, per configuration and slot pair.

    The time to start a step is added to the first node, whatever its configuration. Constants are
    no nodes: every rank has them, and takes its shard when the program is built.
    """
    return _Builder(annotated).build()


def least_memory_bytes(annotated: AnnotatedGraph) -> int:
    """A lower bound of the memory per device of any strategy, without a search.

    It is the sum of every node's least: exact in the paper's model, in which edges take no memory
    (equation 2); otherwise edges take what is saved of resharded copies, besides.
    """
    costs = NodeCosts(annotated, GraphSlots(annotated))
    total = 0
    for group in annotated.choices:
        parts = [costs.of(annotated.graph[name]) for name in group.members]
        total += int(ConfigurationCosts.sum(parts).memory.min())
    return total


def moved_reads(
    graph: Graph,
    node_of: Mapping[str, int],
    edges: EdgeKinds,
    copy_of: Callable[[str], Hashable] = lambda _: None,
) -> Iterator[tuple[Operator, int, EdgeKind]]:
    """The reads that edges between nodes are for: operator, number of its input, kind of edge.

    Operators of one node that read one tensor alike share what is moved for them; for one that
    reads a tensor's shape alone nothing is moved.

    Args:
        graph: the operators.
        node_of: per operator the number of its group.
        edges: kinds of edges.
        copy_of: equal for operators that may share.
    """
    shared: set[tuple[TensorName, int, int, EdgeKind, Hashable]] = set()
    for operator in graph:
        target = node_of.get(operator.name)
        if target is None or operator.gradient is not None or operator.type in SHAPE_TYPES:
            continue  # a gradient moves nothing to the operator that it is of
        for number, tensor in enumerate(operator.inputs):
            source = node_of.get(tensor.operator)
            if source is None or source == target:
                continue
            kind = edges.of(operator, number, source < target)
            use = tensor, target, number, kind, copy_of(operator.name)
            if use in shared and not looks_up_rows(operator, number):
                continue
            shared.add(use)
            yield operator, number, kind


class _Builder:
    """Nodes and edges of a graph's problem."""

    def __init__(self, annotated: AnnotatedGraph) -> None:
        self._annotated = annotated
        self._graph = annotated.graph
        self._slots = GraphSlots(annotated)
        self._costs = NodeCosts(annotated, self._slots)
        self._edges = EdgeKinds(annotated, self._slots)
        tied = Counter(annotated.leader_of.values())
        self._tied = {name for name, leader in annotated.leader_of.items() if tied[leader] > 1}
        self._with_inside: dict[tuple[ConfigurationCosts, ...], ConfigurationCosts] = {}
        self._shared: set[tuple[TensorName, int, ConfigurationCosts]] = set()

    def build(self) -> GraphProblem:
        annotated = self._annotated
        costs: dict[str, ConfigurationCosts] = {}
        nodes = []
        for group in annotated.choices:
            for name in group.members:
                costs[name] = self._costs_of(name)
            total = ConfigurationCosts.sum(costs[name] for name in group.members)
            nodes.append(Node(group.leader, total.memory, total.time))
        if nodes:
            start = annotated.cost.step_nanoseconds()
            nodes[0] = replace(nodes[0], time=nodes[0].time + start)
        return GraphProblem(
            problem=Problem(tuple(nodes), self._all_edges()),
            graph=annotated.graph,
            mesh=annotated.mesh,
            choices=annotated.choices,
            derivations=annotated.kinds.derivations,
            costs=costs,
        )

    def _costs_of(self, name: str) -> ConfigurationCosts:
        """Of an operator, and of the edges between it and others of its node.

        What is tied to a variable has its layout; from one step of a recurrence to the next a
        tensor may have to be resharded although both have the same configuration. The gradient of
        a weight that lies as it is read is added up here, once for all steps.
        """
        operator = self._graph[name]
        alone = self._costs.of(operator)
        if name in self._tied:
            return alone
        node_of = self._slots.node_of
        inside = []
        for number, tensor in enumerate(operator.inputs):
            if node_of.get(tensor.operator) != node_of[name]:
                continue
            costs = self._edges.inside(operator, number)
            use = tensor, number, costs
            is_weight = tensor.operator in self._tied
            if not (is_weight and use in self._shared) or looks_up_rows(operator, number):
                inside.append(costs)
            self._shared.add(use)
        parts = alone, *inside
        if parts not in self._with_inside:
            self._with_inside[parts] = ConfigurationCosts.sum(parts)
        return self._with_inside[parts]

    def _all_edges(self) -> tuple[Edge, ...]:
        """An edge for all reads that join the same slots of two nodes, with all their costs."""
        reads: Counter[tuple[int, int, EdgeKind]] = Counter()
        node_of = self._slots.node_of
        for operator, number, kind in moved_reads(self._graph, node_of, self._edges):
            target, source = node_of[operator.name], node_of[operator.inputs[number].operator]
            reads[min(source, target), max(source, target), kind] += 1
        free = {costs for costs in {kind.costs for _, _, kind in reads} if costs.is_free}
        return merged_edges({key: n for key, n in reads.items() if key[2].costs not in free})
