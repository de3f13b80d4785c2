"""Build a search problem from a graph: nodes with costs, and edges with slots and costs."""

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

__all__ = [
    "GraphProblem",
    "ProblemBuilder",
    "graph_problem",
    "moved_reads",
    "simplest",
]


@dataclass(frozen=True, slots=True, eq=False)
class GraphProblem:
    """A search problem and the meaning of its numbers.

    Attributes:
        problem: the problem. Its nodes are groups of operators that share a configuration.
        graph: the graph it was built from.
        mesh: the devices.
        choices: for each node the group and its options, numbered as the node's configurations.
        derivations: the derivation of every operator.
        costs: the costs of every operator, by configuration number of its node.
    """

    problem: Problem
    graph: Graph
    mesh: Mesh
    choices: tuple[Choices, ...]
    derivations: Mapping[str, Derivation]
    costs: Mapping[str, ConfigurationCosts]

    def configurations(self, strategy: Sequence[int]) -> dict[str, Configuration]:
        """Return the configuration of every operator, given the configuration numbers of all
        nodes."""
        return configurations_of(self.choices, self.simplest(strategy))

    def simplest(self, strategy: Sequence[int]) -> list[int]:
        """Return `simplest` of a strategy of this problem."""
        return simplest(self.problem, self.choices, strategy)


def simplest(problem: Problem, choices: Sequence[Choices], strategy: Sequence[int]) -> list[int]:
    """Return a strategy of the same cost that keeps all copies wherever this costs nothing.

    For example, a tensor that is not resharded has one copy, so each choice of kept copies costs
    the same.

    Args:
        problem: the problem, whose nodes are groups of operators.
        choices: the options of each node.
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
        keeps_all = numbers[node] % (len(group.options) // len(group.options.kept))
        if keeps_all != numbers[node] and cost(node, keeps_all) == cost(node, numbers[node]):
            numbers[node] = keeps_all
    return numbers


def graph_problem(annotated: AnnotatedGraph) -> GraphProblem:
    """Return the search problem of a graph, with costs by equations 1 and 2 of the paper.

    The time to start a step is added to all configurations of the first node. Constants are no
    nodes: every rank has them whole, and cuts out its piece when the program is built.
    """
    return ProblemBuilder(annotated).build()


def moved_reads(
    graph: Graph,
    node_of: Mapping[str, int],
    edges: EdgeKinds,
    copy_of: Callable[[str], Hashable] = lambda _: None,
) -> Iterator[tuple[Operator, int, EdgeKind]]:
    """Yield the reads that edges between nodes stand for.

    Operators of one node that read a tensor in the same way share the resharded copy, so only the
    first of them is yielded. An operator that reads only the shape of a tensor needs no copy.

    Args:
        graph: the operators.
        node_of: for each operator the number of its group.
        edges: the kinds of edges.
        copy_of: a key that is equal for operators that may share a copy; all may by default.

    Yields:
        The operator, the number of its input, and the kind of the edge.
    """
    shared: set[tuple[TensorName, int, int, EdgeKind, Hashable]] = set()
    for operator in graph:
        target = node_of.get(operator.name)
        if target is None or operator.gradient is not None or operator.type in SHAPE_TYPES:
            continue  # a gradient names the operator that it belongs to, but reads nothing of it
        for number, tensor in enumerate(operator.inputs):
            source = node_of.get(tensor.operator)
            if source is None or source == target:
                continue
            kind = edges.of(operator, number, source < target)
            read = tensor, target, number, kind, copy_of(operator.name)
            if read in shared and not looks_up_rows(operator, number):
                continue
            shared.add(read)
            yield operator, number, kind


class ProblemBuilder:
    """Builds the nodes and edges of a graph's problem.

    Args:
        annotated: the graph.
    """

    def __init__(self, annotated: AnnotatedGraph) -> None:
        self._annotated = annotated
        self._graph = annotated.graph
        self._slots = GraphSlots(annotated)
        self._costs = NodeCosts(annotated, self._slots)
        self._edges = EdgeKinds(annotated, self._slots)
        tied = Counter(annotated.leader_of.values())
        self._tied = {name for name, leader in annotated.leader_of.items() if tied[leader] > 1}
        self._sums: dict[tuple[ConfigurationCosts, ...], ConfigurationCosts] = {}
        self._counted_reads: set[tuple[TensorName, int, ConfigurationCosts]] = set()

    def least_memory_bytes(self) -> int:
        """Return a lower bound of the memory per device of any strategy, without a search.

        It is the sum of every node's smallest memory. It is exact in the paper's model, where edges
        take no memory (equation 2). Otherwise edges add the memory of saved copies. `build` uses
        the prices of nodes again.
        """
        total = 0
        for group in self._annotated.choices:
            parts = [self._costs.of(self._graph[name]) for name in group.members]
            total += int(ConfigurationCosts.sum(parts).memory.min())
        return total

    def build(self) -> GraphProblem:
        """Return the problem, see `graph_problem`."""
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
        """Return the costs of an operator and of the edges from operators of its own node.

        Operators tied to a variable have its layout, so no edge between them costs anything. The
        copies of an operator in the steps of a recurrence share a configuration, but a tensor may
        be resharded from one step to the next. A weight that is stored as it is read costs the
        reduction of its gradient, once for all steps.
        """
        operator = self._graph[name]
        computing = self._costs.of(operator)
        if name in self._tied:
            return computing
        node_of = self._slots.node_of
        edges = []
        for number, tensor in enumerate(operator.inputs):
            if node_of.get(tensor.operator) != node_of[name]:
                continue
            costs = self._edges.inside(operator, number)
            read = tensor, number, costs
            is_weight = tensor.operator in self._tied
            if not (is_weight and read in self._counted_reads) or looks_up_rows(operator, number):
                edges.append(costs)
            self._counted_reads.add(read)
        parts = computing, *edges
        if parts not in self._sums:
            self._sums[parts] = ConfigurationCosts.sum(parts)
        return self._sums[parts]

    def _all_edges(self) -> tuple[Edge, ...]:
        """Return one edge for all reads between the same slots of two nodes, with their total
        cost."""
        reads: Counter[tuple[int, int, EdgeKind]] = Counter()
        node_of = self._slots.node_of
        for operator, number, kind in moved_reads(self._graph, node_of, self._edges):
            target, source = node_of[operator.name], node_of[operator.inputs[number].operator]
            reads[min(source, target), max(source, target), kind] += 1
        free = {costs for costs in {kind.costs for _, _, kind in reads} if costs.is_free}
        return merged_edges({key: n for key, n in reads.items() if key[2].costs not in free})
