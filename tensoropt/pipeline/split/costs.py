"""What a sample's operators cost on one mesh, with forward and backward pass and update apart."""

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
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.split.sample import Sample
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.edge_kinds import EdgeKinds
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.edges.tensor_reuse import PLAIN, Space
from tensoropt.problem.from_graph import moved_reads
from tensoropt.problem.model import CostTable, EdgeKind, Node, Problem
from tensoropt.problem.operators.node_costs import NodeCosts
from tensoropt.problem.parallel_edges import merged_edges

__all__ = ["PARTS", "Moved", "SampleCosts"]

PARTS = ("forward", "backward", "late", "fixed", "saved", "summed")
"""Nanoseconds of the passes of a microbatch, and once per step; bytes whatever the number of
microbatches, and of each of them; bytes where there are several."""


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """A read of a tensor of another node, or of the reader's own.

    Attributes:
        reader: the operator.
        number: of its input.
        source, target: nodes, of which the first is the lower one.
        kind: of the edge; its slots are those of ``costs``.
        costs: int64[6, L, R], `PARTS` by slots.
        added: bool[L, R], of reads of variables: whether the gradient is only added up over
            devices, which comes once per step.
        weighs: whether the tensor is a variable's value, whose gradient is of a variable.
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
        """The slots at both ends, int64[S] each."""
        return (
            self.kind.source_map.slots[strategies[:, self.source]],
            self.kind.target_map.slots[strategies[:, self.target]],
        )


class _Priced(NamedTuple):
    costs: Int64Array
    added: BoolArray


class SampleCosts:
    """The costs of a sample for some examples.

    Weights are moved once a step: what is gathered stays for all microbatches, and gradients are
    summed over devices, or scattered to where their variable is stored, after the last microbatch.
    Until then the sum of a gradient lies as the weight's reader makes it.

    Where operators may keep less, forward passes cost what they do where all is kept: what is made
    again is made in the backward pass.

    Args:
        sample: of a step.
        examples: of a microbatch, for all devices together.
        cost: the prices.
        mesh: the devices.
        batched: placeholders of the batch.
        space: what is searched. Components may keep less, as only they run for each microbatch.

    Attributes:
        annotated: the sample at so many examples.
        slots: of its tensors.
        forward: what belongs to components of the step; all else follows.
        own: per operator int64[6, K], `PARTS` by the configurations of its node.
        moved: the reads that edges are for.
    """

    def __init__(
        self,
        sample: Sample,
        examples: int,
        cost: CostModel,
        mesh: Mesh,
        batched: frozenset[str],
        space: Space = PLAIN,
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
        self.own = self._own()
        self._kinds: dict[Hashable, _Priced] = {}
        self.moved = self._moved()

    def problem(self, microbatches: int, held: int) -> Problem:
        """What is searched: a step's time for each microbatch, and memory with some of them held.

        For one microbatch it is the problem of the graph without a pipeline.
        """
        weights = _Weights(microbatches, held)
        sample, nodes = self._sample, []
        for group in self.annotated.choices:
            total = np.sum([sample.times(n) * weights.of(self.own[n]) for n in group.members], 0)
            nodes.append(Node(group.leader, *total))
        for each in self.moved:
            if each.source == each.target:
                cell = each.kind.source_map.slots, each.kind.target_map.slots
                inside = sample.times(each.reader.name) * weights.of(each.costs)
                node = nodes[each.source]
                memory, time = inside[0][cell], inside[1][cell]
                nodes[each.source] = Node(node.name, node.memory + memory, node.time + time)
        start = nodes[0]
        nodes[0] = replace(start, time=start.time + self._cost.step_nanoseconds())
        counts: Counter[tuple[int, int, EdgeKind]] = Counter()
        tables: dict[int, CostTable] = {}
        for each in self.moved:
            if each.source != each.target:
                if id(each.costs) not in tables:
                    tables[id(each.costs)] = CostTable(*weights.of(each.costs))
                table = tables[id(each.costs)]
                if not table.is_free:
                    kind = EdgeKind(*each.kind.maps, table)
                    counts[each.source, each.target, kind] += sample.times(each.reader.name)
        return Problem(tuple(nodes), merged_edges(counts))

    def _own(self) -> Mapping[str, Int64Array]:
        whole, ahead = NodeCosts(self.annotated, self.slots), NodeCosts(self._ahead, self.slots)
        known: dict[Hashable, Int64Array] = {}
        found: dict[str, Int64Array] = {}
        for name in self.slots.node_of:
            operator = self.annotated.graph[name]
            both, first = whole.of(operator), ahead.of(operator)
            key = id(both), id(first), self._class(operator)
            if key not in known:
                parts = known[key] = np.zeros((len(PARTS), both.time.size), np.int64)
                if name in self.forward:
                    ways = self._ways(self.slots.node_of[name])
                    parts[0] = np.tile(first.time[: first.time.size // ways], ways)
                    parts[1] = both.time - parts[0]
                else:
                    parts[2] = both.time
                parts[3 if self._is_fixed(operator) else 4] = both.memory
            found[name] = known[key]
        return found

    def _ways(self, node: int) -> int:
        """How many blocks of configurations of a node differ in what is kept; first all is."""
        return len(self.annotated.choices[node].options.kept)

    def _is_fixed(self, operator: Operator) -> bool:
        gradient = operator.gradient is not None and operator.name not in self.forward
        return operator.is_variable or gradient

    def _class(self, operator: Operator) -> Hashable:
        return operator.name in self.forward, self._is_fixed(operator)

    def _moved(self) -> Sequence[Moved]:
        node_of, sample = self.slots.node_of, self._sample
        edges = EdgeKinds(self.annotated, self.slots)
        ahead = EdgeKinds(self._ahead, self.slots)
        found = []
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
            if key not in self._kinds:
                first = ahead.of(operator, number, here <= there)
                self._kinds[key] = self._priced(operator, number, kind, first, weighs, ways)
            found.append(Moved(operator, number, *ends, kind, *self._kinds[key], weighs))
        return found

    def _priced(
        self,
        operator: Operator,
        number: int,
        kind: EdgeKind,
        first: EdgeKind,
        weighs: bool,
        ways: tuple[int, int],
    ) -> _Priced:
        """The parts of an edge; ``first`` is without gradients, and has other slots; ``ways`` are
        those of the nodes at both ends."""
        costs = np.zeros((len(PARTS), *kind.costs.time.shape), np.int64)
        added = np.zeros(kind.costs.time.shape, np.bool_)
        costs[3 if weighs else 4] = kind.costs.memory
        if weighs or operator.name not in self.forward:
            costs[2] = kind.costs.time
            if operator.name in self.forward:
                self._set_gradient(operator, number, costs, added)
            return _Priced(costs, added)
        cells, others = [], []
        for own, other, several in zip(kind.maps, first.maps, ways, strict=True):
            slots, option = np.unique(own.slots, return_index=True)
            cells.append(slots)
            others.append(other.slots[option % (other.slots.size // several)])
        costs[0][np.ix_(*cells)] = first.costs.time[np.ix_(*others)]
        costs[1] = kind.costs.time - costs[0]
        return _Priced(costs, added)

    def _set_gradient(
        self, operator: Operator, number: int, costs: Int64Array, added: BoolArray
    ) -> None:
        """Whether the gradient of a weight is only added up over devices, and the bytes that its
        sum over microbatches takes at a reader beyond the gradient itself."""
        tensor = operator.inputs[number]
        if number not in self.annotated.differentiated.get(operator.name, ()):
            return
        read = self.slots.read(operator, number, True).gradient.codes
        made = self.slots.made(tensor, True).gradient.codes
        more = np.maximum(self._bytes(tensor, read) - self._bytes(tensor, made)[:, None], 0)
        if tensor in self.annotated.sparse:
            more[:] = 0
        sums = only_added_up(read, made, len(self.annotated.mesh.axes)).T
        node_of = self.slots.node_of
        if node_of[tensor.operator] > node_of[operator.name]:
            sums, more = sums.T, more.T
        blocks = [all_ // some for all_, some in zip(added.shape, sums.shape, strict=True)]
        added[:], costs[5] = np.tile(sums, blocks), np.tile(more, blocks)

    def _bytes(self, tensor: TensorName, codes: Int64Array) -> Int64Array:
        """Of a tensor on one device, in each layout."""
        spec, mesh = (
            self.annotated.graph[tensor.operator].value_spec(tensor.index),
            self.annotated.mesh,
        )
        layouts = [decode(code, len(spec.shape), mesh) for code in codes.tolist()]
        elements = [layout.local_elements(spec.shape, mesh) for layout in layouts]
        return np.array(elements, np.int64) * spec.itemsize


@dataclass(frozen=True, slots=True)
class _Weights:
    microbatches: int
    held: int

    def of(self, parts: Int64Array) -> Int64Array:
        """int64[2, ...]: memory and time of `PARTS`."""
        forward, backward, late, fixed, saved, summed = parts
        memory = fixed + self.held * saved + (summed if self.microbatches > 1 else 0)
        return np.stack([memory, forward + backward + late // self.microbatches])
