"""The costs of a sample's operators on one mesh, divided into the parts of a training step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import decode, only_added_up
from tensoropt.parallel.choices.pins import MeshPins
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.split.sample import Sample
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.edge_kinds import EdgeKinds
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.edges.tensor_reuse import PLAIN, Space
from tensoropt.problem.from_graph import moved_reads
from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem
from tensoropt.problem.operators.node_costs import NodeCosts
from tensoropt.problem.parallel_edges import merged_edges

__all__ = ["PARTS", "Moved", "SampleCosts"]

PARTS = ("forward", "backward", "late", "fixed", "saved", "summed")
"""The parts of a cost.

Times in nanoseconds: the forward and the backward pass of a microbatch, and the time once per step.
Memory in bytes: independent of the number of microbatches, for each microbatch in flight, and
independent of their number if there are several."""


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """One read of a tensor, with the costs of moving it from its maker to the reader.

    Attributes:
        reader: the operator that reads.
        number: the number of its input.
        source, target: the nodes of maker and reader, the lower one first; they may be equal.
        kind: the kind of the edge, which has the slots of ``costs``.
        costs: int64[6, L, R], `PARTS` by the slots at both ends.
        added: bool[L, R], for a read of a variable: whether its gradient is only summed over
            devices, which happens once per step.
        weighs: whether the tensor is the value of a variable.
    """

    reader: Operator
    number: int
    source: int
    target: int
    kind: EdgeKind
    costs: Int64Array
    added: BoolArray
    weighs: bool

    def cells(self, strategies: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the slots at both ends under each strategy, int64[S] each."""
        return (
            self.kind.source_map.slots[strategies[:, self.source]],
            self.kind.target_map.slots[strategies[:, self.target]],
        )


class _EdgeCosts(NamedTuple):
    """See `Moved`."""

    costs: Int64Array
    added: BoolArray


