"""The search's tables of resharding times, against the planner's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tensoropt.errors import LayoutError
from tensoropt.parallel.assignments import decode, encode
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price, plan_reshard, step_bytes
from tensoropt.parallel.resharding.distances import Distances

_KINDS = ("slice", "mask", "allgather", "alltoall", "allreduce", "reduce_scatter")


def alike(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
    """Axes 1 and 2 cost the same, axis 0 more."""
    return 1 + (_KINDS.index(kind) + 1) * (bytes_ + 7) * (5 if 0 in axes else 1) // len(axes)


def different(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
    """No two axes, nor orders of axes, cost the same."""
    place = sum((axis + 2) * 7 * (3 * position + 1) for position, axis in enumerate(axes))
    return 1 + _KINDS.index(kind) + bytes_ * (3 + place % 17)


@pytest.mark.parametrize("price", [alike, different])
@pytest.mark.parametrize("shape", [(8,), (8, 8), (8, 12), (12, 8), (3, 8), (4, 4, 8), (4, 5, 24)])
def test_tables_are_the_planners(price: Price, shape: tuple[int, ...]) -> None:
    mesh = Mesh((2, 2, 2))
    rank = len(shape)
    layouts = []
    for states in itertools.product(range(rank + 2), repeat=3):
        dims = tuple(tuple(a for a in range(3) if states[a] == d) for d in range(rank))
        partial = tuple(a for a in range(3) if states[a] == rank)
        for reducer in ("sum", "max") if partial and rank < 3 else ("sum",):
            layout = Layout(dims, partial, reducer)
            if layout.fits(shape, mesh):
                layouts.append(layout)
    sums = [layout for layout in layouts if layout.reducer == "sum"]
    codes = np.array([encode(layout) for layout in layouts])
    targets = np.array([encode(layout) for layout in sums])
    assert [decode(int(code), rank, mesh) for code in codes] == layouts
    distances = Distances(mesh, price)
    times = distances.between(shape, 4, codes, targets)
    remembered = distances.between(shape, 4, codes, targets)
    np.testing.assert_array_equal(times, remembered)
    random = np.random.default_rng(0)
    for row, column in random.integers(0, (codes.size, targets.size), (200, 2)):
        steps = plan_reshard(mesh, shape, 4, layouts[row], sums[column], price)
        paid = sum(price(s.kind, s.axes, step_bytes(s, mesh, shape, 4)) for s in steps)
        assert paid == times[row, column]


def test_a_layout_that_does_not_fit_is_refused() -> None:
    distances = Distances(Mesh((2, 2)), alike)
    code = np.array([encode(Layout(((0, 1),)))])
    with pytest.raises(LayoutError, match="does not fit"):
        distances.between((3,), 4, code, code)


def test_a_dimension_that_no_axis_can_split_is_not_split() -> None:
    distances = Distances(Mesh((2, 2)), alike)
    code = np.array([encode(Layout(((0,), (1,))))])
    with pytest.raises(LayoutError, match="does not fit"):
        distances.between((4, 1), 4, code, code)


def test_tensors_of_one_kind_are_worked_out_once() -> None:
    asked = []

    def counted(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        asked.append((kind, axes, bytes_))
        return alike(kind, axes, bytes_)

    distances = Distances(Mesh((2, 2)), counted)
    rows, columns = (np.array([encode(Layout(dims))]) for dims in (((0, 1), ()), ((), (0, 1))))
    times = distances.between((8, 12), 4, rows, columns)
    count = len(asked)
    whole = np.array([encode(Layout((*dims, ()))) for dims in (((), (0, 1)), ((0, 1), ()))])
    assert distances.between((12, 8, 1), 4, whole[:1], whole[1:]) == times
    assert len(asked) == count == len(set(asked))
