"""The search problem: nodes with configurations, edges between slots, and the cost of a
strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.errors import OptionError

__all__ = ["CostTable", "Edge", "EdgeKind", "Node", "Problem", "SlotMap"]


_LARGEST_SUM = 2**61
"""Largest absolute value of a sum of costs. int64 then has room for differences of such sums."""


def _integers(values: npt.ArrayLike, dimensions: int, name: str) -> Int64Array:
    """Return ``values`` as a read-only int64 array, after checking that it is not empty and has
    this number of dimensions."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != dimensions or array.size == 0:
        raise OptionError(
            f"{name} is an array of integers with {dimensions} dimension(s) and at least one "
            f"element. Got {array.dtype} of shape {array.shape}; round costs to whole nanoseconds "
            "and bytes first."
        )
    if array.dtype == np.uint64 and int(array.max()) > np.iinfo(np.int64).max:
        raise OptionError(f"{name} fits in int64. Got {array.max()}.")
    flags = array.flags
    if array.dtype == np.int64 and flags.c_contiguous and not flags.writeable:
        return array
    view = np.ascontiguousarray(array, dtype=np.int64).view()
    view.flags.writeable = False
    return view


def _set_costs(part: Node | CostTable, dimensions: int, name: str) -> None:
    """Check and set the memory and the time of a node or table in its ``__post_init__``."""
    memory = _integers(part.memory, dimensions, f"the memory of {name}")
    time = _integers(part.time, dimensions, f"the time of {name}")
    if memory.shape != time.shape:
        raise OptionError(
            f"memory and time of {name} have the same shape. Got {memory.shape} and {time.shape}; "
            "give both for every choice."
        )
    object.__setattr__(part, "memory", memory)
    object.__setattr__(part, "time", time)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator, or a group of operators that share a configuration.

    Attributes:
        name: name for messages.
        memory: int64[K], bytes of each of the K configurations.
        time: int64[K], nanoseconds of each.

    Raises:
        OptionError: if the costs are empty, are not integers, or differ in shape.
    """

    name: str
    memory: Int64Array
    time: Int64Array

    def __post_init__(self) -> None:
        _set_costs(self, 1, f"node {self.name!r}")

    @property
    def configurations(self) -> int:
        """The number K of configurations."""
        return int(self.memory.size)


@dataclass(frozen=True, slots=True, eq=False)
class SlotMap:
    """The slot that each configuration of a node has at one end of an edge.

    Maps are compared by identity: edges that have the same slots at an end refer to the same map.

    Attributes:
        slots: int64[K], numbers of slots.

    Raises:
        OptionError: if the slots are empty, or are not integers of at least 0.
    """

    slots: Int64Array

    def __post_init__(self) -> None:
        slots = _integers(self.slots, 1, "a slot map")
        if slots.min() < 0:
            raise OptionError(f"slots are numbered from 0. Got {slots.min()} to {slots.max()}.")
        object.__setattr__(self, "slots", slots)


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """The cost of an edge for each pair of slots.

    Tables are compared by identity: edges with the same costs refer to the same table.

    Attributes:
        memory: int64[L_source, L_target], bytes.
        time: int64[L_source, L_target], nanoseconds.

    Raises:
        OptionError: if the costs are empty, are not integers, or differ in shape.
    """

    memory: Int64Array
    time: Int64Array

    def __post_init__(self) -> None:
        _set_costs(self, 2, "an edge")

    @property
    def is_free(self) -> bool:
        """Whether all costs are 0."""
        # In most tables the first row shows that they are not.
        return not (self.time[0].any() or self.time.any() or self.memory.any())


@dataclass(frozen=True, slots=True)
class EdgeKind:
    """The slots at both ends of an edge, and its costs. Edges with the same share one kind.

    Two kinds are equal if they refer to the same maps and the same table. So a kind is the key of
    everything that is computed once for all its edges.

    Attributes:
        source_map: the slots of the source's configurations.
        target_map: the slots of the target's configurations.
        costs: the costs of each pair of slots.

    Raises:
        OptionError: if a slot is not in the table.
    """

    source_map: SlotMap
    target_map: SlotMap
    costs: CostTable

    @property
    def maps(self) -> tuple[SlotMap, SlotMap]:
        """The slot maps of both ends."""
        return self.source_map, self.target_map

    def __post_init__(self) -> None:
        ends = ("source", self.source_map), ("target", self.target_map)
        for (end, slot_map), count in zip(ends, self.costs.time.shape, strict=True):
            slots = slot_map.slots
            if slots.max() >= count:
                raise OptionError(
                    f"the {end} slots of an edge are rows or columns of its table, 0 to "
                    f"{count - 1}. Got "
                    f"{slots.min()} to {slots.max()}."
                )


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A tensor between two nodes. Its cost depends only on the slots at its two ends.

    Attributes:
        source, target: numbers of the nodes, where source < target.
        kind: the slots and costs.

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
        """Return an edge with a new kind."""
        maps = SlotMap(source_slots), SlotMap(target_slots)
        return cls(source, target, EdgeKind(*maps, CostTable(memory, time)))

    @property
    def source_slots(self) -> Int64Array:
        """int64[K_source], the slot of each configuration of the source."""
        return self.kind.source_map.slots

    @property
    def target_slots(self) -> Int64Array:
        """int64[K_target], the slot of each configuration of the target."""
        return self.kind.target_map.slots

    @property
    def costs(self) -> CostTable:
        """The costs of each pair of slots."""
        return self.kind.costs

    @property
    def memory(self) -> Int64Array:
        """int64[L_source, L_target], bytes of each pair of slots."""
        return self.kind.costs.memory

    @property
    def time(self) -> Int64Array:
        """int64[L_source, L_target], nanoseconds of each pair of slots."""
        return self.kind.costs.time


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A computation graph with all its costs.

    Attributes:
        nodes: the nodes, in topological order.
        edges: the edges, in any order. Several may join the same two nodes.
        edges_take_memory: whether any edge takes memory.
        has_negative: whether any cost is below 0.
        byte_worth: nanoseconds per byte: the sum of the nodes' least times over that of their least
            memories.

    Raises:
        OptionError: if there is no node, an edge names a node that does not exist, an edge does not
            have one slot for each configuration of its nodes, or sums of costs could overflow
            int64.
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
        extents = [*map(_extents, self.nodes), *(tables[edge.costs] for edge in self.edges)]
        memory, time, negative = zip(*extents, strict=True)
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
                    f"edge {edge.source} -> {edge.target} has one slot for each configuration "
                    f"of its nodes. Got {slots.size} slots for the {node.configurations} "
                    f"configurations of {node.name!r}."
                )

    @property
    def strategies(self) -> int:
        """The number of strategies: the product of the nodes' numbers of configurations."""
        count = 1
        for node in self.nodes:
            count *= node.configurations
        return count

    def _byte_worth(self) -> float:
        memory = sum(int(node.memory.min()) for node in self.nodes)
        time = sum(int(node.time.min()) for node in self.nodes)
        return max(time, 1) / max(memory, 1)

    def cost(self, strategy: Sequence[int]) -> tuple[int, int]:
        """Return the memory in bytes and the time in nanoseconds of a strategy (paper, equation 3).

        Raises:
            OptionError: if the strategy does not name a valid configuration for every node.
        """
        (memory,), (time,) = self.costs([strategy])
        return int(memory), int(time)

    def costs(self, strategies: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
        """Return the memory int64[S] and time int64[S] of ``strategies``, integers [S, nodes].

        The sums are written out here, independent of the search, so that they can check its
        results.

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
    """Return the largest memory and time in absolute value, and whether any cost is below 0."""
    low = int(costs.memory.min()), int(costs.time.min())
    high = int(costs.memory.max()), int(costs.time.max())
    return max(high[0], -low[0]), max(high[1], -low[1]), min(low) < 0
