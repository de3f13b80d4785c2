"""Shares of a batch: their rows, and the regions that they hold."""

import numpy as np
import pytest

from tensoropt.errors import FeedError
from tensoropt.execution.world.shares import Share, joined_ranges, rows_table


def test_a_share_has_the_regions_of_its_rows() -> None:
    whole = np.arange(24).reshape(8, 3)
    rows = np.array([[0, 2], [5, 8]])
    share = Share(rows, np.concatenate([whole[:2], whole[5:]]), 8)
    assert share.shape == whole.shape
    for start, stop in ((0, 2), (1, 2), (5, 8), (6, 7), (4, 4)):
        region = (slice(start, stop), slice(1, 3))
        part = share.part(region)
        assert part is not None
        assert np.array_equal(part, whole[region])
    assert share.part((slice(None), slice(None))) is None
    assert share.part((slice(1, 3), slice(None))) is None
    part = share.part((slice(5, 8), slice(None)))
    assert part is not None
    assert np.shares_memory(part, share.value)


@pytest.mark.parametrize("rows", [[[0, 2]], [[2, 4], [0, 1]], [[0, 2], [8, 9]]])
def test_ranges_fit_the_value_and_the_batch(rows: list[list[int]]) -> None:
    with pytest.raises(FeedError, match="as many rows as the ranges count"):
        Share(np.array(rows), np.zeros((3, 1)), 8)


def test_ranges_that_touch_are_joined() -> None:
    assert joined_ranges([(4, 6), (0, 2), (2, 3), (5, 7), (9, 9)]) == [(0, 3), (4, 7)]
    table = rows_table([[], [(0, 1)], [(0, 1), (1, 2)]])
    assert table.tolist() == [[[0, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 1], [1, 2]]]
    assert rows_table([[]]).shape == (1, 1, 2)
