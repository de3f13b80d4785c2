"""The least weighted cost of all strategies of a series-parallel problem.

Three eliminations, the paper's (section 4.1) with one number for each choice: a node with one
neighbour is folded into it, a node with two becomes a link between them, and two links between the
same nodes become one, whose slots are pairs of theirs. Chains, residual blocks and Inception blocks
with their variables are reduced to nothing. A node between two others is eliminated by a product of
matrices over (min, +), between slots of its neighbours, not their configurations:

    T(a, b) = min over states k of A(a, s(k)) + cost(k) + B(s'(k), b).

The order and the slots do not depend on costs. So the eliminations are worked out once, as
expressions over costs of nodes and tables of edges, and evaluated for any weights. Equal
expressions, as of the layers of a network, are one. A product leaves out states that cannot be
least (`tensoropt.search.scalar.least_sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import NamedTuple, TypeAlias

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from tensoropt.search.bounds.passes import whole_units
from tensoropt.search.elimination_queue import EliminationQueue
from tensoropt.search.flat.flat_graph import Cells, FlatGraph
from tensoropt.search.flat.joint_slots import joint_keys
from tensoropt.search.like_subgraphs import Numbering
from tensoropt.search.scalar.least_sums import least_sums, table_units
from tensoropt.search.watch import look_at_clock

__all__ = ["LeastCost", "WeightedElimination", "is_series_parallel", "weighted_elimination"]


_GONE: set[int] = set()  # the neighbours of a node that has been eliminated

_Constants: TypeAlias = tuple[int | Int64Array, ...]


class _Costs:
    """Costs of a node's configurations, or a link's table.

    Args:
        array: the costs.
        extremes: the least and the highest of them, if known.
        additions: of the product that made them.
    """

    def __init__(
        self,
        array: Float64Array,
        extremes: tuple[float, float] | None = None,
        additions: int = 0,
    ) -> None:
        self.array, self.additions = array, additions
        self._extremes = extremes

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the highest cost."""
        if self._extremes is None:
            self._extremes = float(self.array.min()), float(self.array.max())
        return self._extremes


_Formula: TypeAlias = tuple[Callable[..., _Costs], tuple[int, ...], _Constants]


class LeastCost(NamedTuple):
    """The least weighted cost of all strategies.

    Attributes:
        cost: the least cost, or less by about 2**-30 of it, since tables are rounded down.
        strategy: int32[nodes], the states of a strategy with this cost, up to the same share.
        additions: the additions of the evaluation.
    """

    cost: float
    strategy: Int32Array
    additions: int


def weighted_elimination(
    graph: FlatGraph, most_work: float = inf, alive: BoolArray | None = None
) -> WeightedElimination | None:
    """Return the eliminations of a graph's nodes, see `WeightedElimination`.

    Returns:
        None where the graph is not series-parallel, or a pair of weights takes more than
            ``most_work`` additions.
    """
    elimination = WeightedElimination(graph, alive)
    return elimination if elimination.work <= most_work and elimination.work < inf else None


def is_series_parallel(nodes: int, source: Sequence[int], target: Sequence[int]) -> bool:
    """Whether eliminating nodes with one or two neighbours reduces a graph to nothing.

    Args:
        nodes: the number of nodes.
        source, target: of each edge, the nodes that it joins.
    """
    beside: list[set[int]] = [set() for _ in range(nodes)]
    for one, other in zip(source, target, strict=True):
        beside[one].add(other)
        beside[other].add(one)
    waiting = [node for node in range(nodes) if len(beside[node]) < 3]
    left = nodes
    while waiting:
        node = waiting.pop()
        if beside[node] is _GONE:
            continue
        neighbours, beside[node] = beside[node], _GONE
        left -= 1
        for neighbour in neighbours:
            beside[neighbour].discard(node)
            beside[neighbour].update(neighbours - {neighbour})
            if len(beside[neighbour]) < 3:
                waiting.append(neighbour)
    return left == 0


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """An edge, or the result of eliminations.

    Attributes:
        ends: its nodes, the lower number first.
        slots: at each end int64[K], the slot of every configuration.
        used: at each end int64[any], the distinct slots, ascending.
        table: the number of its costs, [slots of the first end, slots of the second].
    """

    ends: tuple[int, int]
    slots: tuple[Int64Array, Int64Array]
    used: tuple[Int64Array, Int64Array]
    table: int


