"""Every block of Python on every page runs, but for those of other systems, which compile."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt
from tensoropt.frontend.job.job import shutdown

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {
    "adding-an-operator.md": "tests/frontend/test_documentation.py",
    "custom-loops.md": "tests/frontend/steps_program.py",
    "keras.md": "tests/frontend/keras_program.py",
}
"""Pages whose blocks another test runs."""

OTHERS = ("# Horovod", "# tf.distribute")
"""First lines of blocks that are for other systems."""

RUN_TWICE = """
import sys
for path in sys.argv[1:]:
    program = open(path, encoding="utf-8").read()
    for _ in range(2):  # as a cell of a notebook
        exec(compile(program, path, "exec"), {})
"""


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def of_kind(kind: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for block in blocks(page) if page.name not in ELSEWHERE else ():
            found = "fragment" if "import " not in block else "program"
            found = "graph" if "import tensoropt as tf" in block else found
            if kind == ("other" if block.startswith(OTHERS) else found):
                yield page, block


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shutdown()
    monkeypatch.chdir(tmp_path)
    yield
    shutdown()


def test_pages_with_blocks_that_another_test_runs_are_named_there() -> None:
    for name, test in ELSEWHERE.items():
        assert blocks(ROOT / "docs" / name)
        assert name in (ROOT / test).read_text("utf-8")


def test_blocks_for_other_systems_compile() -> None:
    found = list(of_kind("other"))
    assert len(found) == len(OTHERS)
    for page, block in found:
        compile(block, page.name, "exec")


def test_programs_run_twice(python: Callable[..., Any], tmp_path: Path) -> None:
    """In one process, one after the other; their losses fall."""
    paths = []
    for number, (page, block) in enumerate(of_kind("program")):
        paths.append(tmp_path / f"{page.stem}{number}.py")
        paths[-1].write_text(block)
    assert [path.stem.rstrip("0123456789") for path in paths] == [
        *("README", "from-horovod", "from-tf-distribute", "quick-start"),
    ]
    runner = tmp_path / "run.py"
    runner.write_text(RUN_TWICE)
    done = python(runner, *paths, cwd=tmp_path, env={"TENSOROPT_DEVICES": "2"})
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"\['(\d.*?)'\]", done.stdout)
    assert len(printed) == 4
    assert len(set(printed)) == 1  # both programs, both times
    losses = [float(loss) for loss in printed[0].split("', '")]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.usefixtures("job")
def test_the_graph_script_runs_twice(capsys: pytest.CaptureFixture[str]) -> None:
    ((page, block),) = of_kind("graph")
    for _ in range(2):
        exec(compile(block, page.name, "exec"), {})
    losses = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert losses[:5] == losses[5:]
    assert losses[4] < losses[0]


@pytest.mark.usefixtures("job")
def test_fragments_run_in_a_script() -> None:
    """Each in a script of a small step, whose names it uses."""
    found = list(of_kind("fragment"))
    assert len(found) >= 5
    for page, block in found:
        tensoropt.reset_default_graph()
        tensoropt.init(devices=2)
        images = tensoropt.placeholder(tensoropt.float32, [None, 8], name="images")
        w = tensoropt.get_variable("w", [8, 4])
        loss = tensoropt.reduce_mean(tensoropt.square(tensoropt.matmul(images, w)))
        train = tensoropt.GradientDescentOptimizer(0.1).minimize(loss)
        names: dict[str, Any] = {"tf": tensoropt}
        exec(compile(block, page.name, "exec"), names)
        if "build_execution_graph" in block:
            tensoropt.run(train, {images: np.ones((240, 8), np.float32)})
            assert os.path.getsize("plan.json")
        assert names["table" if page.name == "how-many-devices.md" and "table" in block else "plan"]
        shutdown()
