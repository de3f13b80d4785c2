"""Paths and anchors that documents name exist, the maps of the repository name every package,
lines and paragraphs are short, and sentences of the code begin with their subject."""

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
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCUMENTS]
LINE, PARAGRAPH = 120, 6
"""The most characters of a line, and the most lines of a paragraph, of a page."""

BANNED = ("So many", "Such", "What is", "What a", "Of a", "Of which", "Nobody", "Whoever")
"""Openings of a sentence in a comment or docstring whose subject readers have to look for."""

CODE = ("tensoropt", "collectives", "benchmarks", "reproduction", "tools", "tests/oracles")

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
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert packages <= set(re.findall(r"`tensoropt/(\w+)/`", text))
    flow = text.partition("## Where things are")[0]
    assert packages <= set(re.findall(r"\w+", flow))


def _too_long(text: str) -> Iterator[tuple[int, str]]:
    """Lines of more than `LINE` characters, and paragraphs and items of lists of more than
    `PARAGRAPH` lines, each with its first line."""
    code, lines = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LINE:
            yield number, f"{len(line)} characters"
        words = line.lstrip()
        code ^= words.startswith("```")
        prose = words and not code and not words.startswith(("|", "#", "<", "```"))
        begins = re.match(r"[-*] |\d+\. ", words)
        lines = 0 if not prose else 1 if begins else lines + 1
        if lines == PARAGRAPH + 1:
            yield number - PARAGRAPH, f"a paragraph of more than {PARAGRAPH} lines"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_and_paragraphs_of_pages_are_short(path: Path) -> None:
    told = [f"{path.name}:{line}: {what}" for line, what in _too_long(path.read_text("utf-8"))]
    assert not told


def test_a_line_and_a_paragraph_that_are_too_long_are_found() -> None:
    text = "\n".join(["# Title", "", *["word"] * 7, "", "- item", *["  word"] * 5, "", "x" * 121])
    assert list(_too_long(text)) == [
        (3, "a paragraph of more than 6 lines"),
        (18, "121 characters"),
    ]


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_anchors_that_a_page_links_exist(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text)
    targets = {page: (path.parent / page if page else path) for page, _ in links}
    anchors = {page: _anchors(target.read_text("utf-8")) for page, target in targets.items()}
    assert not [f"{page}#{anchor}" for page, anchor in links if anchor not in anchors[page]]


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a module, each with its first line; comments in lines that
    follow each other are one text."""
    written = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text = "\n".join(written[value.lineno - 1 : value.end_lineno])
            yield value.lineno, text.strip().strip("\"'r")
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
    if not re.search("|".join(BANNED), source):
        return  # Taking most modules apart costs seconds.
    for first, text in _texts(source):
        for match in OPENING.finditer(text):
            yield first + text.count("\n", 0, match.start(1)), match[1]


def test_sentences_in_the_code_begin_with_their_subject() -> None:
    told = []
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        openings = _banned_openings(path.read_text("utf-8"))
        told += [f"{name}:{line}: {opening}" for line, opening in openings]
    assert not told


def test_a_banned_opening_is_found() -> None:
    source = (
        '"""Adds up. Nobody\nreads it."""\n\nx = 1  # Such sums,\n# of what is\n# there. What is\n'
    )
    assert list(_banned_openings(source)) == [(1, "Nobody"), (4, "Such"), (6, "What is")]