class WeightedElimination:
    """The eliminations of all nodes of a graph, to be evaluated for any weights.

    Args:
        graph: its costs are weighted.
        alive: bool[states of all nodes] that a strategy may have; all if not given.

    Attributes:
        work: the most additions for one pair of weights; infinite where the graph is not
            series-parallel. Products leave out most of them.
    """

    def __init__(self, graph: FlatGraph, alive: BoolArray | None = None) -> None:
        start = graph.ends.start
        marks = np.ones(graph.time.size, dtype=np.bool_) if alive is None else alive
        self._kept = [np.flatnonzero(own) for own in np.split(marks, start[1:-1])]
        self.work: float = 0
        self._numbers = Numbering()
        # By number: memory and time of a node's states, cells of edges, and formulas of earlier
        # numbers.
        self._states: dict[int, tuple[Int64Array, Int64Array]] = {}
        self._cells: dict[int, Cells] = {}
        self._made: dict[int, _Formula] = {}
        # In the order of elimination: a node, its costs at that time and its remaining links.
        self._steps: list[tuple[int, int, list[_Link]]] = []
        of_nodes = (np.split(own, start[1:-1]) for own in (graph.memory, graph.time))
        self._costs = []
        for memory, time, own in zip(*of_nodes, self._kept, strict=True):
            number = self._numbers.of("node", memory, time)
            self._states[number] = memory, time
            self._costs.append(self._value(_some, (number,), own))
        self._beside: list[dict[int, _Link]] = [{} for _ in self._kept]
        for edge in graph.edges():
            table = self._numbers.of("edge", edge.kind)
            self._cells[table] = graph.cells[edge.kind]
            sides = zip(edge.slots, edge.nodes, strict=True)
            self._join(_link(edge.nodes, [own[self._kept[node]] for own, node in sides], table))
        queue: EliminationQueue[int] = EliminationQueue()
        for node in range(len(self._kept)):
            queue.set(node, self._additions(node))
        while (best := queue.pop()) is not None:
            if best[1] == inf:
                self.work = inf
                return
            for other in self._eliminate(best[0]):
                queue.set(other, self._additions(other))

    def least(self, per_nanosecond: float, per_byte: float) -> LeastCost:
        """Return the least of ``per_nanosecond`` * time + ``per_byte`` * memory, and its
        strategy."""
        values: dict[int, _Costs] = {}
        for number, (memory, time) in self._states.items():
            values[number] = _Costs(per_nanosecond * time + per_byte * memory)
        for number, cells in self._cells.items():
            costs = np.asarray(cells.least((per_nanosecond, per_byte)), np.float64)
            values[number] = _Costs(costs.reshape(cells.rows, cells.columns))
        for number, (function, inputs, constants) in self._made.items():
            values[number] = function(*(values[each] for each in inputs), *constants)
        last = (cost for _, cost, links in self._steps if not links)
        total = sum(values[cost].extremes[0] for cost in last)
        states = np.zeros(len(self._kept), dtype=np.int32)
        for node, cost, links in reversed(self._steps):  # others are decided that are left by then
            own = values[cost].array.copy()
            for link in links:
                end = link.ends.index(node)
                slot = link.slots[1 - end][states[link.ends[1 - end]]]
                own += values[link.table].array.take(slot, axis=1 - end)[link.slots[end]]
            states[node] = int(own.argmin())
        strategy = [own[place] for own, place in zip(self._kept, states, strict=True)]
        additions = sum(costs.additions for costs in values.values())
        return LeastCost(total, np.array(strategy, dtype=np.int32), additions)

    def _additions(self, node: int) -> float:
        """The additions to eliminate a node: 0 for a fold, infinite for a node with three
        neighbours."""
        beside = self._beside[node]
        if len(beside) != 2:
            return 0 if len(beside) < 2 else inf
        ends = prod(link.used[link.ends.index(far)].size for far, link in beside.items())
        return ends * self._kept[node].size

    def _eliminate(self, node: int) -> list[int]:
        """Eliminate a node; return its former neighbours."""
        others = sorted(self._beside[node])
        links = [self._beside[other].pop(node) for other in others]
        self._steps.append((node, self._costs[node], links))
        ends = [link.ends.index(node) for link in links]
        here = [link.slots[end] for link, end in zip(links, ends, strict=True)]
        there = [link.slots[1 - end] for link, end in zip(links, ends, strict=True)]
        if len(links) == 1:
            gain = self._value(_gain, (self._costs[node], links[0].table), *ends, *here, *there)
            self._costs[others[0]] = self._value(_added, (self._costs[others[0]], gain))
        elif len(links) == 2:
            state, example = joint_keys(here, here[0].size)
            at_near, at_far = (slots[example] for slots in here)
            used = [link.used[1 - end] for link, end in zip(links, ends, strict=True)]
            inputs = self._costs[node], links[0].table, links[1].table
            before = len(self._made)
            table = self._value(_through, inputs, *ends, state, at_near, at_far, *used)
            rows, columns = (own.size for own in used)
            self.work += (len(self._made) - before) * rows * columns * example.size
            slots = [np.searchsorted(own, far) for own, far in zip(used, there, strict=True)]
            low, high = others
            self._join(_link((low, high), slots, table))
        return others

    def _join(self, link: _Link) -> None:
        """Add a link between its nodes, to the sum with the link that they may already have."""
        low, high = link.ends
        known = self._beside[low].get(high)
        if known is not None:
            pairs = zip(known.slots, link.slots, strict=True)
            (rows, row), (columns, column) = (joint_keys(both, both[0].size) for both in pairs)
            one, other = ((own.slots[0][row], own.slots[1][column]) for own in (known, link))
            table = self._value(_sum, (known.table, link.table), *one, *other)
            link = _link(link.ends, (rows, columns), table)
        self._beside[low][high] = self._beside[high][low] = link

    def _value(
        self,
        function: Callable[..., _Costs],
        inputs: tuple[int, ...],
        *constants: int | Int64Array,
    ) -> int:
        """The number of the result of a function of earlier values and constants."""
        number = self._numbers.of(function.__name__, *inputs, *constants)
        self._made.setdefault(number, (function, inputs, constants))
        return number


