"""The planner finds the optimum: compared with collectives run on explicit sets of elements.

The reference knows nothing of axes moving between dimensions. A layout is what every device holds:
an array of element numbers, and the devices among which values are to be reduced. Every collective
is run on these, over every group, and wherever the result is what some layout holds there is an
edge. The shortest paths are SciPy's Floyd-Warshall's.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse.csgraph import floyd_warshall

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.assignments import encode
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price, plan_reshard, step_bytes
from tensoropt.parallel.resharding.distances import Distances
from tests.proofs import proof

ITEMSIZE = 4


@dataclass(frozen=True)
class Held:
    """What the devices hold: numbers of elements, and whose values make up the true ones."""

    elements: tuple[npt.NDArray[np.int64], ...]
    partners: tuple[frozenset[int], ...]

    @property
    def key(self) -> tuple[object, ...]:
        return (*((e.shape, e.tobytes()) for e in self.elements), *self.partners)


Edge = tuple[int, int, str, tuple[int, ...], int]  # from, to, kind, axes, bytes


class Reference:
    """All layouts of a tensor and, found by running collectives, the edges between them."""

    def __init__(self, axes: tuple[int, ...], shape: tuple[int, ...], reducers: Sequence[str]):
        self.axes, self.shape = axes, shape
        self.places = list(itertools.product(*(range(size) for size in axes)))
        self.layouts = [layout for layout in self._layouts(reducers) if self._divides(layout)]
        self.held = [self._hold(layout) for layout in self.layouts]
        # Layouts that hold the same values for different reducers differ in the reducer alone.
        self.nodes = {
            (held.key, layout.reducer if layout.partial else ""): node
            for node, (held, layout) in enumerate(zip(self.held, self.layouts, strict=True))
        }
        assert len(self.nodes) == len(self.layouts)
        self.edges = list(self._edges(reducers))

    def _layouts(self, reducers: Sequence[str]) -> Iterator[Layout]:
        rank, axes = len(self.shape), range(len(self.axes))
        for places in itertools.product(range(-2, rank), repeat=len(axes)):
            chosen = [[axis for axis in axes if places[axis] == dim] for dim in range(-1, rank)]
            for dims in itertools.product(*(itertools.permutations(own) for own in chosen[1:])):
                for reducer in reducers if chosen[0] else ("sum",):
                    yield Layout(dims, tuple(chosen[0]), reducer)

    def _divides(self, layout: Layout) -> bool:
        pieces = [prod(self.axes[axis] for axis in own) for own in layout.dims]
        return all(size % n == 0 for size, n in zip(self.shape, pieces, strict=True))

    def _hold(self, layout: Layout) -> Held:
        elements, partners = [], []
        for place in self.places:
            piece = np.arange(prod(self.shape)).reshape(self.shape)
            for dim, own in enumerate(layout.dims):
                for axis in own:
                    piece = np.split(piece, self.axes[axis], dim)[place[axis]]
            elements.append(np.ascontiguousarray(piece))
            partners.append(frozenset(self._along(place, layout.partial)))
        return Held(tuple(elements), tuple(partners))

    def _along(self, place: tuple[int, ...], axes: Sequence[int]) -> list[int]:
        """The devices that differ from a place along the axes only, the last axis fastest."""
        alike = [
            other
            for other in self.places
            if all(other[a] == place[a] for a in range(len(place)) if a not in axes)
        ]
        alike.sort(key=lambda other: [other[axis] for axis in axes])
        return [self.places.index(other) for other in alike]

    def _edges(self, reducers: Sequence[str]) -> Iterator[Edge]:
        numbers = range(len(self.axes))
        for count in range(1, len(self.axes) + 1):
            for axes in itertools.permutations(numbers, count):
                groups = [self._along(place, axes) for place in self.places]
                for node, held in enumerate(self.held):
                    own = self.layouts[node].reducer if self.layouts[node].partial else ""
                    for kind, after in self._collectives(held, groups, list(axes) == sorted(axes)):
                        bytes_ = (after if kind in ("slice", "mask") else held).elements[0].nbytes
                        for reducer in {own, "", *(reducers if kind == "mask" and not own else ())}:
                            target = self.nodes.get((after.key, reducer))
                            if target is not None and target != node:
                                yield node, target, kind, axes, bytes_ * ITEMSIZE // 8

    def _collectives(
        self, held: Held, groups: list[list[int]], in_order: bool
    ) -> Iterator[tuple[str, Held]]:
        """What each collective over the groups would leave on the devices."""
        ranks = range(len(groups))
        size = len(groups[0])
        index = [group.index(rank) for rank, group in zip(ranks, groups, strict=True)]
        dims = range(len(self.shape))
        parts = [
            [np.split(e, size, dim) for e in held.elements] if self._cuts(held, dim, size) else None
            for dim in dims
        ]
        for dim in dims:
            for cut in dims:
                split = parts[cut]
                if cut != dim and split is not None:
                    got = [
                        np.concatenate([split[m][index[r]] for m in groups[r]], dim) for r in ranks
                    ]
                    yield "alltoall", Held(tuple(got), held.partners)
            joined = [np.concatenate([held.elements[m] for m in groups[r]], dim) for r in ranks]
            yield "allgather", Held(tuple(joined), held.partners)
        kept = [tuple(s[r][index[r]] for r in ranks) if s is not None else None for s in parts]
        for elements in kept:
            if elements is not None:
                yield "slice", Held(self._plain(elements), held.partners)
        left = self._reduced(held, groups, index)
        if left is not None:
            if in_order:
                yield "allreduce", Held(held.elements, left)
            for elements in kept:
                if elements is not None:
                    yield "reduce_scatter", Held(self._plain(elements), left)
        same = all(
            np.array_equal(held.elements[r], held.elements[m]) for r in ranks for m in groups[r]
        )
        if in_order and same and all(held.partners[r] & set(groups[r]) == {r} for r in ranks):
            more = [frozenset(m for p in held.partners[r] for m in groups[p]) for r in ranks]
            yield "mask", Held(held.elements, tuple(more))

    @staticmethod
    def _cuts(held: Held, dim: int, size: int) -> bool:
        return held.elements[0].shape[dim] % size == 0

    @staticmethod
    def _plain(elements: Sequence[npt.NDArray[np.int64]]) -> tuple[npt.NDArray[np.int64], ...]:
        return tuple(np.ascontiguousarray(e) for e in elements)

    @staticmethod
    def _reduced(
        held: Held, groups: list[list[int]], index: list[int]
    ) -> tuple[frozenset[int], ...] | None:
        """Whose values are still to be reduced once each group has reduced its own.

        None where that would not bring the truth nearer: the groups do not make up the partners.
        """
        left = []
        for rank, partners in enumerate(held.partners):
            rest = frozenset(p for p in partners if index[p] == index[rank])
            if frozenset(m for p in rest for m in groups[p]) != partners:
                return None
            left.append(rest)
        return tuple(left)

    def times(self, price: Price) -> npt.NDArray[np.int64]:
        """[layouts, layouts], the least total price."""
        weights = np.full((len(self.layouts), len(self.layouts)), np.inf)
        for source, target, kind, axes, bytes_ in self.edges:
            weights[source, target] = min(weights[source, target], price(kind, axes, bytes_))
        lengths = floyd_warshall(weights)
        assert np.isfinite(lengths).all()
        return np.asarray(lengths, dtype=np.int64)


@lru_cache(maxsize=1)
def reference(
    axes: tuple[int, ...], shape: tuple[int, ...], reducers: tuple[str, ...]
) -> Reference:
    return Reference(axes, shape, reducers)


def random_price(seed: int, spread: int) -> Price:
    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return 1 + zlib.crc32(f"{seed} {kind} {axes} {bytes_}".encode()) % spread

    return price


def backward_price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
    """Against all intuition: local steps dearest, more bytes and devices cheaper."""
    return int(10 ** (6 - len(axes))) // (bytes_ + 1) + (10**7 if kind in ("slice", "mask") else 1)


def cluster_price(mesh: Mesh) -> Price:
    cluster = load_cluster("2x8-v100")
    assert cluster.mesh(mesh.size) == mesh
    return ClusterCostModel(cluster, mesh).collective_nanoseconds


PRICES: dict[str, Callable[[Mesh], Price]] = {
    "cluster": cluster_price,
    "backward": lambda _: backward_price,
    "random": lambda _: random_price(1, 1000),
    "random with ties": lambda _: random_price(2, 3),
    "random over five decades": lambda _: random_price(3, 100_000),
}

CASES = [
    proof((2, 2, 2), (8, 8), ("sum",)),
    ((2, 2, 2), (8, 8), ()),
    ((2, 2, 2), (8, 8), ("max", "sum")),
    ((2, 2, 2), (4, 2), ("sum",)),
    ((2, 2, 2), (24,), ("prod",)),
    ((2, 2, 2), (8, 2, 4), ("sum",)),
    proof((2, 2, 3), (12, 12), ("sum",)),
    ((2, 2, 3), (4, 6), ("min",)),
]


def considered(layouts: Sequence[Layout], reducers: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """The pairs for which the planner looks at partial layouts of all these reducers: it takes
    those of the two ends."""
    ends = [{layout.reducer} if layout.partial else set() for layout in layouts]
    return np.array([[a | b == set(reducers) for b in ends] for a in ends])


@pytest.mark.parametrize(("axes", "shape", "reducers"), CASES, ids=str)
def test_every_pair_costs_the_optimum(
    axes: tuple[int, ...], shape: tuple[int, ...], reducers: tuple[str, ...]
) -> None:
    mesh = Mesh(axes)
    known = reference(axes, shape, reducers)
    asked = considered(known.layouts, reducers)
    assert asked.any()
    # The tables of the search are between layouts that name axes in ascending order.
    ascending = [
        n for n, x in enumerate(known.layouts) if all(list(own) == sorted(own) for own in x.dims)
    ]
    some = np.ix_(ascending, ascending)
    codes = np.array([encode(known.layouts[n]) for n in ascending])
    random = np.random.default_rng(len(known.layouts))
    for name, make in PRICES.items():
        price = make(mesh)
        expected = known.times(price)
        times = Distances(mesh, price).between(shape, ITEMSIZE, codes, codes)
        assert np.array_equal(times[asked[some]], expected[some][asked[some]]), name
        assert (times >= expected[some]).all(), name
        for row, column in random.integers(0, len(known.layouts), (40, 2)):
            ends = known.layouts[row], known.layouts[column]
            steps = plan_reshard(mesh, shape, ITEMSIZE, *ends, price)
            paid = sum(price(s.kind, s.axes, step_bytes(s, mesh, shape, ITEMSIZE)) for s in steps)
            if asked[row, column]:
                assert paid == expected[row, column], name
            assert paid >= expected[row, column], name
