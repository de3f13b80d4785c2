"""Layouts: which part each device holds, and the paper's notation for it."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.errors import LayoutError
from tensoropt.parallel.layout import REDUCERS, Layout
from tensoropt.parallel.mesh import Mesh


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Mesh, Layout]:
    """A mesh of four axes at most, and any layout on it."""
    mesh = Mesh(tuple(draw(st.lists(st.integers(2, 3), max_size=4))))
    rank = draw(st.integers(0, 3))
    dims: list[tuple[int, ...]] = [()] * rank
    partial: list[int] = []
    for axis in draw(st.permutations(range(len(mesh.axes)))):
        place = draw(st.integers(-2, rank - 1))
        if place >= 0:
            dims[place] = (*dims[place], axis)
        elif place == -1:
            partial.append(axis)
    return mesh, Layout(tuple(dims), tuple(partial), draw(st.sampled_from(REDUCERS)))


def a_shape(mesh: Mesh, layout: Layout) -> tuple[int, ...]:
    """A shape that the layout fits, with dimensions of different sizes."""
    return tuple(mesh.pieces(axes) * (dim + 1) for dim, axes in enumerate(layout.dims))


@given(layouts())
def test_regions_tile_the_tensor_as_often_as_it_is_replicated(case: tuple[Mesh, Layout]) -> None:
    mesh, layout = case
    shape = a_shape(mesh, layout)
    held = np.zeros(shape, dtype=int)
    for rank in mesh:
        region = layout.region(shape, mesh, rank)
        assert held[region].shape == layout.local_shape(shape, mesh)
        held[region] += 1
    split = prod(mesh.pieces(axes) for axes in layout.dims)
    assert (held == mesh.size // split).all()
    assert layout.local_elements(shape, mesh) * split == prod(shape)


@given(layouts())
def test_the_device_at_a_place_of_the_mesh_holds_the_pieces_that_the_map_says(
    case: tuple[Mesh, Layout],
) -> None:
    mesh, layout = case
    sizes, tensor_map = layout.mesh_and_map(mesh)
    shape = a_shape(mesh, layout)
    local = layout.local_shape(shape, mesh)
    devices = np.array(layout.permutation(mesh)).reshape(sizes)
    for place, rank in np.ndenumerate(devices):
        starts = [
            place[entry] * n if entry >= 0 else 0
            for entry, n in zip(tensor_map, local, strict=True)
        ]
        assert [part.start for part in layout.region(shape, mesh, int(rank))] == starts


@given(layouts())
def test_only_dimensions_split_by_scattered_or_unordered_axes_permute_the_devices(
    case: tuple[Mesh, Layout],
) -> None:
    mesh, layout = case
    runs = all(axes == tuple(range(axes[0], axes[0] + len(axes))) for axes in layout.dims if axes)
    assert (layout.permutation(mesh) == tuple(range(mesh.size))) == runs
    assert ("axes" in layout.describe(mesh)) != runs


def test_figure_1_of_the_paper() -> None:
    mesh = Mesh((2, 2))
    shape = (200, 100)
    for dims, sizes, tensor_map, allocation in (
        (((0, 1), ()), (4,), (0, -1), (50, 100)),
        (((), (0, 1)), (4,), (-1, 0), (200, 25)),
        (((0,), (1,)), (2, 2), (0, 1), (100, 50)),
    ):
        layout = Layout(dims)
        assert layout.local_shape(shape, mesh) == allocation
        assert layout.mesh_and_map(mesh) == (sizes, tensor_map)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(((0,), ())), "[2,4] map [0,-1]"),
        (Layout(((1,), ())), "[2,2,2] map [1,-1]"),
        (Layout(((0, 1), (2,))), "[4,2] map [0,1]"),
        (Layout(((2,), (0, 1))), "[4,2] map [1,0]"),
        (Layout(((), ())), "[8] map [-1,-1]"),
        (Layout(((0, 2), ())), "[4,2] map [0,-1] axes [0,2,1]"),
        (Layout(((1, 0), (2,))), "[4,2] map [0,1] axes [1,0,2]"),
        (Layout(((0,), ()), (1, 2)), "[2,4] map [0,-1] partial sum [1]"),
        (Layout(((), (1,)), (0,), "max"), "[2,2,2] map [-1,1] partial max [0]"),
    ],
)
def test_the_notation(layout: Layout, text: str) -> None:
    assert layout.describe(Mesh((2, 2, 2))) == text


def test_the_mesh_of_one_device_has_one_dimension() -> None:
    assert Layout(((), ())).mesh_and_map(Mesh(())) == ((1,), (-1, -1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Layout(((0,), (0,))), r"splits one dimension at most. Got \(0,0\)"),
        (lambda: Layout(((0,),), (0,)), "splits one dimension at most"),
        (lambda: Layout(((-1,),)), "counted from 0"),
        (lambda: Layout(((),), (0,), "mean"), "a reducer is one of .* Got 'mean'"),
        (lambda: Layout(((0, 1),)).local_shape((3,), Mesh((2, 2))), r"Got shape \(3,\)"),
        (lambda: Layout(((0,),)).local_shape((4, 4), Mesh((2, 2))), r"Got shape \(4, 4\)"),
        (lambda: Layout(((2,),)).local_shape((4,), Mesh((2, 2))), r"Got shape \(4,\)"),
        (lambda: Layout(((2,),)).mesh_and_map(Mesh((2, 2))), "axes 0 to 1"),
    ],
)
def test_what_breaks_a_rule_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(LayoutError, match=message):
        call()


def test_partial_axes_are_sorted_and_equal_layouts_are_equal() -> None:
    assert Layout(((),), (2, 0)) == Layout(((),), (0, 2))
    assert Layout(((),), (), "max") == Layout(((),))
    assert hash(Layout(((),), (2, 0))) == hash(Layout(((),), (0, 2)))
    assert Layout.replicated(2) == Layout(((), ()))
    assert Layout(((2,), (1,)), (0,)).axes == (0, 1, 2)
