"""What the documentation names is there, and the program that it shows runs."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt
from tensoropt import errors
from tensoropt.cli.main import main
from tensoropt.tdl import operator_type, registry
from tensoropt.tensorflow_private import ops

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACES = (ROOT, ROOT / "tensoropt")


def test_the_navigation_has_every_page_once() -> None:
    """So that `make docs`, which takes warnings as errors, needs no more than the pages."""
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(PAGES) > 3
    assert sorted(listed) == [page.name for page in PAGES[1:]]


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_are_there(page: Path) -> None:
    text = page.read_text()
    prose = re.sub(r"`[^`\n]*`", "", text)  # code may look like a link
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        assert (page.parent / link).exists(), link
    for name in re.findall(r"`([\w.*-][\w./*-]*/[\w.*-]*)`", text):
        found = [place for place in PLACES if any(place.glob(name.rstrip("/")))]
        assert found, name


def test_the_page_of_errors_has_every_error_and_its_bases() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    for name in set(errors.__all__) - {"TensorOptError"}:
        assert f"| `{name}` |" in text, name
    sentences = re.findall(r"((?:`\w+`(?:,| and)?\s)+)are (?:also )?`(\w+)`s", text)
    sentences += re.findall(r"(`\w+`) is a `(\w+)`", text)
    told = {name: base for names, base in sentences for name in re.findall(r"`(\w+)`", names)}
    kinds = {name: getattr(errors, name).__bases__[1:] for name in errors.__all__}
    assert told == {name: base.__name__ for name, bases in kinds.items() for base in bases}


def test_the_page_of_the_api_has_every_name() -> None:
    """Each under the path of its definition, where mkdocstrings reads its docstring."""
    paths = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    found = {path.rpartition(".")[2]: path for path in paths}
    assert len(found) == len(paths)
    assert {*found, "errors"} == {*tensoropt.__all__, "PlanningOptions"}
    for name in set(tensoropt.__all__) - {"errors", "summary"}:
        module = getattr(tensoropt, name).__module__
        assert found[name] == f"{module}.{name}"


def test_files_to_copy_are_those_of_the_page() -> None:
    text = (ROOT / "docs" / "launchers.md").read_text()
    linked = set(re.findall(r"\(files/([\w.]+)\)", text))
    assert linked == {path.name for path in (ROOT / "docs" / "files").iterdir()}
    assert (ROOT / "docs" / "files" / "train.sbatch").read_text() in text


@pytest.fixture
def undescribed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget at the end the gradient and the description of a type that a block gives."""
    monkeypatch.setattr(ops.gradient_registry, "_registry", dict(ops.gradient_registry._registry))
    yield
    tensoropt.shutdown()
    registry.forget("NearestNeighbors")


@pytest.mark.usefixtures("undescribed")
def test_the_descriptions_that_are_shown_fit_their_kernel_and_derive() -> None:
    text = (ROOT / "docs" / "adding-an-operator.md").read_text()
    of_script, with_gradient, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(of_script, {})
    assert operator_type("NearestNeighbors").description is not None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {})
    assert out.getvalue().splitlines() == [
        "i 8 None True",
        "j 6 None True",
        "k 4 sum True",
        "((0, 2), (1, 2)) ((0, 1),) 384",
    ]
    names: dict[str, Any] = {}
    tensoropt.shutdown()
    with tensoropt.Graph().as_default(), contextlib.redirect_stdout(io.StringIO()):
        exec(with_gradient, names)
        tensoropt.build_execution_graph(plan=names["plan"])
        points = np.random.default_rng(1).normal(size=(4096, 16)).astype(np.float32)
        before = tensoropt.run(names["centers"])
        tensoropt.run(names["train"], {names["points"]: points})
        after = tensoropt.run(names["centers"])
    assert names["operator"].is_split
    away = points[:, None] - before
    nearest = np.square(away).sum(2).argmin(1)
    slopes = np.zeros_like(before)
    np.add.at(slopes, nearest, -2 * away[np.arange(len(points)), nearest] / len(points))
    np.testing.assert_allclose(after, before - 0.5 * slopes, rtol=1e-4, atol=1e-5)


def test_the_command_lines_that_are_shown_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of these pages run, in order, from the root."""
    pages = [(ROOT / "docs" / name).read_text() for name in ("choosing.md", "replicated.md")]
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", "\n".join(pages), re.DOTALL))
    blocks = blocks.replace("\\\n", " ")  # a command in several lines
    commands = re.findall(r"^tensoropt (.*)$", blocks, re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        *("clusters", "plan", "show", "profiling", "clusters", "check"),
    ]
    monkeypatch.chdir(ROOT)
    for command in commands:
        arguments = re.sub(r"\b(plan|four)\.json", rf"{tmp_path}/\1.json", command).split()
        assert main(arguments) == 0, capsys.readouterr().err
        tensoropt.reset_default_graph()
