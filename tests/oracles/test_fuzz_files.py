"""Damaged files are refused with short messages, or work: a hundred of each kind."""

from __future__ import annotations

import pytest

from tests.oracles.fuzz_files.__main__ import fuzz
from tests.oracles.fuzz_files.originals import originals
from tests.oracles.fuzz_files.use import READ_AND_USED


def test_damaged_files_are_refused_or_work(capsys: pytest.CaptureFixture[str]) -> None:
    files = originals()
    assert set(files) == set(READ_AND_USED)
    for kind, values in files.items():
        found = fuzz(kind, values, 100)
        assert found["others"] == 0, capsys.readouterr().err
        assert found["accepted"] + found["refused"] == found["files"] == 100
        assert found["accepted"] > 0
        assert found["refused"] > 50
        assert 0 < found["longest"] <= 4096
        assert found["slowest_seconds"] < 1


def test_what_is_accepted_and_does_not_work_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: object) -> None:
        raise RecursionError(f"of {path}")

    monkeypatch.setitem(READ_AND_USED, "cluster", broken)
    found = fuzz("cluster", [{"schema": 1}], 3)
    assert (found["files"], found["others"]) == (3, 3)
    assert "cluster 2: RecursionError: of " in capsys.readouterr().err
