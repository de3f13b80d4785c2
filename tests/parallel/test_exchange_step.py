"""The step that gives every piece its halo: what it refuses, where it leads, and back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensoropt.errors import LayoutError
from tensoropt.parallel.resharding import Exchange


def halo(before: int, after: int, pieces: int = 3, extent: int = 4) -> Exchange:
    starts = tuple(place * extent - before for place in range(pieces))
    return Exchange((0,), 1, extent, starts, before + extent + after, fill=7)


def test_there_and_back() -> None:
    step = halo(1, 2)
    assert (step.result, step.adjoint.result) == (7, 4)
    assert step.adjoint.adjoint == Exchange((0,), 1, 4, (-1, 3, 7), 7)
    assert str(step) == "exchange of 1 in windows of 7 at -1,3,7 over [0]"
    assert str(step.adjoint) == "exchange_sum of 1 in windows of 7 at -1,3,7 over [0]"


@pytest.mark.parametrize(
    ("step", "local"),
    [
        (halo(1, 0), False),
        (halo(0, 1), False),
        (halo(0, 0), True),
        (halo(-1, -2), True),
        (halo(-4, 1), False),  # the whole window is the next piece's
        (Exchange((0,), 0, 4, (-9, 4, 12), 4), True),  # outside, its own, outside
        (Exchange((0,), 0, 4, (-3, 4), 5), True),  # beyond both ends
        (Exchange((0,), 0, 4, (-3, 3), 5), False),
        (Exchange((0,), 0, 4, (5, 1), 0), True),
    ],
)
def test_windows_inside_their_pieces_are_local(step: Exchange, local: bool) -> None:
    assert step.is_local is local
    assert step.adjoint.is_local is local


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Exchange((), 0, 4, (0,), 4),
        lambda: Exchange((0,), -1, 4, (0, 4), 4),
        lambda: Exchange((0,), 0, 4, (0, 4), -1),
        lambda: Exchange((0,), 0, -4, (0, 4), 1),
    ],
)
def test_an_exchange_has_axes_and_extents(wrong: Callable[[], Exchange]) -> None:
    with pytest.raises(LayoutError, match="an exchange has mesh axes"):
        wrong()
