"""A graph in flat arrays with fewer configurations: without the slots that none of them has."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Int32Array, Int64Array, offsets_of
from tensoropt.search.bounds.passes import Tables, cells_of
from tensoropt.search.flat.fewer_ends import fewer_ends
from tensoropt.search.flat.incidence import Incidence

__all__ = ["Fewer", "fewer_configurations"]


class Fewer(NamedTuple):
    """A graph with fewer configurations, for one pair of weights.

    Attributes:
        ends: of its edges.
        tables: of its edges.
        messages: int64[slots of all edges], which these were before.
    """

    ends: Incidence
    tables: Tables
    messages: Int64Array


def fewer_configurations(ends: Incidence, tables: Tables, alive: BoolArray) -> Fewer:
    """A graph with some of its configurations.

    Args:
        ends: of all edges.
        tables: of all edges, for one pair of weights.
        alive: bool[configurations of all nodes], of each node at least one.
    """
    fewer, messages = fewer_ends(ends, alive)
    first = offsets_of(fewer.source.sizes * fewer.target.sizes)
    cells = np.empty(first[-1], dtype=np.int32)
    _pick(ends, tables, fewer, messages, first, cells)
    everywhere = np.ones(first.size - 1, dtype=np.bool_)
    own_tables = Tables(cells[:0], cells, everywhere, first[None, :-1], tables.scale)
    return Fewer(fewer, own_tables, messages)


@numba.njit(cache=True, nogil=True)
def _pick(
    ends: Incidence,
    tables: Tables,
    fewer: Incidence,
    messages: Int64Array,
    first: Int64Array,
    cells: Int32Array,
) -> None:
    """Write the cells of the slots that are left."""
    for edge in range(ends.source.node.size):
        rows, columns = fewer.source.sizes[edge], fewer.target.sizes[edge]
        above = messages[fewer.source.messages[edge] :]
        beside = messages[fewer.target.messages[edge] :]
        old, width = cells_of(tables, 0, edge), ends.target.sizes[edge]
        at = first[edge]
        for row in range(rows):
            begin = (above[row] - ends.source.messages[edge]) * width
            begin -= ends.target.messages[edge]
            for column in range(columns):
                cells[at] = old[begin + beside[column]]
                at += 1
