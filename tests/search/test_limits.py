"""Limits are checked where they are made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tensoropt.errors import OptionError
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits


@pytest.mark.parametrize("name", [field.name for field in fields(SearchLimits)])
def test_no_limit_is_below_its_least(name: str) -> None:
    default = getattr(DEFAULT_LIMITS, name)
    wrong: list[Any] = [-1, float("nan")]
    if isinstance(default, tuple):
        wrong = [(), ((1, 3),), ((7, 3), (9, 0))]
    for value in wrong:
        with pytest.raises(OptionError, match=f"^{name} .*Got .*; the default is"):
            SearchLimits(**{name: value})
    assert SearchLimits(**{name: default}) == DEFAULT_LIMITS


@pytest.mark.parametrize("name", ["exact_nodes", "simplified_nodes", "branch_states"])
def test_what_is_divided_by_is_not_zero(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is at least 1. Got 0"):
        SearchLimits(**{name: 0})
