"""The benchmark of whole trainings: differences of known losses."""

from __future__ import annotations

import pytest

from benchmarks.same_losses.differences import difference


def test_differences_of_known_losses() -> None:
    plain = [1.0] * 300
    other = [1.0] * 100 + [1.25] * 100 + [1.0] * 99 + [2.0]
    assert difference(plain, other) == {
        "first_hundred": 0.0,
        "all": 1.0,
        "end": 1.0,
        "end_smoothed": pytest.approx(0.01),
        "loss": 1.0,
    }
