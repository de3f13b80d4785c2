"""What the documentation names is there, and the program that it shows runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import tensoropt
from tensoropt import errors
from tensoropt.cli.main import main
from tensoropt.tdl import operator_type, registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACES = (ROOT, ROOT / "tensoropt")


def test_every_page_is_linked_from_the_readme() -> None:
    text = PAGES[0].read_text()
    assert len(PAGES) > 3
    assert all(f"(docs/{page.name})" in text for page in PAGES[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_are_there(page: Path) -> None:
    text = page.read_text()
    prose = re.sub(r"`[^`\n]*`", "", text)  # code may look like a link
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        assert (page.parent / link).exists(), link
    for name in re.findall(r"`([\w.*-][\w./*-]*/[\w.*-]*)`", text):
        found = [place for place in PLACES if any(place.glob(name.rstrip("/")))]
        assert found, name


def test_every_error_is_in_the_user_guide() -> None:
    text = (ROOT / "docs" / "user-guide.md").read_text()
    inner = {"DescriptionError", "LayoutError", "TensorOptError"}  # of who extends TensorOpt
    for name in set(errors.__all__) - inner:
        assert f"`{name}`" in text, name


def test_the_descriptions_that_are_shown_fit_their_kernel_and_derive() -> None:
    text = (ROOT / "docs" / "adding-an-operator.md").read_text()
    of_script, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(of_script, {})
    assert operator_type("NearestNeighbors").description is not None
    registry.forget("NearestNeighbors")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {})
    assert out.getvalue().splitlines() == [
        "i 8 None True",
        "j 6 None True",
        "k 4 sum True",
        "((0, 2), (1, 2)) ((0, 1),) 384",
    ]


def test_the_command_lines_that_are_shown_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every `tensoropt ...` of the user guide runs, in order, from the root."""
    text = (ROOT / "docs" / "user-guide.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    blocks = blocks.replace("\\\n", " ")  # a command in several lines
    commands = re.findall(r"^tensoropt (.*)$", blocks, re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        *("clusters", "plan", "show", "plan", "check"),
    ]
    monkeypatch.chdir(ROOT)
    for command in commands:
        arguments = command.replace("plan.json", str(tmp_path / "plan.json")).split()
        assert main(arguments) == 0, capsys.readouterr().err
        tensoropt.reset_default_graph()
