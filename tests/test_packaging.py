"""What is installed agrees with what the source says."""

from __future__ import annotations

from importlib.metadata import entry_points, version

import tensoropt


def test_the_version_is_said_once():
    assert version("tensoropt") == tensoropt.__version__


def test_the_command_is_installed_and_loads():
    (command,) = entry_points(group="console_scripts", name="tensoropt")
    assert callable(command.load())
