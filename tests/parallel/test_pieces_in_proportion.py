"""Pieces in proportion to the speeds of devices: how a mesh cuts dimensions."""

from __future__ import annotations

from itertools import pairwise, permutations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.errors import LayoutError
from tensoropt.parallel.configuration import configurations
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh, Shares
from tensoropt.parallel.resharding import step_traffic
from tensoropt.parallel.resharding.planner import price_layouts, steps_of_shape
from tensoropt.tdl import derive
from tensoropt.tensor_spec import TensorSpec


@st.composite
def meshes(draw: st.DrawFn) -> tuple[Mesh, int]:
    """A mesh whose devices have speeds, and an extent that it cuts in proportion."""
    axes = tuple(draw(st.lists(st.integers(2, 3), min_size=1, max_size=3)))
    speeds = st.lists(st.integers(1, 9), min_size=prod(axes), max_size=prod(axes))
    extent = draw(st.integers(prod(axes), 200))
    return Mesh(axes, Shares(tuple(draw(speeds)), (extent,))), extent


def bounds(mesh: Mesh, extent: int, axes: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """The bounds of each piece, by its number."""
    return {mesh.piece(rank, axes): mesh.bounds(extent, axes, rank) for rank in mesh}


@given(meshes())
def test_pieces_add_up_and_nest(drawn: tuple[Mesh, int]) -> None:
    mesh, extent = drawn
    for axes in permutations(range(len(mesh.axes))):
        pieces = [piece for _, piece in sorted(bounds(mesh, extent, axes).items())]
        assert (pieces[0][0], pieces[-1][1]) == (0, extent)
        assert all(one[1] == other[0] for one, other in pairwise(pieces))
        assert mesh.largest(extent, axes) == max(end - start for start, end in pieces)
        assert mesh.has_empty(extent, axes) == any(start == end for start, end in pieces)
        for rank in mesh:
            start, end = mesh.bounds(extent, axes, rank)
            first, last = mesh.bounds(extent, axes[:-1], rank)
            assert first <= start <= end <= last


@given(meshes())
def test_a_piece_of_one_axis_is_its_share_rounded(drawn: tuple[Mesh, int]) -> None:
    mesh, extent = drawn
    assert mesh.shares is not None
    speeds = mesh.shares.speeds
    for axis, size in enumerate(mesh.axes):
        for place, (start, end) in bounds(mesh, extent, (axis,)).items():
            behind = sum(speeds[n] for n in mesh if mesh.coordinates(n)[axis] == place)
            exact = extent * behind / sum(speeds)
            assert end > start
            assert end - start < exact + 1
            assert end - start > exact - size


@given(meshes())
def test_equal_speeds_cut_evenly(drawn: tuple[Mesh, int]) -> None:
    mesh, extent = drawn
    equal = Mesh(mesh.axes, Shares((7,) * mesh.size, (extent,)))
    axes = tuple(range(len(mesh.axes)))
    for rank in mesh:
        assert equal.bounds(extent, axes, rank) == Mesh(mesh.axes).bounds(extent, axes, rank)


def test_other_extents_are_cut_evenly() -> None:
    mesh = Mesh((2,), Shares((3, 1), (12,)))
    split = Layout(((0,),))
    assert [split.shape_on((12,), mesh, rank) for rank in mesh] == [(9,), (3,)]
    assert [split.shape_on((8,), mesh, rank) for rank in mesh] == [(4,), (4,)]
    assert split.local_shape((12,), mesh) == (9,)
    assert (split.uneven_dims((12,), mesh), split.uneven_dims((8,), mesh)) == ((0,), ())


def test_a_slow_device_among_fast_ones_has_its_own_share() -> None:
    mesh = Mesh((2, 2), Shares((2, 2, 2, 1), (70,)))
    assert list(bounds(mesh, 70, (0, 1)).values()) == [(0, 20), (20, 40), (40, 60), (60, 70)]


def test_indices_with_dimensions_of_other_extents_are_not_cut_in_proportion() -> None:
    """A reshape that joins the batch with another dimension is whole or split otherwise."""
    source, target = TensorSpec((6, 4), "float32"), TensorSpec((24,), "float32")
    derivation = derive("Reshape", (source, TensorSpec((1,), "int32")), (target,), {})
    even = configurations(derivation, Mesh((2,)))
    shared = configurations(derivation, Mesh((2,), Shares((2, 1), (6, 24))), frozenset({6, 24}))
    assert len(even) > len(shared) == 1


def test_the_search_and_plans_count_the_same_bytes_of_pieces_in_proportion() -> None:
    """Also those of an all-to-all that cuts one dimension in proportion and joins another."""
    mesh, shape = Mesh((2, 2), Shares((3, 1, 2, 1), (30, 12))), (30, 12)
    graph = price_layouts(mesh, shape, 4, (), lambda kind, axes, bytes_: bytes_, uneven=(0, 1))
    kinds = set()
    for number, edge in enumerate(graph.edge.tolist()):
        (step,) = steps_of_shape([graph.space.step(edge)], shape, mesh)
        traffic = step_traffic([step], mesh, step.source.local_shape(shape, mesh), 4)
        assert sum(each.bytes for each in traffic) == int(graph.weight[number]), step
        kinds.add(step.kind)
    assert kinds == {"allgather", "alltoall", "slice"}


def test_every_device_has_a_speed() -> None:
    with pytest.raises(LayoutError, match=r"Got 3 speeds for the 4 devices"):
        Mesh((2, 2), Shares((1, 2, 3), (8,)))
    with pytest.raises(LayoutError, match=r"speed is at least 1. Got speeds \[0, 1\]"):
        Shares((0, 1), (8,))
