"""The benchmark of evaluations and predictions: its comparison with plain Keras."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.forward.__main__ import arguments, compared


def rank(seconds: float, result: Any, peak: float = 1.0) -> dict[str, dict[str, Any]]:
    figures = {"all": seconds, "fixed": 0.25 * seconds, "batch": 0.1, "result": result}
    return {"evaluate": {**figures, "peak_mib": peak, "planned_mib": 2.0}}


def test_the_rank_with_most_seconds_is_compared_with_its_part_of_one_process() -> None:
    plain = [[rank(seconds, [1.0, 0.5])] for seconds in (8, 9, 7)]
    ours = [[rank(4, [1.0, 0.5]), rank(5, [1.0, 0.500001], 3.0)]] * 3
    shares = [[rank(3, [0.9]), rank(3, [0.8])]]
    figures = compared(plain, shares, ours, 2, "evaluate")
    assert figures["ratio"] == pytest.approx(2 * 5 / 8)
    assert figures["plain fixed"] == 2
    assert figures["peak"] == 3
    assert figures["equal"]
    assert not compared(plain, shares, [[rank(4, [1.0, 0.6])]], 2, "evaluate")["equal"]


def test_by_default_all_models_run_on_two_and_four_ranks() -> None:
    options = arguments([])
    assert len(options.models) == 4
    assert options.ranks == [2, 4]
