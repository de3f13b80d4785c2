"""The kinds of edges between the operators of a graph, each worked out once."""

from __future__ import annotations

from collections.abc import Hashable

from tensoropt.graph.operator import Operator
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.cost_tables import EdgeTables, Use, slot_numbers
from tensoropt.problem.edges.slots import GraphSlots, TensorSlots
from tensoropt.problem.edges.sparse_gradients import looked_up
from tensoropt.problem.model import EdgeKind
from tensoropt.problem.operators.operator_costs import ConfigurationCosts

__all__ = ["EdgeKinds"]


class EdgeKinds:
    """The kinds of edges of a graph.

    Args:
        annotated: the graph.
        slots: of its tensors.
    """

    def __init__(self, annotated: AnnotatedGraph, slots: GraphSlots) -> None:
        self._slots = slots
        self._kept = annotated.kept
        self._tables = EdgeTables(annotated.mesh, annotated.cost)
        self._differentiated = annotated.differentiated
        self._sparse = annotated.sparse
        self._sparse_operators = {tensor.operator for tensor in annotated.sparse}
        self._ways = [group.options.kept for group in annotated.choices]
        self._of_ends: dict[Hashable, EdgeKind] = {}
        self._of_inputs: dict[Hashable, EdgeKind] = {}
        self._inside: dict[Hashable, ConfigurationCosts] = {}

    def of(self, operator: Operator, number: int, ascending: bool) -> EdgeKind:
        """The edge to an operator's input, whichever nodes it joins.

        Args:
            operator: which reads.
            number: of its input.
            ascending: whether the producer's node comes first.
        """
        alike = self._key(operator, number), ascending
        if alike not in self._of_inputs:
            use, made, read = self._ends(operator, number)
            key = use, made, read, ascending
            if key not in self._of_ends:
                self._of_ends[key] = self._kind(use, made, read, ascending)
            self._of_inputs[alike] = self._of_ends[key]
        return self._of_inputs[alike]

    def inside(self, operator: Operator, number: int) -> ConfigurationCosts:
        """What an input costs whose producer is in its reader's own node."""
        key = self._key(operator, number)
        if key not in self._inside:
            use, made, read = self._ends(operator, number)
            costs = self._tables.of(use, made, read)
            cell = slot_numbers(made, use.ways), slot_numbers(read, use.reader_ways)
            self._inside[key] = ConfigurationCosts(costs.memory[cell], costs.time[cell])
        return self._inside[key]

    def _key(self, operator: Operator, number: int) -> Hashable:
        """What an input's costs depend on, as small values."""
        tensor, name = operator.inputs[number], operator.name
        key = (
            self._slots.alike[tensor.operator],
            tensor.index,
            self._slots.alike[name],
            number,
            number in self._differentiated.get(name, ()),
            tensor.operator in self._sparse_operators and tensor in self._sparse,
        )
        if self._kept.is_plain:
            return key
        return key, self._kept.reads(operator, number), self._kept.role(tensor)

    def _ends(self, operator: Operator, number: int) -> tuple[Use, TensorSlots, TensorSlots]:
        """What the edge to an input carries, and the slots at its producer and at its reader."""
        tensor = operator.inputs[number]
        spec = operator.input_specs[number]
        carries = number in self._differentiated.get(operator.name, ())
        read = self._kept.reads(operator, number)
        ways = self._ways[self._slots.node_of[tensor.operator]]
        reader_ways = self._ways[self._slots.node_of[operator.name]]
        again = "recomputed" in reader_ways and not read
        use = Use(
            spec.shape,
            spec.itemsize,
            carries,
            self._kept.role(tensor) if read or again else "",
            read,
            looked_up(operator, number, self._sparse),
            ways if read or again else ("both",) * len(ways),
            reader_ways if again else ("both",) * len(reader_ways),
        )
        return use, self._slots.made(tensor, carries), self._slots.read(operator, number, carries)

    def _kind(self, use: Use, made: TensorSlots, read: TensorSlots, ascending: bool) -> EdgeKind:
        costs = self._tables.of(use, made, read, ascending)
        here = self._slots.map_of(slot_numbers(made, use.ways))
        there = self._slots.map_of(slot_numbers(read, use.reader_ways))
        return EdgeKind(here, there, costs) if ascending else EdgeKind(there, here, costs)
