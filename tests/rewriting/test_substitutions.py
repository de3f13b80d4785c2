"""The file of substitutions is read strictly, and reads back as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensoropt.errors import PlanError
from tensoropt.rewriting.substitutions import Substitution, proven, read, write


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    some = [each for each in proven() if each.reversed() is not None][:3]
    write(tmp_path / "some.json", some)
    assert read(tmp_path / "some.json") == tuple(some)
    for each in some:
        back = each.reversed()
        assert back is not None
        assert back.reversed() == each


def _first() -> Substitution:
    return proven()[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"schema": 2', '"schema": 3', "at schema: 3 "),
        ("concat[0](split", "combine[0](split", "which is not algebraic"),
        (" at x:2", " at q:2", "at algebraic/0: .*inputs of the source"),
        (" at x:2", " at x:5", "a rank from 0 to 4"),
        ("the parts concatenated", "the parts concatenated; ", "a name of each property"),
        ("{", "[", "JSON"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "damaged.json"
    write(path, [_first()])
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(PlanError, match=message):
        read(path)
