"""The kinds of edges between the operators of a graph, each worked out once."""

from __future__ import annotations

from collections.abc import Hashable

from tensoropt.graph.operator import Operator
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.edge_costs import EdgeCosts, Use, slot_numbers
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
        self._saved = annotated.saved
        self._costs = EdgeCosts(annotated.mesh, annotated.cost)
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
        """The edge to an operator's input, whichever nodes it joins.

        Args:
            operator: which reads.
            number: of its input.
            ascending: whether the producer's node comes first.
        """
        key = self._key(operator, number), ascending
        if key not in self._kinds:
            use, made, read = self._ends(operator, number)
            here = self._slots.map_of(slot_numbers(made, use.ways))
            there = self._slots.map_of(slot_numbers(read, use.reader_ways))
            ends = (here, there) if ascending else (there, here)
            self._kinds[key] = EdgeKind(*ends, self._costs.of(use, made, read, ascending))
        return self._kinds[key]

    def inside(self, operator: Operator, number: int) -> ConfigurationCosts:
        """What an input costs whose producer is in its reader's own node."""
        key = self._key(operator, number)
        if key not in self._inside:
            use, made, read = self._ends(operator, number)
            costs = self._costs.of(use, made, read)
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
            self._repeated(operator, number),
            self._saved.is_large_weight(tensor),
        )
        if self._saved.is_plain:
            return key
        return key, self._saved.reads(operator, number), self._saved.role(tensor)

    def _repeated(self, operator: Operator, number: int) -> int:
        """How often an input is resharded: what is made once is so once for all readers' runs."""
        made = self._repeats.get(operator.inputs[number].operator, 1)
        return min(made, self._repeats.get(operator.name, 1))

    def _ends(self, operator: Operator, number: int) -> tuple[Use, TensorSlots, TensorSlots]:
        """What the edge to an input carries, and the slots at its producer and at its reader."""
        tensor = operator.inputs[number]
        spec = operator.input_specs[number]
        carries = number in self._differentiated.get(operator.name, ())
        read = self._saved.reads(operator, number)
        ways, reader_ways = self._ways[tensor.operator], self._ways[operator.name]
        again = "recomputed" in reader_ways and not read
        use = Use(
            spec.shape,
            spec.itemsize,
            carries,
            self._saved.role(tensor) if read or again else "",
            read,
            looked_up(operator, number, self._sparse),
            ways if read or again else ("both",) * len(ways),
            reader_ways if again else ("both",) * len(reader_ways),
            not carries and self._derivations[tensor.operator].is_averaged(tensor.index),
            self._repeated(operator, number),
            self._saved.is_large_weight(tensor),
        )
        return use, self._slots.made(tensor, carries), self._slots.read(operator, number, carries)
