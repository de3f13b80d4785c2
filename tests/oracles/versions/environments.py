"""Interpreters of this machine, wheels of this checkout, and environments made of both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ROOT", "NotAvailable", "Wheels", "interpreter"]

ROOT = Path(__file__).resolve().parents[3]
NEWEST = "newest"
_SOURCES = ("LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py")
_SECONDS = 1800
_NO_WHEEL = re.compile(r"No matching distribution found for (tensorflow\S*)")


class NotAvailable(Exception):
    """There is no such interpreter here, or no wheel of TensorFlow for it."""


def interpreter(version: str) -> Path:
    """The interpreter of a version such as "3.12": on PATH, otherwise the newest of pyenv's.

    Raises:
        NotAvailable: there is none.
    """
    on_path = shutil.which(f"python{version}")
    if on_path is not None and _runs(Path(on_path), version):
        return Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [path for path in pyenv.glob(f"{version}.*/bin/python") if _runs(path, version)]
    if not found:
        raise NotAvailable(f"no python{version} on PATH, and none of pyenv's")
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parts[-3])])


def _runs(path: Path, version: str) -> bool:
    """Whether a file is an interpreter of a version; a shim of pyenv may be none."""
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() == version


class Wheels:
    """The wheels of this checkout, one for each Python, as each has its compiled kernels.

    Args:
        folder: a folder for them and the environments.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[Path, Path] = {}

    @contextmanager
    def environment(self, python: Path, tensorflow: str) -> Iterator[Path]:
        """The folder of a new virtual environment, which is deleted at the end.

        Args:
            python: its interpreter.
            tensorflow: the version of TensorFlow, or `NEWEST`.

        Raises:
            NotAvailable: TensorFlow has no wheel of this version for this Python.
            RuntimeError: pip fails.
        """
        made = self.folder / "environment"
        _run([python, "-m", "venv", "--clear", made])
        try:
            wanted = [] if tensorflow == NEWEST else [f"tensorflow=={_pinned(tensorflow)}"]
            if wanted:  # before a wheel is built for nothing
                _pip(made, "download", "--no-deps", "--dest", self.folder / "download", *wanted)
                shutil.rmtree(self.folder / "download")
            own = f"tensoropt[mpi] @ {self._wheel(python).as_uri()}"
            _pip(made, "install", "--no-compile", own, *wanted)
            _pip(made, "check")
            yield made
        finally:
            shutil.rmtree(made)

    def _wheel(self, python: Path) -> Path:
        """The wheel for a Python, built as `pip install .` builds it."""
        if python not in self._made:
            source = self._source()
            target = self.folder / f"wheel{len(self._made)}"
            builder = self.folder / "environment"  # its pip, which is not the checkout's
            _pip(builder, "wheel", "--no-deps", "--wheel-dir", target, source)
            (self._made[python],) = target.glob("*.whl")
        return self._made[python]

    def _source(self) -> Path:
        """A copy of the checkout without its compiled files, which a build starts from."""
        source = self.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        without = shutil.ignore_patterns("__pycache__")
        for package in ("tensoropt", "collectives"):
            shutil.copytree(ROOT / package, source / package, ignore=without)
        for name in _SOURCES:
            shutil.copy(ROOT / name, source)
        return source


def _pinned(version: str) -> str:
    """The requirement of a version: "2.16" is any of its patches."""
    return f"{version}.*" if version.count(".") == 1 else version


def _pip(environment: Path, *arguments: str | Path) -> None:
    command = [environment / "bin" / "python", "-m", "pip", "--quiet", *arguments]
    _run([*command, *([] if arguments[0] == "check" else ["--disable-pip-version-check"])])


def _run(command: list[str | Path]) -> None:
    """Run a command.

    Raises:
        NotAvailable: see `Wheels.environment`.
        RuntimeError: it fails, with the end of its errors.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        env=environment,
        cwd=Path(sys.prefix),
    )
    if not done.returncode:
        return
    missing = _NO_WHEEL.search(done.stdout)
    if missing is not None:
        raise NotAvailable(f"no wheel of {missing[1]} for this Python")
    raise RuntimeError(" ".join(done.stdout.split())[-1000:])
