"""Differences between a job's end and the expected end are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.faults.__main__ import unexpected
from tests.oracles.faults.cases import Case, cases
from tests.oracles.faults.jobs import Ended

CASE = Case(
    "any", 2, (Path("script.py"),), words=("a", "b"), once=("c",), never=("d",), is_noted=True
)
WELL = Ended(1, "a b c", True, 2.0, (), ())


def test_a_job_that_ends_as_expected_is_well() -> None:
    assert unexpected(CASE, WELL) == []


@pytest.mark.parametrize(
    ("ended", "wrong"),
    [
        (Ended(None, "", True, 140.0, (), ()), "it hung"),
        (Ended(1, "a b c", False, 2.0, (), ()), "the fault did not happen"),
        (Ended(0, "a b c", True, 2.0, (), ()), "status 0, where not 0 is right"),
        (Ended(1, "a c", True, 2.0, (), ()), "no 'b'"),
        (Ended(1, "a b c c", True, 2.0, (), ()), "more than one 'c'"),
        (Ended(1, "a b c d", True, 2.0, (), ()), "'d'"),
        (Ended(1, "a b c", True, 99.0, (), ()), "99.0 s, where 25 are right"),
        (Ended(1, "a b c", True, 2.0, ("python",), ()), "left the process python"),
        (Ended(1, "a b c", True, 2.0, (), ("x",)), "left x in shared memory"),
    ],
)
def test_what_is_wrong_is_said(ended: Ended, wrong: str) -> None:
    assert unexpected(CASE, ended) == [wrong]


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) >= 76
