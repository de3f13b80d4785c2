"""Mesh-TensorFlow: one mesh for all, and a named dimension is split the same way everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.layout_factors import LayoutFactors, Names
from tensoropt.search.baselines.named_dimensions import named_dimensions
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.reduce import reduce_points, reduce_rows

__all__ = ["meshes", "solve"]


def solve(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """The frontier of all Mesh-TensorFlow programs for a graph (section 5.1; Shazeer et al., 2018).

    A program has one mesh, whose dimensions are groups of the devices' axes, and a layout: for each
    named dimension (`named_dimensions`) the mesh dimension that splits it, or none. No operator
    has two names on one mesh dimension. Along axes that do not divide a dimension it is replicated.

    For every mesh the names are decided one after the other. Layouts that agree on all names that
    still matter, since they meet a name not yet decided in some operator or edge, differ in nothing
    but their costs: of those only the frontier is kept. That is exact.

    Args:
        problem: what is planned.
        limits: how many layouts may be kept; of more, those evenly spread over each frontier stay,
            and the result says that it is not exact.
    """
    dimensions = named_dimensions(problem)
    strategies, exact = [], True
    for mesh in meshes(len(problem.mesh.axes)):
        factors = LayoutFactors(problem, dimensions, mesh)
        kept = _layouts(factors, dimensions.count, limits.mesh_tensorflow_layouts)
        strategies.append(factors.strategies(kept.chosen))
        exact = exact and kept.exact
    every = np.unique(np.concatenate(strategies), axis=0)
    memory, time = problem.problem.costs(every)
    order = reduce_points(memory, time)
    return Frontier(memory[order], time[order], every[order], exact=exact)


def meshes(axes: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to make mesh dimensions of the devices' axes: the partitions of the axes."""

    def extend(
        axis: int, groups: tuple[tuple[int, ...], ...]
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        if axis == axes:
            yield groups
            return
        for place, group in enumerate(groups):
            yield from extend(axis + 1, (*groups[:place], (*group, axis), *groups[place + 1 :]))
        yield from extend(axis + 1, (*groups, (axis,)))

    return extend(0, ())


@dataclass(frozen=True, slots=True, eq=False)
class _Layouts:
    """Layouts and their costs so far: int8[S, names], int64[S] each."""

    chosen: Int8Array
    memory: Int64Array
    time: Int64Array
    exact: bool = True

    def take(self, rows: Int64Array, *, exact: bool = True) -> _Layouts:
        return _Layouts(self.chosen[rows], self.memory[rows], self.time[rows], self.exact and exact)


def _layouts(factors: LayoutFactors, names: int, most: int) -> _Layouts:
    """The frontier of layouts on one mesh."""
    order = _order(list(factors.factors))
    fixed = factors.factors.get((), None)
    start = np.zeros(1, dtype=np.int64)
    kept = _Layouts(
        np.zeros((1, names), dtype=np.int8),
        start if fixed is None else fixed.memory,
        start if fixed is None else fixed.time,
    )
    decided: set[int] = set()
    left = [scope for scope in factors.factors if scope]
    for name in order:
        decided.add(name)
        complete = [scope for scope in left if decided.issuperset(scope)]
        left = [scope for scope in left if not decided.issuperset(scope)]
        kept = _added(factors, _with(kept, name, factors.base), complete)
        matter = tuple(sorted({other for scope in left for other in scope} & decided))
        kept = _reduced(kept, _keys(factors, kept.chosen, matter), most)
    return kept


def _order(scopes: Sequence[Names]) -> list[int]:
    """All names, in an order in which few matter at any time.

    Next is always the name after which the fewest decided ones still matter; of several the first.
    """
    beside: dict[int, set[int]] = {}
    for scope in scopes:
        for name in scope:
            beside.setdefault(name, set()).update(scope)
    open_, order = set(beside), []
    matter: set[int] = set()
    while open_:
        near = sorted({other for name in matter for other in beside[name]} & open_)

        best = min(
            (len(_mattering(beside, {*matter, name}, open_ - {name})), name)
            for name in near or [min(open_)]
        )[1]
        open_.remove(best)
        order.append(best)
        matter = _mattering(beside, {*matter, best}, open_)
    return order


def _mattering(beside: dict[int, set[int]], decided: set[int], open_: set[int]) -> set[int]:
    """The decided names that share a factor with an open one."""
    return {name for name in decided if not beside[name].isdisjoint(open_)}


def _with(kept: _Layouts, name: int, base: int) -> _Layouts:
    """Every layout with every value of one more name."""
    rows = np.repeat(np.arange(len(kept.memory)), base)
    more = kept.take(rows)
    more.chosen[:, name] = np.tile(np.arange(base, dtype=np.int8), len(kept.memory))
    return more


def _added(factors: LayoutFactors, kept: _Layouts, scopes: Sequence[Names]) -> _Layouts:
    """With the costs of the factors over ``scopes``, less what they do not allow."""
    memory, time = kept.memory.copy(), kept.time.copy()
    allowed = np.ones(memory.size, dtype=bool)
    for scope in scopes:
        factor, rows = factors.factors[scope], factors.rows(kept.chosen, scope)
        memory += factor.memory[rows]
        time += factor.time[rows]
        allowed &= factor.allowed[rows]
    return _Layouts(kept.chosen, memory, time, kept.exact).take(np.flatnonzero(allowed))


def _keys(factors: LayoutFactors, chosen: Int8Array, names: Names) -> Int64Array:
    """A number for each different choice of ``names``."""
    if len(names) * np.log2(factors.base) < 62:
        return factors.rows(chosen, names)
    _, found = np.unique(chosen[:, list(names)], axis=0, return_inverse=True)
    keys: Int64Array = found.ravel().astype(np.int64)
    return keys


def _reduced(kept: _Layouts, keys: Int64Array, most: int) -> _Layouts:
    """The frontier of each key; thinned out evenly where there are too many."""
    _, rows = np.unique(keys, return_inverse=True)
    rows = rows.ravel().astype(np.int64)
    order = reduce_rows(rows, kept.memory, kept.time)
    if order.size <= most:
        return kept.take(order)
    step = -(-order.size // most)
    of_row = rows[order]
    begins = np.flatnonzero(np.diff(of_row, prepend=-1))
    place = np.arange(order.size) - begins[of_row]
    last = np.append(np.diff(of_row) != 0, True)
    return kept.take(order[(place % step == 0) | last], exact=False)