class SampleCosts:
    """The costs of a sample at a number of examples.

    Weights are moved once per step. A gathered weight stays for all microbatches. After the last
    microbatch, its gradient is summed over devices, or scattered to the devices that store the
    variable. Until then, the sum of a gradient over microbatches has the layout in which the reader
    of the weight makes it.

    A tensor that is not kept is made again in the backward pass. So a forward pass costs the same
    whether or not an operator keeps its tensors.

    Args:
        sample: the sample of a step.
        examples: the examples of a microbatch on all devices together.
        cost: the cost model.
        mesh: the devices.
        batched: the placeholders of the batch.
        space: which configurations are searched. Only components run for each microbatch, so they
            alone may keep fewer tensors.
        pins: dimensions that are divided by hand, on this mesh; none by default.

    Attributes:
        annotated: the sample at this number of examples.
        slots: the slots of its tensors.
        forward: the operators of the step's components, and the placeholders that they read.
        of_operators: for each operator int64[6, K], `PARTS` by the configurations of its node.
        moved: the reads of tensors.
    """

    def __init__(
        self,
        sample: Sample,
        examples: int,
        cost: CostModel,
        mesh: Mesh,
        batched: frozenset[str],
        space: Space = PLAIN,
        pins: MeshPins | None = None,
    ) -> None:
        self._sample, self._cost = sample, cost
        self.annotated = annotated = AnnotatedGraph.of(
            sample.at(examples),
            mesh,
            cost,
            batched,
            sample.reads,
            space,
            leader_of=sample.leader_of,
            choosing=frozenset(atom.operator for atom in sample.costs.atoms.atoms),
            pins=pins,
        )
        self.slots = GraphSlots(annotated)
        self._ahead = replace(annotated, differentiated={}, sparse=frozenset())
        self.forward = {
            name
            for atom in sample.costs.atoms.atoms
            for name in (atom.operator, *atom.constants, *atom.fed)
        }
        self._variables = {
            name for name, leader in annotated.leader_of.items() if sample.graph[leader].is_variable
        }
        self.of_operators = self._costs_of_operators()
        self._edge_costs: dict[Hashable, _EdgeCosts] = {}
        self.moved = self._moved()

    def problem(self, microbatches: int, held: int) -> Problem:
        """Return the problem whose strategies are searched.

        Its time is that of a microbatch, with its share of the time once per step. Its memory is
        that with ``held`` microbatches in flight. With one microbatch, it is the problem of the
        graph without a pipeline.
        """
        weights = _Weights(microbatches, held)
        return Problem(tuple(self._nodes(weights)), self._edges(weights))

    def _nodes(self, weights: _Weights) -> list[Node]:
        sample, nodes = self._sample, []
        for group in self.annotated.choices:
            total = np.sum(
                [sample.times(n) * weights.of(self.of_operators[n]) for n in group.members], 0
            )
            nodes.append(Node(group.leader, *total))
        for moved in self.moved:
            if moved.source == moved.target:
                cell = moved.kind.source_map.slots, moved.kind.target_map.slots
                inside = sample.times(moved.reader.name) * weights.of(moved.costs)
                node = nodes[moved.source]
                memory, time = inside[0][cell], inside[1][cell]
                nodes[moved.source] = Node(node.name, node.memory + memory, node.time + time)
        start = nodes[0]
        nodes[0] = replace(start, time=start.time + self._cost.step_nanoseconds())
        return nodes

    def _edges(self, weights: _Weights) -> tuple[Edge, ...]:
        counts: Counter[tuple[int, int, EdgeKind]] = Counter()
        tables: dict[int, CostTable] = {}
        for moved in self.moved:
            if moved.source != moved.target:
                if id(moved.costs) not in tables:
                    tables[id(moved.costs)] = CostTable(*weights.of(moved.costs))
                table = tables[id(moved.costs)]
                if not table.is_free:
                    kind = EdgeKind(*moved.kind.maps, table)
                    times = self._sample.times(moved.reader.name)
                    counts[moved.source, moved.target, kind] += times
        return merged_edges(counts)

    def _costs_of_operators(self) -> Mapping[str, Int64Array]:
        """Return ``of_operators``. The forward times come from the graph without gradients."""
        both = NodeCosts(self.annotated, self.slots)
        forward = NodeCosts(self._ahead, self.slots, both.costs)
        by_key: dict[Hashable, Int64Array] = {}
        costs: dict[str, Int64Array] = {}
        for name in self.slots.node_of:
            operator = self.annotated.graph[name]
            both_costs, forward_costs = both.of(operator), forward.of(operator)
            is_fixed = self._is_fixed(operator)
            key = id(both_costs), id(forward_costs), name in self.forward, is_fixed
            if key not in by_key:
                parts = by_key[key] = np.zeros((len(PARTS), both_costs.time.size), np.int64)
                if name in self.forward:
                    ways = self._ways(self.slots.node_of[name])
                    keeping_all = forward_costs.time[: forward_costs.time.size // ways]
                    parts[0] = np.tile(keeping_all, ways)
                    parts[1] = both_costs.time - parts[0]
                else:
                    parts[2] = both_costs.time
                parts[3 if is_fixed else 4] = both_costs.memory
            costs[name] = by_key[key]
        return costs

    def _ways(self, node: int) -> int:
        """Return the number of ways to keep the tensors of a node.

        The configurations of a node are in blocks, one for each way; the first way keeps all.
        """
        return len(self.annotated.choices[node].options.kept)

    def _is_fixed(self, operator: Operator) -> bool:
        """Whether the memory of an operator does not depend on the number of microbatches."""
        is_gradient = operator.gradient is not None and operator.name not in self.forward
        return operator.is_variable or is_gradient

    def _moved(self) -> Sequence[Moved]:
        node_of, sample = self.slots.node_of, self._sample
        edges = EdgeKinds(self.annotated, self.slots)
        ahead = EdgeKinds(self._ahead, self.slots, edges.costs)
        all_moved = []
        reads = [*moved_reads(self.annotated.graph, node_of, edges, sample.layer.get)]
        for operator in self.annotated.graph:
            node = node_of.get(operator.name)
            if node is None or operator.name in sample.tied:
                continue
            reads += [
                (operator, number, edges.of(operator, number, True))
                for number, tensor in enumerate(operator.inputs)
                if node_of.get(tensor.operator) == node
            ]
        for operator, number, kind in reads:
            here, there = node_of[operator.inputs[number].operator], node_of[operator.name]
            weighs = operator.inputs[number].operator in self._variables
            forward = operator.name in self.forward
            ends = min(here, there), max(here, there)
            ways = self._ways(ends[0]), self._ways(ends[1])
            key = kind, weighs, forward, ways
            if key not in self._edge_costs:
                forward_kind = ahead.of(operator, number, here <= there)
                self._edge_costs[key] = self._costs_of_edge(
                    operator, number, kind, forward_kind, weighs, ways
                )
            all_moved.append(Moved(operator, number, *ends, kind, *self._edge_costs[key], weighs))
        return all_moved

    def _costs_of_edge(
        self,
        operator: Operator,
        number: int,
        kind: EdgeKind,
        forward_kind: EdgeKind,
        weighs: bool,
        ways: tuple[int, int],
    ) -> _EdgeCosts:
        """Return the costs of an edge.

        Args:
            operator, number: the reader and the number of its input.
            kind: the kind of the edge.
            forward_kind: its kind in the graph without gradients, where it has other slots.
            weighs: whether the tensor is the value of a variable.
            ways: `_ways` of the nodes at both ends.
        """
        costs = np.zeros((len(PARTS), *kind.costs.time.shape), np.int64)
        added = np.zeros(kind.costs.time.shape, np.bool_)
        costs[3 if weighs else 4] = kind.costs.memory
        if weighs or operator.name not in self.forward:
            costs[2] = kind.costs.time
            if operator.name in self.forward:
                self._set_gradient(operator, number, costs, added)
            return _EdgeCosts(costs, added)
        cells, forward_cells = [], []
        for slot_map, forward_map, count in zip(kind.maps, forward_kind.maps, ways, strict=True):
            slots, option = np.unique(slot_map.slots, return_index=True)
            cells.append(slots)
            forward_cells.append(forward_map.slots[option % (forward_map.slots.size // count)])
        costs[0][np.ix_(*cells)] = forward_kind.costs.time[np.ix_(*forward_cells)]
        costs[1] = kind.costs.time - costs[0]
        return _EdgeCosts(costs, added)

    def _set_gradient(
        self, operator: Operator, number: int, costs: Int64Array, added: BoolArray
    ) -> None:
        """Set the parts of a weight's edge that depend on its gradient.

        These are ``added``, and the bytes by which the sum over microbatches, in the layout of the
        reader, is larger than the gradient.
        """
        tensor = operator.inputs[number]
        if number not in self.annotated.differentiated.get(operator.name, ()):
            return
        read = self.slots.at_reader(operator, number, True).gradient.codes
        made = self.slots.at_producer(tensor, True).gradient.codes
        more = np.maximum(self._bytes(tensor, read) - self._bytes(tensor, made)[:, None], 0)
        if tensor in self.annotated.sparse:
            more[:] = 0
        is_sum = only_added_up(read, made, len(self.annotated.mesh.axes)).T
        node_of = self.slots.node_of
        if node_of[tensor.operator] > node_of[operator.name]:
            is_sum, more = is_sum.T, more.T
        repeats = [size // part for size, part in zip(added.shape, is_sum.shape, strict=True)]
        added[:], costs[5] = np.tile(is_sum, repeats), np.tile(more, repeats)

    def _bytes(self, tensor: TensorName, codes: Int64Array) -> Int64Array:
        """Return the bytes of a tensor on one device, in each layout."""
        spec, mesh = (
            self.annotated.graph[tensor.operator].value_spec(tensor.index),
            self.annotated.mesh,
        )
        layouts = [decode(code, len(spec.shape), mesh) for code in codes.tolist()]
        elements = [layout.local_elements(spec.shape, mesh) for layout in layouts]
        return np.array(elements, np.int64) * spec.itemsize


@dataclass(frozen=True, slots=True)
class _Weights:
    """The numbers of microbatches of a step, and in flight."""

    microbatches: int
    held: int

    def of(self, parts: Int64Array) -> Int64Array:
        """Return int64[2, ...]: the memory and time that follow from `PARTS`."""
        forward, backward, late, fixed, saved, summed = parts
        memory = fixed + self.held * saved + (summed if self.microbatches > 1 else 0)
        return np.stack([memory, forward + backward + late // self.microbatches])
