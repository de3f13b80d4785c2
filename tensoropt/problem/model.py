"""What is searched: nodes with configurations, edges between slots, and what a strategy costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.errors import OptionError

__all__ = ["CostTable", "Edge", "EdgeKind", "Node", "Problem", "SlotMap"]


# Sums of costs must stay in int64, with room for the search's own differences of sums.
_LARGEST_SUM = 2**61


def _integers(values: npt.ArrayLike, dimensions: int, what: str) -> Int64Array:
    """``values`` as a read-only int64 array of so many dimensions, none of them empty."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != dimensions or array.size == 0:
        raise OptionError(
            f"{what} is an array of integers with {dimensions} dimension(s) and at least one "
            f"element. Got {array.dtype} of shape {array.shape}; round costs to whole nanoseconds "
            "and bytes first."
        )
    if array.dtype == np.uint64 and int(array.max()) > np.iinfo(np.int64).max:
        raise OptionError(f"{what} fits int64. Got {array.max()}.")
    flags = array.flags
    if array.dtype == np.int64 and flags.c_contiguous and not flags.writeable:
        return array
    view = np.ascontiguousarray(array, dtype=np.int64).view()
    view.flags.writeable = False
    return view


def _set_costs(part: Node | CostTable, dimensions: int, what: str) -> None:
    """Check the memory and the time of what is being made."""
    memory = _integers(part.memory, dimensions, f"the memory of {what}")
    time = _integers(part.time, dimensions, f"the time of {what}")
    if memory.shape != time.shape:
        raise OptionError(
            f"memory and time of {what} have one shape. Got {memory.shape} and {time.shape}; give "
            "both for every choice."
        )
    object.__setattr__(part, "memory", memory)
    object.__setattr__(part, "time", time)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator, or a group of operators that are configured together.

    Attributes:
        name: for messages only.
        memory: int64[K], bytes of each of the K configurations.
        time: int64[K], nanoseconds of each.

    Raises:
        OptionError: if the costs are not integers, or not equally many of both, or none.
    """

    name: str
    memory: Int64Array
    time: Int64Array

    def __post_init__(self) -> None:
        _set_costs(self, 1, f"node {self.name!r}")

    @property
    def configurations(self) -> int:
        """How many configurations there are to choose from (K)."""
        return int(self.memory.size)


@dataclass(frozen=True, slots=True, eq=False)
class SlotMap:
    """The slot that each configuration of a node has at one end of an edge.

    Compared by identity: edges that have the same slots at an end refer to the same map.

    Attributes:
        slots: int64[K], numbers of slots.

    Raises:
        OptionError: if they are not integers from 0 on, or none.
    """

    slots: Int64Array

    def __post_init__(self) -> None:
        slots = _integers(self.slots, 1, "a slot map")
        if slots.min() < 0:
            raise OptionError(f"slots are numbered from 0. Got {slots.min()} to {slots.max()}.")
        object.__setattr__(self, "slots", slots)


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """What an edge costs for each pair of slots.

    Compared by identity: edges that cost the same refer to the same table.

    Attributes:
        memory: int64[L_source, L_target], bytes.
        time: int64[L_source, L_target], nanoseconds.

    Raises:
        OptionError: if the costs are not integers, or memory and time differ in shape.
    """

    memory: Int64Array
    time: Int64Array

    def __post_init__(self) -> None:
        _set_costs(self, 2, "an edge")

    @property
    def is_free(self) -> bool:
        """Whether no pair of slots costs anything."""
        # The first row mostly has a cost already.
        return not (self.time[0].any() or self.time.any() or self.memory.any())


@dataclass(frozen=True, slots=True)
class EdgeKind:
    """What edges that are alike have in common: the slots at both ends, and the costs.

    Two kinds are equal where they refer to the same maps and the same table, so that a kind is a
    key for whatever is worked out once for all edges of it.

    Attributes:
        source_map: the slots of the source's configurations.
        target_map: those of the target's.
        costs: for each pair of slots.

    Raises:
        OptionError: if a slot is not in the table.
    """

    source_map: SlotMap
    target_map: SlotMap
    costs: CostTable

    @property
    def maps(self) -> tuple[SlotMap, SlotMap]:
        """The slots at both ends."""
        return self.source_map, self.target_map

    def __post_init__(self) -> None:
        ends = ("source", self.source_map), ("target", self.target_map)
        for (end, slot_map), count in zip(ends, self.costs.time.shape, strict=True):
            slots = slot_map.slots
            if slots.max() >= count:
                raise OptionError(
                    f"the {end} slots of an edge are in its tables, 0 to {count - 1}. Got "
                    f"{slots.min()} to {slots.max()}."
                )


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A tensor between two nodes. Its cost depends on the slots at its two ends alone.

    Attributes:
        source, target: numbers of the nodes; the source comes first.
        kind: slots and costs.

    Raises:
        OptionError: if source >= target.
    """

    source: int
    target: int
    kind: EdgeKind

    def __post_init__(self) -> None:
        if not 0 <= self.source < self.target:
            raise OptionError(
                "an edge goes from an earlier node to a later one; number the nodes in "
                f"topological order. Got {self.source} -> {self.target}."
            )

    @classmethod
    def of(
        cls,
        source: int,
        target: int,
        source_slots: Int64Array,
        target_slots: Int64Array,
        memory: Int64Array,
        time: Int64Array,
    ) -> Edge:
        """An edge of a kind of its own."""
        maps = SlotMap(source_slots), SlotMap(target_slots)
        return cls(source, target, EdgeKind(*maps, CostTable(memory, time)))

    @property
    def source_slots(self) -> Int64Array:
        """int64[K_source], the slot of each configuration of the source."""
        return self.kind.source_map.slots

    @property
    def target_slots(self) -> Int64Array:
        """int64[K_target], the same at the target."""
        return self.kind.target_map.slots

    @property
    def costs(self) -> CostTable:
        """What each pair of slots costs."""
        return self.kind.costs

    @property
    def memory(self) -> Int64Array:
        """int64[L_source, L_target], bytes for each pair of slots."""
        return self.kind.costs.memory

    @property
    def time(self) -> Int64Array:
        """int64[L_source, L_target], nanoseconds."""
        return self.kind.costs.time


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A computation graph with all costs, ready to be searched.

    Attributes:
        nodes: in topological order.
        edges: in any order; several may join the same two nodes.
        edges_take_memory: whether any does.
        has_negative: whether any cost is below 0.
        byte_worth: nanoseconds that a byte is worth on the whole: least times over least memories.

    Raises:
        OptionError: if there is no node, an edge names a node that is not there or has not one
            slot per configuration of it, or if sums of costs could overflow int64.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    edges_take_memory: bool = field(init=False, repr=False)
    has_negative: bool = field(init=False, repr=False)
    byte_worth: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "edges", tuple(self.edges))
        if not self.nodes:
            raise OptionError("a problem has at least one node. Got none.")
        for edge in self.edges:
            self._check_edge(edge)
        tables = {costs: _extents(costs) for costs in {edge.costs for edge in self.edges}}
        parts = [*map(_extents, self.nodes), *(tables[edge.costs] for edge in self.edges)]
        memory, time, negative = zip(*parts, strict=True)
        takes_memory = any(memory for memory, *_ in tables.values())
        object.__setattr__(self, "edges_take_memory", takes_memory)
        object.__setattr__(self, "has_negative", any(negative))
        object.__setattr__(self, "byte_worth", self._byte_worth())
        largest = max(sum(memory), sum(time))
        if largest > _LARGEST_SUM:
            raise OptionError(
                f"the costs of a strategy sum to at most 2**61 in absolute value. Got up to "
                f"{largest}; use larger units."
            )

    def _check_edge(self, edge: Edge) -> None:
        if edge.target >= len(self.nodes):
            raise OptionError(
                f"an edge joins two of the {len(self.nodes)} nodes. Got {edge.source} -> "
                f"{edge.target}."
            )
        for number, slots in ((edge.source, edge.source_slots), (edge.target, edge.target_slots)):
            node = self.nodes[number]
            if slots.size != node.configurations:
                raise OptionError(
                    f"edge {edge.source} -> {edge.target} names one slot for each configuration "
                    f"of its nodes. Got {slots.size} slots for the {node.configurations} "
                    f"configurations of {node.name!r}."
                )

    @property
    def strategies(self) -> int:
        """How many strategies there are: the product of the nodes' configurations."""
        count = 1
        for node in self.nodes:
            count *= node.configurations
        return count

    def _byte_worth(self) -> float:
        memory = sum(int(node.memory.min()) for node in self.nodes)
        time = sum(int(node.time.min()) for node in self.nodes)
        return max(time, 1) / max(memory, 1)

    def cost(self, strategy: Sequence[int]) -> tuple[int, int]:
        """Memory in bytes and time in nanoseconds of one strategy (paper, equation 3).

        Raises:
            OptionError: if the strategy does not name a valid configuration for every node.
        """
        (memory,), (time,) = self.costs([strategy])
        return int(memory), int(time)

    def costs(self, strategies: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
        """Memory int64[S] and time int64[S] of ``strategies``, integers [S, nodes].

        Written out directly, apart from the search, so that it certifies what the search claims.

        Raises:
            OptionError: if the shape is wrong or a configuration does not exist.
        """
        choices = np.asarray(strategies)
        if choices.ndim != 2 or choices.shape[1] != len(self.nodes) or choices.dtype.kind != "i":
            raise OptionError(
                f"strategies are integers of shape [strategies, {len(self.nodes)}]. Got "
                f"{choices.dtype} of shape {choices.shape}."
            )
        limits = np.array([node.configurations for node in self.nodes])
        for row, number in np.argwhere((choices < 0) | (choices >= limits))[:1]:
            raise OptionError(
                f"node {self.nodes[number].name!r} has configurations 0 to {limits[number] - 1}. "
                f"Got {choices[row, number]}."
            )
        memory = np.zeros(len(choices), dtype=np.int64)
        time = np.zeros(len(choices), dtype=np.int64)
        of_node = np.ascontiguousarray(choices.T)
        for node, chosen in zip(self.nodes, of_node, strict=True):
            memory += node.memory[chosen]
            time += node.time[chosen]
        for edge in self.edges:
            cell = (
                edge.source_slots[of_node[edge.source]],
                edge.target_slots[of_node[edge.target]],
            )
            time += edge.time[cell]
            if self.edges_take_memory:
                memory += edge.memory[cell]
        return memory, time


def _extents(costs: Node | CostTable) -> tuple[int, int, bool]:
    """The largest memory and time in absolute value, and whether any cost is below 0."""
    low = int(costs.memory.min()), int(costs.time.min())
    high = int(costs.memory.max()), int(costs.time.max())
    return max(high[0], -low[0]), max(high[1], -low[1]), min(low) < 0
