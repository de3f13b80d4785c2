"""The device mesh: numbering, pieces and groups."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.errors import LayoutError
from tensoropt.parallel.mesh import Mesh, prime_factors

meshes = st.lists(st.integers(2, 4), max_size=4).map(lambda axes: Mesh(tuple(axes)))


@st.composite
def meshes_and_axes(draw: st.DrawFn) -> tuple[Mesh, tuple[int, ...]]:
    """A mesh and some of its axes, in any order."""
    mesh = draw(meshes)
    order = draw(st.permutations(range(len(mesh.axes))))
    return mesh, tuple(order[: draw(st.integers(0, len(order)))])


@given(st.integers(1, 10_000))
def test_prime_factors_are_primes_in_ascending_order_and_multiply_to_the_number(
    number: int,
) -> None:
    factors = prime_factors(number)
    assert prod(factors) == number
    assert list(factors) == sorted(factors)
    assert all(factor % divisor for factor in factors for divisor in range(2, factor))


@given(meshes)
def test_coordinates_and_rank_are_inverse_and_row_major(mesh: Mesh) -> None:
    places = list(itertools.product(*(range(size) for size in mesh.axes)))
    assert [mesh.coordinates(rank) for rank in mesh] == places
    assert [mesh.rank(place) for place in places] == list(range(mesh.size))


@given(meshes_and_axes())
def test_a_group_is_ordered_by_piece_and_holds_what_differs_along_its_axes_only(
    case: tuple[Mesh, tuple[int, ...]],
) -> None:
    mesh, axes = case
    others = [axis for axis in range(len(mesh.axes)) if axis not in axes]
    for rank in mesh:
        group = mesh.group(rank, axes)
        assert [mesh.piece(member, axes) for member in group] == list(range(mesh.pieces(axes)))
        place = mesh.coordinates(rank)
        alike = [r for r in mesh if all(mesh.coordinates(r)[a] == place[a] for a in others)]
        assert sorted(group) == alike


@given(meshes_and_axes())
def test_a_partition_has_every_device_once(case: tuple[Mesh, tuple[int, ...]]) -> None:
    mesh, axes = case
    groups = mesh.partition(axes)
    assert sorted(rank for group in groups for rank in group) == list(mesh)
    assert all(mesh.group(rank, axes) == group for group in groups for rank in group)


def test_levels_become_prime_factors_outermost_first() -> None:
    assert Mesh.of(16, (2, 8)).axes == (2, 2, 2, 2)
    assert Mesh.of(12, (2, 6)).axes == (2, 2, 3)
    assert Mesh.of(6, (3, 2)).axes == (3, 2)
    assert Mesh.of(12).axes == (2, 2, 3)
    assert Mesh.of(1).axes == ()
    assert list(Mesh.of(1)) == [0]
    assert str(Mesh.of(12)) == "[2,2,3]"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mesh((2, 1)), r"at least 2 devices. Got axes \(2, 1\)"),
        (lambda: Mesh.of(12, (2, 8)), r"Got levels \(2, 8\) for 12"),
        (lambda: Mesh.of(0), "at least 1. Got 0"),
        (lambda: Mesh.of(16, (-2, -8)), "at least 1. Got -2"),
        (lambda: Mesh((2, 2)).coordinates(4), "devices 0 to 3. Got 4"),
        (lambda: Mesh((2, 2)).coordinates(-1), "devices 0 to 3. Got -1"),
        (lambda: Mesh((2, 3)).rank((1, 3)), r"Got \(1, 3\)"),
        (lambda: Mesh((2, 3)).rank((1,)), r"Got \(1,\)"),
        (lambda: Mesh((2, 2)).group(0, (1, 1)), r"different axes .* Got \(1, 1\)"),
        (lambda: Mesh((2, 2)).group(0, (-1,)), r"different axes .* Got \(-1,\)"),
    ],
)
def test_what_breaks_a_rule_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(LayoutError, match=message):
        call()
