"""Mesh-TensorFlow: all operators have one mesh, and a named dimension has the same split
everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reproduction.baselines.layout_factors import LayoutFactors, Names
from reproduction.baselines.like_layers import one_name_for_like_layers
from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.named_dimensions import named_dimensions
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.reduce import reduce_points, reduce_rows

__all__ = ["meshes", "solve"]

_MOST_LAYOUTS = 400_000  # the paper's four models need fewer


def solve(
    problem: GraphProblem, most_layouts: int = _MOST_LAYOUTS, *, free: bool = False
) -> Frontier:
    """The frontier of all Mesh-TensorFlow programs for a graph (section 5.1; Shazeer et al., 2018).

    A program has one mesh, whose dimensions are groups of the devices' axes, and a layout: for each
    named dimension (`named_dimensions`) the mesh dimension that splits it, or none. No operator has
    two names on one mesh dimension. A dimension is replicated along axes that do not divide it.

    For every mesh the names are decided one after another. A decided name matters as long as it
    meets an undecided name in some operator or edge. Layouts that agree on all names that matter
    differ only in their costs, so only their frontier is kept. That is exact.

    Args:
        problem: the planned problem.
        most_layouts: most layouts that are kept. If there are more, layouts spread evenly over each
            frontier stay, and the result is not exact.
        free: whether each layer has names of its own. Otherwise like layers share names, as the
            programs of Mesh-TensorFlow's paper do.
    """
    dimensions = named_dimensions(problem)
    if not free:
        dimensions = one_name_for_like_layers(problem, dimensions)
    strategies, exact = [], True
    for mesh in meshes(len(problem.mesh.axes)):
        factors = LayoutFactors(problem, dimensions, mesh)
        kept, is_whole = _layouts(factors, dimensions.count, most_layouts)
        strategies.append(factors.strategies(kept))
        exact = exact and is_whole
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


def _layouts(factors: LayoutFactors, names: int, most: int) -> tuple[Int8Array, bool]:
    """int8[S, names], the frontier of layouts on one mesh, and whether it is exact."""
    chosen = np.zeros((1, names), dtype=np.int8)
    costs = factors.factors.get((), np.zeros((1, 3), dtype=np.int64))
    decided: set[int] = set()
    left = [scope for scope in factors.factors if scope]
    exact = True
    for name in _order(left):
        decided.add(name)
        chosen = np.repeat(chosen, factors.base, axis=0)
        chosen[:, name] = np.arange(len(chosen)) % factors.base
        costs = np.repeat(costs, factors.base, axis=0)
        for scope in left:
            if decided.issuperset(scope):
                costs += factors.factors[scope][factors.rows(chosen, scope)]
        left = [scope for scope in left if not decided.issuperset(scope)]
        allowed = costs[:, 2] == 0
        chosen, costs = chosen[allowed], costs[allowed]
        matter = tuple(sorted({other for scope in left for other in scope} & decided))
        rows, is_whole = _reduced(costs, _keys(factors, chosen, matter), most)
        chosen, costs, exact = chosen[rows], costs[rows], exact and is_whole
    return chosen, exact


def _order(scopes: Sequence[Names]) -> list[int]:
    """All names, in an order in which few names matter at any time.

    The next name is the one after which the fewest decided names still matter because they share a
    factor with an undecided one. Ties go to the first.
    """
    beside: dict[int, set[int]] = {}
    for scope in scopes:
        for name in scope:
            beside.setdefault(name, set()).update(scope)
    order: list[int] = []
    open_, matter = set(beside), set[int]()

    def after(name: int) -> set[int]:
        rest = open_ - {name}
        return {each for each in matter | {name} if not beside[each].isdisjoint(rest)}

    while open_:
        near = {other for name in matter for other in beside[name]} & open_
        order.append(min(near or {min(open_)}, key=lambda name: (len(after(name)), name)))
        matter = after(order[-1])
        open_.remove(order[-1])
    return order


def _keys(factors: LayoutFactors, chosen: Int8Array, names: Names) -> Int64Array:
    """A number for each different choice of ``names``."""
    if len(names) * np.log2(factors.base) < 62:
        return factors.rows(chosen, names)
    _, found = np.unique(chosen[:, list(names)], axis=0, return_inverse=True)
    keys: Int64Array = found.ravel().astype(np.int64)
    return keys


def _reduced(costs: Int64Array, keys: Int64Array, most: int) -> tuple[Int64Array, bool]:
    """The frontier of each key, thinned out evenly if it has too many layouts; and whether none
    was left out."""
    _, rows = np.unique(keys, return_inverse=True)
    rows = rows.ravel().astype(np.int64)
    order = reduce_rows(rows, costs[:, 0], costs[:, 1])
    if order.size <= most:
        return order, True
    step = -(-order.size // most)
    of_row = rows[order]
    begins = np.flatnonzero(np.diff(of_row, prepend=-1))
    place = np.arange(order.size) - begins[of_row]
    last = np.append(np.diff(of_row) != 0, True)
    return order[(place % step == 0) | last], False
