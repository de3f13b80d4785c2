"""The lines of ranks differ if the ranks feed different batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensoropt.execution.agreement.fed_values import FedValues

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
