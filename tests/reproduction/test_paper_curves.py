"""Turning points and comparisons of frontiers, on frontiers whose shape is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.paper.curves import time_at, times_above
from tensoropt.planner.offers.points import turning_point


def integers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def test_the_corner_of_an_elbow_is_its_turning_point() -> None:
    turning = turning_point(integers(10, 11, 12, 20, 30), integers(100, 60, 20, 15, 10))
    assert turning is not None
    assert turning.index == 2
    assert turning.depth == pytest.approx(1 - 2 / 20 - 10 / 90)
    assert (turning.rise, turning.fall) == (8, 1)


def test_a_right_angle_has_all_the_depth_there_is() -> None:
    turning = turning_point(integers(0, 1, 10**9), integers(10**9, 1, 0) + 1)
    assert turning is not None
    assert turning.depth == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("memory", "time"),
    [
        ([5], [7]),
        ([5, 6], [7, 3]),
        ([0, 1, 2, 3], [31, 21, 11, 1]),
        ([0, 8, 9, 10], [10, 9, 8, 1]),
    ],
    ids=["point", "two points", "straight", "bulging"],
)
def test_what_does_not_bend_down_has_no_turning_point(memory: list[int], time: list[int]) -> None:
    assert turning_point(integers(*memory), integers(*time)) is None


frontiers = st.lists(st.integers(1, 1000), min_size=3, max_size=20, unique=True).flatmap(
    lambda memory: st.lists(
        st.integers(1, 1000), min_size=len(memory), max_size=len(memory), unique=True
    ).map(lambda time: (integers(*sorted(memory)), integers(*sorted(time, reverse=True))))
)


@given(frontiers, st.integers(1, 9), st.integers(1, 9))
def test_units_do_not_move_the_turning_point(
    frontier: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], one: int, other: int
) -> None:
    memory, time = frontier
    turning, scaled = turning_point(memory, time), turning_point(memory * one, time * other)
    assert (turning is None) == (scaled is None)
    if turning is not None and scaled is not None:
        assert scaled.depth == pytest.approx(turning.depth)
        assert scaled.rise == pytest.approx(turning.rise)
        assert 0 < turning.depth < 1
        assert turning.rise + turning.fall == pytest.approx((time[0] - time[-1]) / time[-1])


def test_the_least_time_is_that_of_the_last_point_that_fits() -> None:
    found = time_at(integers(10, 20), integers(9, 4), integers(5, 10, 19, 20, 99))
    assert found.tolist() == [np.inf, 9, 9, 4, 4]


def test_a_frontier_is_compared_at_the_points_of_the_one_above() -> None:
    ratio = times_above(integers(10, 20), integers(8, 4), integers(5, 10, 30), integers(9, 8, 6))
    assert ratio.tolist() == [0, 1, 1.5]
