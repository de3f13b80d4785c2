"""Meshes from coarse to fine: what they multiply to, and how each comes of the one before."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest

from tensoropt.parallel.resharding.space import layout_space
from tensoropt.search.multilevel.refinement import layouts, most_axes, refinements


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layouts_are_those_that_are_enumerated(rank: int, axes: int) -> None:
    assert layouts(rank, axes) == len(layout_space((2,) * axes, rank, ("sum",)).keys)


def test_low_ranks_are_searched_on_more_axes() -> None:
    assert [most_axes(rank) for rank in (1, 2, 3, 4, 7)] == [5, 5, 4, 4, 4]


@pytest.mark.parametrize(
    ("levels", "meshes"),
    [
        ((24, 8), ["[8,3,8]", "[8,3,2,4]"]),
        ((32, 8), ["[32,8]", "[32,2,4]", "[4,8,2,4]"]),
        ((2, 8), ["[2,8]", "[2,2,4]", "[2,2,2,2]"]),
        ((128, 8), ["[128,8]", "[128,2,4]", "[8,16,2,4]"]),
        ((7,), ["[7]"]),
        ((30, 30), ["[2,3,5,2,3,5]"]),
    ],
)
def test_axes_are_split_one_at_a_time(levels: tuple[int, ...], meshes: list[str]) -> None:
    found = refinements(levels, 4)
    assert [str(each.mesh) for each in found] == meshes
    for before, after in pairwise(found):
        assert after.split is not None
        old, new = before.mesh.axes, after.mesh.axes
        assert prod(new[after.split : after.split + 2]) == old[after.split]
        assert new[: after.split] + new[after.split + 2 :] == (
            old[: after.split] + old[after.split + 1 :]
        )
