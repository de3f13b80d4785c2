"""From a logical graph to the search's problem: nodes, slots and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import CostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.assignments import SlotCodes, decode, encode, input_codes, output_codes
from tensoropt.parallel.choices import Choices, configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.options import Follower
from tensoropt.parallel.resharding.distances import Distances
from tensoropt.parallel.sparse import known_shape
from tensoropt.parallel.strategy import derivation_of, produced_slot
from tensoropt.search.gradient_sums import gradient_sums, sum_as_measured, value_dtype
from tensoropt.search.kept import PLAIN, KeptOnEdge, KeptTensors, Space
from tensoropt.search.operator_costs import (
    all_operator_costs,
    attributes_that_matter,
    moved_memory_bytes,
)
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.search.slices import Slices, looked_up, slices_times
from tensoropt.tdl import Derivation

__all__ = ["GraphProblem", "graph_problem", "least_memory_bytes"]

Int64Array = npt.NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class _Use:
    """What an edge carries, beside the slots at its ends.

    Attributes:
        shape: of the tensor.
        itemsize: of one of its elements, in bytes.
        carries: whether its gradient comes back.
        role: of the tensor, see `tensoropt.search.kept`.
        read_backward: whether the backward pass reads the tensor as it lies at the reader.
        slices: of the gradient, where it is sparse.
        ways: what may be kept of the tensor, where that has a bearing on the edge.
        reader_ways: what may be kept of the reader's outputs, where that has.
    """

    shape: tuple[int, ...]
    itemsize: int
    carries: bool
    role: str = ""
    read_backward: bool = False
    slices: Slices | None = None
    ways: tuple[str, ...] = ("both",)
    reader_ways: tuple[str, ...] = ("both",)


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
        self.derivations = {operator.name: derivation_of(operator) for operator in graph}
        self.differentiated = differentiated_inputs(graph)
        self.sparse = frozenset().union(*sparse_tensors(graph).values())
        self.kept = KeptTensors(graph, self.derivations, reads or BackwardReads(), space, mesh.size)
        self.choices = strategy_choices(
            graph, mesh, batch_placeholders, self.derivations, self.kept.offered
        )
        self.node_of: dict[str, int] = {}
        self.follower: dict[str, Follower] = {}
        for number, group in enumerate(self.choices):
            for name, follower in zip(group.members, group.options.followers, strict=True):
                self.node_of[name] = number
                self.follower[name] = follower
        tied = Counter(leaders(graph).values())
        self.tied = {name for name, leader in leaders(graph).items() if tied[leader] > 1}
        self.distances = Distances(mesh, cost.collective_nanoseconds)
        self.sums = gradient_sums(graph, self.differentiated)
        self._summed: dict[Hashable, Int64Array] = {}
        self._costs: dict[Hashable, tuple[Int64Array, Int64Array]] = {}
        self._slots: dict[Hashable, SlotCodes] = {}
        self._edges: dict[Hashable, Edge | None] = {}
        self._numbers: dict[Hashable, int] = {}

    def build(self) -> GraphProblem:
        time: dict[str, Int64Array] = {}
        memory: dict[str, Int64Array] = {}
        nodes = []
        for group in self.choices:
            for name in group.members:
                time[name], memory[name] = self._operator_costs(self.graph[name])
                time[name] = time[name] + self._sums(self.graph[name])
                if len(group.members) > 1:
                    moved = self._inside(self.graph[name])
                    time[name], memory[name] = time[name] + moved[0], memory[name] + moved[1]
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
        edges = self._all_edges()
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
            parts = [self._operator_costs(self.graph[name])[1] for name in group.members]
            total += int(np.sum(parts, axis=0).min())
        return total

    def _operator_costs(self, operator: Operator) -> tuple[Int64Array, Int64Array]:
        derivation, follower = self.derivations[operator.name], self.follower[operator.name]
        backward = len(self.differentiated.get(operator.name, ()))
        outputs = [TensorName(operator.name, number) for number in range(len(operator.outputs))]
        key = (
            operator.type,
            operator.is_variable,
            bool(operator.mutates),
            self._number(derivation),
            id(follower),
            tuple((spec.shape, spec.dtype) for spec in operator.input_specs),
            tuple((spec.shape, spec.dtype) for spec in operator.outputs),
            attributes_that_matter(operator),
            backward,
            tuple(map(self.kept.role, outputs)),
            self.kept.carried.get(operator.name, ()),
            ways := self.choices[self.node_of[operator.name]].options.kept,
        )
        if key not in self._costs:
            self._costs[key] = all_operator_costs(
                operator,
                derivation,
                follower.assigned[: len(follower.assigned) // len(ways)],
                self.mesh,
                self.cost,
                backward,
                self.kept.made,
                self.kept.carried.get(operator.name, ()),
                ways,
                frozenset(tensor for tensor in outputs if self.kept.role(tensor) == "edge"),
            )
        return self._costs[key]

    def _sums(self, operator: Operator) -> Int64Array:
        """Nanoseconds of adding up gradients where several arrive at an output."""
        total = np.zeros(len(self.choices[self.node_of[operator.name]].options), np.int64)
        for number in range(len(operator.outputs)):
            tensor = TensorName(operator.name, number)
            count = self.sums.get(tensor, 0)
            if count == 0 or tensor in self.sparse:  # slices are put together, not added
                continue
            shape, dtype = self.graph.spec(tensor).shape, value_dtype(self.graph, tensor)
            made = self._made(tensor, carries=True)
            key = "sum", shape, dtype, count, id(made)
            if key not in self._summed:
                self._summed[key] = np.array(
                    [
                        self._sum(decode(code, len(shape), self.mesh), shape, dtype, count)
                        for code in made.gradient.tolist()
                    ],
                    np.int64,
                )[made.of_option]
            total += self._summed[key]
        return total

    def _sum(self, layout: Layout, shape: tuple[int, ...], dtype: str, count: int) -> int:
        local = layout.local_shape(shape, self.mesh)
        work = sum_as_measured(local, dtype, count, self.mesh).work
        return self.cost.operator_nanoseconds(work).total

    def _number(self, value: Hashable) -> int:
        """A number for each different value: quicker to compare than what it stands for."""
        return self._numbers.setdefault(value, len(self._numbers))

    def _inside(self, operator: Operator) -> tuple[Int64Array, Int64Array]:
        """Resharding between an operator and one of the same node, by configuration.

        What is tied to a variable lies as it does; from one step of a recurrence to the next a
        tensor may have to move although both have the same configuration.
        """
        node = self.node_of[operator.name]
        time = np.zeros(len(self.choices[node].options), dtype=np.int64)
        memory = np.zeros_like(time)
        if operator.name in self.tied:
            return time, memory
        for number, tensor in enumerate(operator.inputs):
            if self.node_of.get(tensor.operator) != node:
                continue
            use, made, read = self._ends(operator, number)
            more_memory, more_time = self._tables(use, made, read)
            cell = _numbers(made, use.ways), _numbers(read, use.reader_ways)
            memory += more_memory[cell]
            time += more_time[cell]
        return time, memory

    def _all_edges(self) -> list[Edge]:
        """An edge for each tensor between two nodes; of several alike, one with all their costs."""
        alike: dict[tuple[int, int, Hashable], set[TensorName]] = {}
        for operator in self.graph:
            if operator.gradient is not None:
                continue  # what a gradient is of stays where it is made
            for number, tensor in enumerate(operator.inputs):
                source = self.node_of.get(tensor.operator)
                target = self.node_of.get(operator.name)
                if source is None or target is None or source == target:
                    continue
                use, made, read = self._ends(operator, number)
                key = use, id(made), id(read), source < target
                if key not in self._edges:
                    self._edges[key] = self._new_edge(use, made, read, source, target)
                between = min(source, target), max(source, target), key
                alike.setdefault(between, set()).add(tensor)  # its readers share what they read
        several: dict[tuple[Hashable, int], Edge] = {}
        edges = []
        for (first, last, kind), tensors in alike.items():
            edge, count = self._edges[kind], len(tensors)
            if edge is None:
                continue
            if (kind, count) not in several:
                several[kind, count] = edge if count == 1 else edge.times(count)
            edges.append(several[kind, count].between(first, last))
        return edges

    def _ends(self, operator: Operator, number: int) -> tuple[_Use, SlotCodes, SlotCodes]:
        """What an input carries, and its slots where it is made and where it is read."""
        tensor = operator.inputs[number]
        carries = number in self.differentiated.get(operator.name, ())
        read = self.kept.reads(operator, number)
        role = self.kept.role(tensor)
        ways = self.choices[self.node_of[tensor.operator]].options.kept
        reader_ways = self.choices[self.node_of[operator.name]].options.kept
        again = "recomputed" in reader_ways and not read
        use = _Use(
            operator.input_specs[number].shape,
            operator.input_specs[number].itemsize,
            carries,
            role,
            read,
            looked_up(operator, number, self.sparse),
            ways if read or again else ("both",) * len(ways),
            reader_ways if again else ("both",) * len(reader_ways),
        )
        return use, self._made(tensor, carries), self._read(operator, number, carries)

    def _new_edge(
        self, use: _Use, made: SlotCodes, read: SlotCodes, source: int, target: int
    ) -> Edge | None:
        memory, time = self._tables(use, made, read)
        if not time.any() and not memory.any():
            return None
        here, there = _numbers(made, use.ways), _numbers(read, use.reader_ways)
        if source < target:
            return Edge(source, target, here, there, memory, time)
        return Edge(target, source, there, here, memory.T, time.T)

    def _made(self, tensor: TensorName, carries: bool) -> SlotCodes:
        """The slots of a tensor where it is made."""
        tag = self.graph[tensor.operator].gradient
        if tag is not None and tag.part != "dense":
            return self._slots_one_by_one(tensor)
        of = tensor if tag is None else tag.x
        derivation, follower = self.derivations[of.operator], self.follower[of.operator]
        key = "made", self._number(derivation), id(follower), of.index, tag is None, carries
        if key not in self._slots:
            slots = output_codes(derivation, follower.assigned, of.index)
            slots = slots if tag is None else slots.swapped()
            self._slots[key] = slots if carries else slots.without_gradient()
        return self._slots[key]

    def _slots_one_by_one(self, tensor: TensorName) -> SlotCodes:
        """The slots of a sparse gradient, which no gradient comes back to."""
        key = "sparse", tensor
        if key not in self._slots:
            options = self.choices[self.node_of[tensor.operator]].options
            codes = [
                encode(produced_slot(self.graph, self.derivations, option, tensor).forward)
                for option in options
            ]
            forward, of_option = np.unique(np.array(codes, dtype=np.int64), return_inverse=True)
            self._slots[key] = SlotCodes(forward, forward, of_option.ravel())
        return self._slots[key]

    def _read(self, operator: Operator, number: int, carries: bool) -> SlotCodes:
        """The slots of a tensor where it is read."""
        derivation, follower = self.derivations[operator.name], self.follower[operator.name]
        key = "read", self._number(derivation), id(follower), number, carries
        if key not in self._slots:
            slots = input_codes(derivation, follower.assigned, number)
            self._slots[key] = slots if carries else slots.without_gradient()
        return self._slots[key]

    def _tables(self, use: _Use, made: SlotCodes, read: SlotCodes) -> tuple[Int64Array, Int64Array]:
        """Memory and time of an edge: slots times what is kept, at both ends (`_numbers`).

        Equation 2: resharding forward, and of the gradient backward where there is one; and what
        is kept of the tensor as it is read, or resharding once more.
        """
        forward = self._times(use, made.forward, read.forward)
        time = forward
        if use.carries:
            time = time + self._gradient_times(use, read.gradient, made.gradient).T
        edge = KeptOnEdge(
            moved=made.forward[:, None] != read.forward[None, :],
            before=self._bytes(use, made.forward)[:, None],
            after=self._bytes(use, read.forward)[None, :],
            forward=forward,
            back=self._times(use, read.forward, made.forward).T if "after" in use.ways else forward,
            role=use.role,
        )
        cells = [
            [edge.costs(way, use.read_backward, again == "recomputed") for again in distinct]
            for distinct in [_distinct(use.reader_ways)]
            for way in _distinct(use.ways)
        ]
        memory = np.block([[kept for kept, _ in row] for row in cells])
        times = np.block([[time + more for _, more in row] for row in cells])
        return memory.astype(np.int64), times.astype(np.int64)

    def _bytes(self, use: _Use, codes: Int64Array) -> Int64Array:
        """What a tensor takes that is kept in each layout, on one device."""
        rank = len(use.shape)
        if -1 in use.shape or not (use.read_backward or "recomputed" in use.reader_ways):
            return np.zeros(codes.size, np.int64)
        layouts = [decode(code, rank, self.mesh) for code in codes.tolist()]
        return np.array(
            [
                moved_memory_bytes(layout, use.shape, use.itemsize, self.mesh, self.cost)
                for layout in layouts
            ],
            np.int64,
        )

    def _gradient_times(self, use: _Use, sources: Int64Array, targets: Int64Array) -> Int64Array:
        if use.slices is None:
            return self._times(use, sources, targets)
        here, there = (
            [decode(code, len(use.shape), self.mesh) for code in codes.tolist()]
            for codes in (sources, targets)
        )
        return slices_times(use.shape, use.itemsize, use.slices, here, there, self._times_of)

    def _times_of(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Sequence[Layout],
        targets: Sequence[Layout],
    ) -> Int64Array:
        use = _Use(shape, itemsize, carries=False)
        here, there = (np.array([encode(x) for x in some], np.int64) for some in (sources, targets))
        return self._times(use, here, there)

    def _times(self, use: _Use, sources: Int64Array, targets: Int64Array) -> Int64Array:
        one, rows = np.unique(sources, return_inverse=True)
        other, columns = np.unique(targets, return_inverse=True)
        if one.size == 1 and np.array_equal(one, other):
            return np.zeros((sources.size, targets.size), np.int64)
        table = self.distances.between(known_shape(use.shape), use.itemsize, one, other)
        found: Int64Array = table[np.ix_(rows.ravel(), columns.ravel())]
        return found


def _distinct(ways: tuple[str, ...]) -> tuple[str, ...]:
    """What an end's slots are multiplied by: what is kept, where that has a bearing at all."""
    return tuple(dict.fromkeys(ways))


def _numbers(slots: SlotCodes, ways: tuple[str, ...]) -> Int64Array:
    """The slot of every configuration, numbered by what is kept first."""
    distinct = _distinct(ways)
    base = slots.of_option[: slots.of_option.size // len(ways)]
    places = [distinct.index(way) * slots.forward.size for way in ways]
    return np.concatenate([base + place for place in places])
