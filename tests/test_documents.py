"""Paths that documents name exist, the maps of the repository name every package, and sentences
of comments and docstrings begin with their subject."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"`([\w.-]+/[\w./-]*)`")
BANNED = ("So many", "Such", "What is", "What a", "Of a", "Of which", "Nobody", "Whoever")
"""Openings of a sentence in a comment or docstring whose subject readers have to look for."""

PLAIN_PACKAGES = (ROOT / "tensoropt" / "cli",)
"""Packages and modules whose comments and docstrings are free of banned openings."""

OPENING = re.compile(
    rf"(?:^|[.:;?!]\s+|\n\s*\n\s*|^\s*[-*]\s+)({'|'.join(BANNED)})\b", re.MULTILINE
)
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


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a module, each with its first line; comments in lines that
    follow each other are one text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = ast.get_source_segment(source, node.value) or ""
            yield node.lineno, text.strip("\"'r")
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != first + len(lines):
            yield first, "\n".join(lines)
            first, lines = token.start[0], []
        lines.append(token.string.removeprefix("#:").lstrip("# "))
    yield first, "\n".join(lines)


def _banned_openings(source: str) -> Iterator[tuple[int, str]]:
    for first, text in _texts(source):
        for match in OPENING.finditer(text):
            yield first + text.count("\n", 0, match.start(1)), match[1]


def test_sentences_in_the_code_begin_with_their_subject() -> None:
    modules = (path for each in PLAIN_PACKAGES for path in (each, *each.rglob("*.py")))
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {opening}"
        for path in modules
        if path.suffix == ".py"
        for line, opening in _banned_openings(path.read_text("utf-8"))
    ]


def test_a_banned_opening_is_found() -> None:
    source = (
        '"""Adds up. Nobody\nreads it."""\n\nx = 1  # Such sums,\n# of what is\n# there. What is\n'
    )
    assert list(_banned_openings(source)) == [(1, "Nobody"), (4, "Such"), (6, "What is")]
