"""Pieces that begin at multiples of a unit: dimensions in which a batch is joined with others."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.errors import LayoutError
from tensoropt.parallel.assignments import assignments, configuration_of, encode
from tensoropt.parallel.configuration import configurations, input_slot, output_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh, Shares
from tensoropt.parallel.resharding.distances import Distances
from tensoropt.parallel.resharding.planner import plan_reshard, step_bytes
from tensoropt.tdl import Derivation, derive
from tensoropt.tensor_spec import TensorSpec


@st.composite
def meshes(draw: st.DrawFn) -> tuple[Mesh, int, int]:
    """A mesh, even or in proportion, a batch, and the unit of the extent that it is joined in."""
    axes = tuple(draw(st.lists(st.integers(2, 3), min_size=1, max_size=2)))
    devices = prod(axes)
    batch, unit = draw(st.integers(devices, 30)), draw(st.integers(2, 7))
    speeds = tuple(draw(st.lists(st.integers(1, 9), min_size=devices, max_size=devices)))
    shares = Shares(speeds, (batch,)) if draw(st.booleans()) else None
    return Mesh(axes, shares, ((batch * unit, unit),)), batch, unit


def reshape(source: tuple[int, ...], target: tuple[int, ...]) -> Derivation:
    """The derivation of a reshape."""
    shape = TensorSpec((len(target),), "int32", np.array(target, np.int32))
    return derive(
        "Reshape", (TensorSpec(source, "float32"), shape), (TensorSpec(target, "float32"),), {}
    )


@settings(max_examples=40, deadline=None)
@given(meshes())
def test_a_joined_extent_falls_into_the_pieces_of_its_batch(drawn: tuple[Mesh, int, int]) -> None:
    mesh, batch, unit = drawn
    joined = batch * unit
    for axes in permutations(range(len(mesh.axes))):
        for rank in mesh:
            start, end = mesh.bounds(batch, axes, rank)
            assert mesh.bounds(joined, axes, rank) == (start * unit, end * unit)
        assert mesh.largest(joined, axes) == unit * mesh.largest(batch, axes)
        assert mesh.divides(joined, axes) == mesh.divides(batch, axes)
        assert mesh.has_empty(joined, axes) == mesh.has_empty(batch, axes)


@settings(max_examples=40, deadline=None)
@given(meshes(), st.booleans(), st.integers(1, 3))
def test_a_piece_of_a_reshape_is_the_reshape_of_a_piece(
    drawn: tuple[Mesh, int, int], parts: bool, width: int
) -> None:
    """The reshape joins the batch, or parts it again; it is split as far as the batch is."""
    mesh, batch, unit = drawn
    shapes = (batch, unit, width), (batch * unit, width)
    source, target = reversed(shapes) if parts else shapes
    derivation, offered = reshape(source, target), frozenset({batch, batch * unit})
    values = np.arange(prod(source)).reshape(source)
    options = configurations(derivation, mesh, offered)
    everywhere = tuple(range(len(mesh.axes)))
    assert any(everywhere in option.splits for option in options) != mesh.has_empty(
        batch, everywhere
    )
    for option in options:
        read = input_slot(derivation, option, 0).forward
        made = output_slot(derivation, option, 0).forward
        for rank in mesh:
            piece = values[read.region(source, mesh, rank)]
            region = made.region(target, mesh, rank)
            local = made.shape_on(target, mesh, rank)
            assert np.array_equal(piece.reshape(local), values.reshape(target)[region])
    rows = assignments(derivation, mesh, offered)
    assert {configuration_of(row, len(derivation.indices)) for row in rows} == {*options}


def test_searches_and_plans_price_the_same_steps() -> None:
    mesh, shape = Mesh((2, 2), None, ((30, 5),)), (30, 12)

    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return 7 * len(kind) + 3 * sum(axes) + bytes_

    dims = ((), (0,), (1,), (0, 1))
    layouts = [Layout((a, b)) for a in dims for b in dims if not {*a} & {*b}]
    codes = np.array([encode(layout) for layout in layouts])
    table = Distances(mesh, price).between(shape, 4, codes, codes)
    for row, source in zip(table.tolist(), layouts, strict=True):
        for time, target in zip(row, layouts, strict=True):
            steps = plan_reshard(mesh, shape, 4, source, target, price)
            bytes_ = [step_bytes(step, mesh, shape, 4) for step in steps]
            pairs = zip(steps, bytes_, strict=True)
            assert time == sum(price(step.kind, step.axes, moved) for step, moved in pairs)


def test_other_splits_of_an_extent_with_a_unit_stay_right() -> None:
    """Six heads of five columns are parted where the batch has six examples of five words."""
    mesh = Mesh((2, 2), None, ((30, 5),))
    heads = reshape((8, 30), (8, 6, 5))
    splits = {option.splits[1] for option in configurations(heads, mesh, frozenset({6, 30}))}
    assert splits == {(), (0,), (1,), (0, 1)}


@pytest.mark.parametrize(
    "units", [((30, 4),), ((30, 1),), ((4, 2),), ((30, 5), (12, 3)), ((6, 2), (30, 5))]
)
def test_units_fit_their_extents(units: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(LayoutError, match=r"extents with units are sorted, larger than the number"):
        Mesh((2, 2), None, units)
