"""Paths that documents name exist, and the maps of the repository name every package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"`([\w.-]+/[\w./-]*)`")
BESIDE = re.compile(r"`([\w-]+\.(?:py|cc|h))`")


def _missing(text: str) -> Iterator[str]:
    """Paths from the root or from tensoropt/, and names of files there or beside one of them in the
    same line."""
    roots = (ROOT, ROOT / "tensoropt")
    for line in text.splitlines():
        named = PATH.findall(line)
        found = [root / path for root in roots for path in named if (root / path).exists()]
        yield from (path for path in named if not any((root / path).exists() for root in roots))
        folders = {*roots, *(each if each.is_dir() else each.parent for each in found)}
        names = BESIDE.findall(line) if named else []
        yield from (name for name in names if not any((each / name).exists() for each in folders))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_exists(path: Path) -> None:
    assert not list(_missing(path.read_text("utf-8")))


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "see `search/find.py`, `search/lost.py` and `limits.py`, `lost.py` beside it"
    assert list(_missing(text)) == ["search/lost.py", "lost.py"]


def test_maps_name_every_package() -> None:
    packages = {each.parent.name for each in (ROOT / "tensoropt").glob("*/__init__.py")}
    readme = (ROOT / "README.md").read_text("utf-8")
    assert packages <= set(re.findall(r"`tensoropt/(\w+)/`", readme))
    flow = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Words")[0]
    assert packages <= set(re.findall(r"\w+", flow))
