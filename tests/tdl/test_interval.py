"""Interval arithmetic against the ranges that enumeration finds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.errors import DescriptionError
from tensoropt.tdl.interval import Interval


def ends(interval: Interval, *maxima: int) -> tuple[object, object]:
    return interval.at(maxima)


X, Y = Interval.whole(2, 0), Interval.whole(2, 1)


def test_a_sum_of_indices_is_exact() -> None:
    assert ends(X + Y, 7, 2) == (0, 9)
    assert str(X + Y + 1) == "[1, X0+X1+1]"


def test_halves_meet() -> None:
    first, second = Interval.first_half(1, 0), Interval.second_half(1, 0)
    assert ends(first, 9) == (0, 4)
    assert ends(second, 9) == (5, 9)
    assert ends(first, 4) == (0, Fraction(3, 2))
    assert str(second) == "[1/2X0+1/2, X0]"


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(-5, 5)),
)
def test_affine_ranges_are_tight(extents: tuple[int, int], terms: tuple[int, int, int]) -> None:
    a, b, c = terms
    values = [a * x - b * y + c for x in range(extents[0]) for y in range(extents[1])]
    low, high = ends(X * a - Y * b + c, *(n - 1 for n in extents))
    assert (low, high) == (min(values), max(values))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3))
def test_floor_division_is_exact_on_multiples(m: int, pieces: int, size: int, start: int) -> None:
    """Ranges that begin at a multiple of the divisor and span whole multiples of it."""
    values = range(start * m * size, (start + pieces) * m * size)
    interval = Interval.whole(1, 0) + start * m * size
    low, high = ends(interval // m, len(values) - 1)
    assert (low, high) == (values[0] // m, values[-1] // m)
    low, high = ends(interval % m, len(values) - 1)
    assert (low, high) == (min(v % m for v in values), max(v % m for v in values))


def test_division_by_a_number() -> None:
    assert ends(X / 2, 5, 0) == (0, Fraction(5, 2))
    assert ends(X * Interval.constant(2, 3), 5, 0) == (0, 15)
    assert ends(Interval.constant(2, 3) * X, 5, 0) == (0, 15)


def test_what_is_not_affine_is_refused() -> None:
    with pytest.raises(DescriptionError, match=r"product .* Got \[0, X0\] \* \[0, X1\]"):
        X * Y
    with pytest.raises(DescriptionError, match="quotient of two index ranges"):
        X / Y
    with pytest.raises(DescriptionError, match="divided by zero"):
        X / 0
    with pytest.raises(DescriptionError, match="by a positive integer"):
        X // -2
    with pytest.raises(DescriptionError, match="by a positive integer"):
        X % Fraction(1, 2)
    for compare in (X.__lt__, X.__le__, X.__gt__, X.__ge__):
        with pytest.raises(DescriptionError, match="comparison of two index ranges"):
            compare(Y)
