"""Growth: exponents are of what was proven, and what is known is not searched again."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.search import growth


def line(layers: int, seconds: float, *, exact: bool = True) -> dict[str, Any]:
    return {
        "layers": layers,
        "cpu_seconds": seconds,
        "exact": exact,
        "within": 0.0 if exact else 0.02,
        "reached": exact,
    }


def test_an_exponent_is_the_slope_through_logarithms() -> None:
    assert growth.exponent([2, 4, 8], [12, 48, 192]) == pytest.approx(2)
    assert growth.exponent([2], [1]) is None


def test_what_was_not_proven_does_not_count() -> None:
    series = growth.Series("bert", "layers", (6, 12, 24), 8, 0.0)
    found = {6: line(6, 1), 12: line(12, 4), 24: line(24, 4, exact=False)}
    fitted = growth.fitted(series, found)
    assert fitted["exponent"] == pytest.approx(2)
    assert fitted["exponent_of_all"] == pytest.approx(1)
    assert growth.reached(line(6, 1, exact=False), 0.02)
    assert not growth.reached(line(6, 1, exact=False), 0.01)


def test_names_of_series_differ() -> None:
    assert len(growth.SERIES) == 11
