"""What the edges of a search problem are, worked out once for all that are alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import SlotCodes
from tensoropt.parallel.choices import Choices
from tensoropt.problem.edges.cost_tables import EdgeTables, Use, slot_numbers
from tensoropt.problem.edges.slots import GraphSlots
from tensoropt.problem.edges.sparse_gradients import looked_up
from tensoropt.problem.edges.tensor_reuse import KeptTensors
from tensoropt.problem.model import EdgeKind

__all__ = ["EdgeKinds"]


class EdgeKinds:
    """The kinds of edges of a graph.

    Args:
        choices: per group its options.
        slots: of the graph's tensors.
        kept: what is kept of them.
        tables: what edges cost.
        differentiated: per operator the inputs that a gradient leaves.
        sparse: the tensors whose gradient is sparse.
    """

    def __init__(
        self,
        choices: Sequence[Choices],
        slots: GraphSlots,
        kept: KeptTensors,
        tables: EdgeTables,
        differentiated: Mapping[str, tuple[int, ...]],
        sparse: frozenset[TensorName],
    ) -> None:
        self._slots = slots
        self._kept = kept
        self._tables = tables
        self._differentiated = differentiated
        self._sparse = sparse
        self._sparse_operators = {tensor.operator for tensor in sparse}
        self._ways = [group.options.kept for group in choices]
        self._made: dict[Hashable, EdgeKind | None] = {}
        self._ascending: dict[Hashable, EdgeKind | None] = {}
        self._descending: dict[Hashable, EdgeKind | None] = {}
        self._inside: dict[Hashable, tuple[Int64Array, Int64Array]] = {}

    def of(self, operator: Operator, number: int, ascending: bool) -> EdgeKind | None:
        """What an operator's input is as an edge, whatever its nodes; None if it costs nothing.

        Args:
            operator: which reads.
            number: of its input.
            ascending: whether the node in which it is made comes first.
        """
        known = self._ascending if ascending else self._descending
        alike = self._key(operator, number)
        if alike not in known:
            use, made, read = self._ends(operator, number)
            key = use, id(made), id(read), ascending
            if key not in self._made:
                self._made[key] = self._kind(use, made, read, ascending)
            known[alike] = self._made[key]
        return known[alike]

    def inside(self, operator: Operator, number: int) -> tuple[Int64Array, Int64Array]:
        """Nanoseconds and bytes of an input that is made in its reader's own node, by
        configuration."""
        key = self._key(operator, number)
        if key not in self._inside:
            use, made, read = self._ends(operator, number)
            costs = self._tables.of(use, made, read)
            cell = slot_numbers(made, use.ways), slot_numbers(read, use.reader_ways)
            self._inside[key] = costs.time[cell], costs.memory[cell]
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

    def _ends(self, operator: Operator, number: int) -> tuple[Use, SlotCodes, SlotCodes]:
        """What an input carries, and its slots where it is made and where it is read."""
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

    def _kind(self, use: Use, made: SlotCodes, read: SlotCodes, ascending: bool) -> EdgeKind | None:
        costs = self._tables.of(use, made, read, ascending)
        # The first row mostly has a cost already.
        if not (costs.time[0].any() or costs.time.any() or costs.memory.any()):
            return None
        here = self._slots.map_of(slot_numbers(made, use.ways))
        there = self._slots.map_of(slot_numbers(read, use.reader_ways))
        return EdgeKind(here, there, costs) if ascending else EdgeKind(there, here, costs)
