"""Numbers in place of values."""

from __future__ import annotations

from tensoropt.parallel.choices.value_numbers import ValueNumbers


def test_equal_values_have_one_number_in_the_order_they_came() -> None:
    numbered = ValueNumbers()
    values = [("a", 1), ("b", 2), tuple(["a", 1]), ("c", 3)]  # noqa: C409  (another object)
    assert [numbered.of(value) for value in values] == [0, 1, 0, 2]
    assert [numbered.of(value) for value in reversed(values)] == [2, 0, 1, 0]


def test_a_value_that_is_gone_lends_its_number_to_no_other() -> None:
    numbered = ValueNumbers()
    assert [numbered.of(("x", place)) for place in range(100)] == list(range(100))
