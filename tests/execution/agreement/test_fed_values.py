"""The lines of ranks differ if the ranks feed different batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensoropt.errors import RankMismatchError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.fed_values import FedValues, ReadArrays

LARGE = np.random.default_rng(0).normal(size=(128, 1000)).astype(np.float32)


def lines(every: int, runs: list[Any]) -> list[list[str]]:
    values = FedValues(frozenset({"x"}), every)
    return [values.lines({"x": np.asarray(run), "rate": np.float32(0)}) for run in runs]


def test_equal_batches_have_equal_lines() -> None:
    runs = [LARGE, LARGE[:2], LARGE.T, np.array([b"a", b"bc"], object), np.int8(3), LARGE[:0]]
    copies = [np.array(run) for run in runs]
    assert lines(2, runs) == lines(2, copies)
    assert lines(2, runs)[1][0] == "feed_dict of 'rate', shape []"


def test_other_orders_and_other_batches_differ_in_every_run() -> None:
    others: list[Any] = [LARGE[::-1], LARGE + 1, np.roll(LARGE, 1, axis=0)]
    for found, other in zip(lines(50, [LARGE] * 3), lines(50, others), strict=True):
        assert found[0] == other[0]
        assert found[1] != other[1]
    strings = [np.array(["a", "b"], object)], [np.array(["b", "a"], object)]
    assert lines(1, strings[0]) != lines(1, strings[1])


def test_any_difference_is_found_where_all_is_compared() -> None:
    odd = LARGE.copy()
    odd[77, 500] += 1
    found, other = lines(2, [LARGE] * 4), lines(2, [odd] * 4)
    assert [a != b for a, b in zip(found, other, strict=True)] == [True, False, True, False]


def test_values_are_not_compared_where_no_run_is_to() -> None:
    assert lines(0, [LARGE])[0][1] == "feed_dict of 'x', shape [128, 1000]"


class _Noted(Agreement):
    """An agreement that notes the lines that other ranks would compare."""

    def __init__(self) -> None:
        super().__init__(None)
        self.noted: list[list[str]] = []

    def check(self, call: str, details: Sequence[str] = (), remedy: str = "") -> None:
        self.noted.append(list(details))


def array_lines(calls: Sequence[Any], every: int) -> list[list[str]]:
    arrays, noted = ReadArrays(), _Noted()
    for call in calls:
        arrays.check(noted, "evaluate", {"x": call}, every, "")
    return noted.noted


def test_arrays_are_compared_whole_when_they_are_new_and_at_intervals() -> None:
    other = LARGE + 1
    found = array_lines([LARGE] * 4 + [other, other, LARGE], every=3)
    assert [len(lines) for lines in found] == [2, 1, 1, 2, 2, 1, 2]
    assert found[0][1] != found[0][0] == found[1][0] == found[6][0]
    assert found[4] == array_lines([other.copy()], every=3)[0]


def test_a_small_edit_of_arrays_is_found_at_the_interval() -> None:
    odd = LARGE.copy()
    odd[77, 500] += 1
    found, edited = array_lines([LARGE] * 4, 3), array_lines([LARGE, odd, odd, odd], 3)
    assert [a == b for a, b in zip(found, edited, strict=True)] == [True, True, True, False]


def test_after_a_difference_all_ranks_compare_whole_arrays() -> None:
    arrays, noted = ReadArrays(), _Noted()
    arrays.check(noted, "evaluate", {"x": LARGE}, 50, "")
    with pytest.raises(RankMismatchError):
        arrays.check(_Differing(None), "evaluate", {"x": LARGE}, 50, "")
    arrays.check(noted, "evaluate", {"x": LARGE}, 50, "")
    assert [len(lines) for lines in noted.noted] == [2, 2]


class _Differing(Agreement):
    def check(self, *_: Any) -> None:
        raise RankMismatchError("ranks differ")


def test_arrays_are_not_compared_where_nothing_is_to() -> None:
    assert array_lines([LARGE], every=0) == []
