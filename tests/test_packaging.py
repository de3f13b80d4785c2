"""Installed packages agree with the source."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest

import tensoropt

ROOT = Path(__file__).resolve().parent.parent


def test_the_version_is_said_once():
    assert version("tensoropt") == tensoropt.__version__


def test_the_command_is_installed_and_loads():
    (command,) = entry_points(group="console_scripts", name="tensoropt")
    assert callable(command.load())


@pytest.mark.parametrize("package", ["collectives.native", "tensoropt.execution.native"])
def test_sources_that_are_compiled_at_first_use_are_package_data(package: str) -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (listed,) = re.findall(rf'"{re.escape(package)}" = \[(.*)\]', text)
    patterns = re.findall(r'"(.*?)"', listed)
    folder = ROOT / package.replace(".", "/")
    sources = [path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"]
    assert sources
    for name in sources:
        assert any(fnmatch(name, pattern) for pattern in patterns), name


_LOADS = """
from tensoropt.planner import kernels
from tensoropt.search.compilation import compiled_seconds
kernels.load_kernels()
print(tensoropt.__file__, kernels.__file__, compiled_seconds())
"""


@pytest.mark.slow
def test_a_wheel_has_its_kernels_compiled(tmp_path: Path, python: Callable[..., Any]) -> None:
    """The build begins with the source's compiled kernels, except for one. The README's program
    runs with what the wheel has, away from the checkout."""
    source, built, installed = tmp_path / "source", tmp_path / "built", tmp_path / "installed"
    without = shutil.ignore_patterns("__pycache__")
    for package in ("tensoropt", "collectives"):
        shutil.copytree(ROOT / package, source / package, ignore=without)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py"):
        shutil.copy(ROOT / name, source)
    for kernel in ROOT.glob("tensoropt/**/__pycache__/*.nb[ci]"):
        if not kernel.name.startswith("distances._gather"):
            copy = source / "build" / "lib" / kernel.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kernel, copy)
    command = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", built]
    subprocess.run([sys.executable, *command, source], check=True, timeout=600)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(installed)
    assert any(re.search(r"distances\._gather.*\.nbc$", name) for name in names)
    assert not [name for name in names if name.endswith(".pyc")]
    path = {"PYTHONPATH": str(installed), "NUMBA_CACHE_DIR": ""}
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(program + _LOADS)
    done = python(script, env={**path, "TENSOROPT_DEVICES": "2"}, cwd=tmp_path, fresh=True)
    assert done.returncode == 0, done.stderr
    *modules, compiled = done.stdout.splitlines()[-1].split()
    assert all(Path(module).is_relative_to(installed) for module in modules)
    assert float(compiled) == 0
