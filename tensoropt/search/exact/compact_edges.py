"""An edge's costs as the search starts from them: slots that differ in nothing are one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.problem.model import Edge
from tensoropt.search.pareto.table import Cells, Table, joint_keys

__all__ = ["Compact", "compact"]


@dataclass(frozen=True, slots=True, eq=False)
class Compact:
    """An edge's costs without slots that no configuration has and with equal slots as one.

    Attributes:
        cells: the costs, of which nothing is given.
        sources, targets: int64[slots that are used], the new number of each.
        source_used, target_used: which these are.
    """

    cells: Cells
    sources: Int64Array
    targets: Int64Array
    source_used: Int64Array
    target_used: Int64Array

    def between(self, source_given: Float64Array, target_given: Float64Array) -> Cells:
        """The cells, and what the edge has given: to slots that are one, the most of theirs."""
        weights = source_given.shape[1]
        near = np.full((self.cells.near_count, weights), -np.inf)
        np.maximum.at(near, self.sources, source_given[self.source_used])
        far = np.full((self.cells.far_count, weights), -np.inf)
        np.maximum.at(far, self.targets, target_given[self.target_used])
        return replace(self.cells, near_given=near, far_given=far, inside=np.zeros(weights))


def compact(edge: Edge) -> Compact:
    """The costs of an edge, to be used for all that are alike."""
    source_slots, example = joint_keys([edge.source_slots], edge.source_slots.size)
    source_used = edge.source_slots[example]
    target_slots, example = joint_keys([edge.target_slots], edge.target_slots.size)
    target_used = edge.target_slots[example]
    tables = [edge.time]
    if edge.memory.any():
        tables.append(edge.memory)
    if (source_used.size, target_used.size) != edge.time.shape:
        tables = [table[np.ix_(source_used, target_used)] for table in tables]
    first, sources = _equal_rows(tables)
    if first.size < sources.size:
        tables = [table[first] for table in tables]
    first, targets = _equal_rows([table.T for table in tables])
    if first.size < targets.size:
        tables = [table[:, first] for table in tables]
    time, memory = tables[0], tables[-1] if len(tables) > 1 else np.zeros_like(tables[0])
    near, far = time.shape
    cells = Cells(
        sources[source_slots],
        targets[target_slots],
        near,
        far,
        Table.single(memory, time),
        np.zeros((near, 0)),
        np.zeros((far, 0)),
        np.zeros(0),
    )
    return Compact(cells, sources, targets, source_used, target_used)


def _equal_rows(tables: list[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """The first of each set of rows that are equal in all tables, and the set of each."""
    rows, columns = tables[0].shape
    marks = np.zeros(rows, np.int64)
    for seed, table in enumerate(tables):
        marks += table @ _factors(columns, seed)  # wraps around
    _, first, number = np.unique(marks, return_index=True, return_inverse=True)
    if first.size == rows:
        return np.arange(rows), np.arange(rows)
    if not all(np.array_equal(table[first[number]], table) for table in tables):
        # Equal marks of different rows.
        both = np.concatenate(tables, axis=1)
        _, first, number = np.unique(both, axis=0, return_index=True, return_inverse=True)
    return first, number.ravel()


@lru_cache(maxsize=64)
def _factors(count: int, seed: int) -> Int64Array:
    """So many large odd numbers, the same in every process."""
    random = np.random.default_rng([count, seed])
    found: Int64Array = random.integers(1, 2**62, count) | 1
    return found
