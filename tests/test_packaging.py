"""What is installed agrees with what the source says."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from importlib.metadata import entry_points, version
from pathlib import Path

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