def _link(ends: tuple[int, int], slots: Sequence[Int64Array], table: int) -> _Link:
    """Make a link between two nodes, with the slots of their configurations."""
    row, column = slots
    rows, columns = (own[joint_keys([own], own.size)[1]] for own in slots)
    return _Link(ends, (row, column), (rows, columns), table)


def _some(costs: _Costs, kept: Int64Array) -> _Costs:
    """Return the costs of some configurations."""
    return _Costs(costs.array[kept])


def _added(costs: _Costs, more: _Costs) -> _Costs:
    """Add the gain from a folded neighbour to a node's costs."""
    return _Costs(costs.array + more.array)


def _sum(one: _Costs, other: _Costs, *cells: Int64Array) -> _Costs:
    """Add the tables of two links, between pairs of their slots: rows and columns of each."""
    total: Float64Array = one.array.take(cells[0], axis=0).take(cells[1], axis=1)
    total += other.array.take(cells[2], axis=0).take(cells[3], axis=1)
    return _Costs(total)


def _gain(costs: _Costs, link: _Costs, end: int, here: Int64Array, there: Int64Array) -> _Costs:
    """Return the least cost of a node and its edge, for each configuration of its only
    neighbour."""
    table = link.array.T if end else link.array
    least = np.full(len(table), inf)
    np.minimum.at(least, here, costs.array)
    gained: Float64Array = (table + least[:, None]).min(axis=0)
    return _Costs(gained[there])


def _through(
    costs: _Costs,
    near: _Costs,
    far: _Costs,
    near_end: int,
    far_end: int,
    state: Int64Array,
    at_near: Int64Array,
    at_far: Int64Array,
    rows: Int64Array,
    columns: Int64Array,
) -> _Costs:
    """Return the least over a node's states, for slots of its neighbours, in whole units rounded
    down.

    Args:
        costs: of the node's configurations.
        near, far: the tables of its two links.
        near_end, far_end: the node's end of each link.
        state: of every configuration, by its pair of slots.
        at_near, at_far: int64[states], these slots.
        rows, columns: slots at the other ends of ``near`` and of ``far``.
    """
    look_at_clock()
    states = np.full(at_near.size, inf)
    np.minimum.at(states, state, costs.array)
    (near_low, near_high), (far_low, far_high) = near.extremes, far.extremes
    low = near_low + float(states.min())
    scale = whole_units(max(near_high + float(states.max()) - low, far_high - far_low))
    left = table_units(near.array, near_end == 0, rows, at_near, states - low, scale)
    offset = np.full(columns.size, -far_low)
    right = table_units(far.array, far_end == 1, at_far, columns, offset, scale)
    product = np.empty((rows.size, columns.size))
    additions, *extremes = least_sums(left, right, scale, low + far_low, product)
    return _Costs(product, (extremes[0], extremes[1]), additions)
