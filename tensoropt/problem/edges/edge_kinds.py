"""The kinds of edges between the operators of a graph, each computed once."""

from __future__ import annotations

from collections.abc import Hashable

from tensoropt.graph.operator import Operator
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.edge_costs import EdgeCosts, TensorOnEdge, slot_numbers
from tensoropt.problem.edges.slots import GraphSlots, TensorSlots
from tensoropt.problem.edges.sparse_gradients import looked_up
from tensoropt.problem.model import EdgeKind
from tensoropt.problem.operators.operator_costs import ConfigurationCosts

__all__ = ["EdgeKinds"]


class EdgeKinds:
    """The kinds of edges of a graph.

    Args:
        annotated: the graph.
        slots: the slots of its tensors.
        costs: the costs of edges on its mesh, by its cost model; new ones by default.

    Attributes:
        costs: see above.
    """

    def __init__(
        self, annotated: AnnotatedGraph, slots: GraphSlots, costs: EdgeCosts | None = None
    ) -> None:
        self._slots = slots
        self._saved = annotated.saved
        self.costs = costs or EdgeCosts(annotated.mesh, annotated.cost)
        self._differentiated = annotated.differentiated
        self._sparse = annotated.sparse
        self._sparse_operators = {tensor.operator for tensor in annotated.sparse}
        self._ways = {
            name: group.kept(name) for group in annotated.choices for name in group.members
        }
        self._repeats = annotated.repeats
        self._derivations = annotated.kinds.derivations
        self._kinds: dict[Hashable, EdgeKind] = {}
        self._inside: dict[Hashable, ConfigurationCosts] = {}

    def of(self, operator: Operator, number: int, ascending: bool) -> EdgeKind:
        """Return the kind of the edge to an operator's input.

        Args:
            operator: the reader.
            number: number of its input.
            ascending: whether the producer's node comes before the reader's.
        """
        key = self._key(operator, number), ascending
        if key not in self._kinds:
            on_edge, producer, reader = self._ends(operator, number)
            producer_map = self._slots.map_of(slot_numbers(producer, on_edge.ways))
            reader_map = self._slots.map_of(slot_numbers(reader, on_edge.reader_ways))
            maps = (producer_map, reader_map) if ascending else (reader_map, producer_map)
            self._kinds[key] = EdgeKind(*maps, self.costs.of(on_edge, producer, reader, ascending))
        return self._kinds[key]

    def inside(self, operator: Operator, number: int) -> ConfigurationCosts:
        """Return the costs of an edge whose producer and reader are in the same node."""
        key = self._key(operator, number)
        if key not in self._inside:
            on_edge, producer, reader = self._ends(operator, number)
            costs = self.costs.of(on_edge, producer, reader)
            cell = slot_numbers(producer, on_edge.ways), slot_numbers(reader, on_edge.reader_ways)
            self._inside[key] = ConfigurationCosts(costs.memory[cell], costs.time[cell])
        return self._inside[key]

    def _key(self, operator: Operator, number: int) -> Hashable:
        """Return a key of all that the costs of an input depend on."""
        tensor, name = operator.inputs[number], operator.name
        key = (
            self._slots.signature[tensor.operator],
            tensor.index,
            self._slots.signature[name],
            number,
            number in self._differentiated.get(name, ()),
            tensor.operator in self._sparse_operators and tensor in self._sparse,
            self._repeats_of(operator, number),
            self._saved.is_large_weight(tensor),
        )
        if self._saved.is_plain:
            return key
        return key, self._saved.reads(operator, number), self._saved.role(tensor)

    def _repeats_of(self, operator: Operator, number: int) -> int:
        """Return how often an input is resharded in a step: once if it is computed once."""
        made = self._repeats.get(operator.inputs[number].operator, 1)
        return min(made, self._repeats.get(operator.name, 1))

    def _ends(
        self, operator: Operator, number: int
    ) -> tuple[TensorOnEdge, TensorSlots, TensorSlots]:
        """Return the tensor of the edge to an input, and its slots at the producer and the
        reader."""
        tensor = operator.inputs[number]
        spec = operator.input_specs[number]
        has_gradient = number in self._differentiated.get(operator.name, ())
        read = self._saved.reads(operator, number)
        ways, reader_ways = self._ways[tensor.operator], self._ways[operator.name]
        recomputes = "recomputed" in reader_ways and not read
        on_edge = TensorOnEdge(
            spec.shape,
            spec.itemsize,
            has_gradient,
            self._saved.role(tensor) if read or recomputes else "",
            read,
            looked_up(operator, number, self._sparse),
            ways if read or recomputes else ("both",) * len(ways),
            reader_ways if recomputes else ("both",) * len(reader_ways),
            not has_gradient and self._derivations[tensor.operator].is_averaged(tensor.index),
            self._repeats_of(operator, number),
            self._saved.is_large_weight(tensor),
        )
        return (
            on_edge,
            self._slots.at_producer(tensor, has_gradient),
            self._slots.at_reader(operator, number, has_gradient),
        )
