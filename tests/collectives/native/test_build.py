"""The library in the user's cache: compiled once, whole or not at all, and for whom it is made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from collectives.errors import NativeError
from collectives.native import build
from collectives.native.build import cache_folder

COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "fake {version}"; exit 0; fi
echo compiled >> "{log}"
while [ "$1" != -o ]; do shift; done
echo half > "$2"
sleep {seconds}
{end}
"""


def library() -> Path:
    return build.library("test", [Path(__file__)])


def at_once(call: Callable[[], None]) -> None:
    """Call in four threads."""
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Compiler:
    """A fake compiler, named in CXX, that counts its calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path, self._log = folder / "fake-c++", folder / "log"
        monkeypatch.setenv("CXX", str(self._path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        self.write()

    def write(self, version: str = "1", seconds: str = "0", end: str = "exit 0") -> None:
        text = COMPILER.format(log=self._log, version=version, seconds=seconds, end=end)
        self._path.write_text(text)
        self._path.chmod(0o755)

    @property
    def compiled(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(tmp_path, monkeypatch)


def test_a_library_is_compiled_once_for_each_compiler(
    compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    first = library()
    assert first.parent == cache_folder()
    assert first.read_text() == "half\n"
    assert capsys.readouterr().err.startswith("collectives: compiling test in C++, once for this ")
    assert library() == first
    assert not capsys.readouterr().err
    assert compiler.compiled == 1
    compiler.write(version="2")
    assert library() != first
    assert build.library("test", [Path(__file__), Path(build.__file__)]) != library()
    assert compiler.compiled == 3


def test_of_those_who_come_at_once_one_compiles(compiler: Compiler) -> None:
    compiler.write(seconds="0.3")
    found: list[Path] = []
    at_once(lambda: found.append(library()))
    assert len(found) == 4
    assert len(set(found)) == 1
    assert compiler.compiled == 1


def test_a_compiler_that_fails_leaves_nothing_and_is_quoted(compiler: Compiler) -> None:
    compiler.write(end="for i in $(seq 20); do echo line $i; done; exit 3")
    with pytest.raises(NativeError, match="that ends with status 3:\nline 9\n") as caught:
        library()
    assert "line 20\nName a compiler for C++17 in CXX" in str(caught.value)
    assert {path.suffix for path in cache_folder().iterdir()} == {".lock", ".failed"}
    compiler.write()
    assert library().exists()
    assert {path.suffix for path in cache_folder().iterdir()} == {".lock", ".so"}


def test_errors_of_a_compiler_are_quoted_before_its_last_lines(compiler: Compiler) -> None:
    compiler.write(end="echo 'a.h:1:2: error: wrong'; echo 'a.h:1:2: note: here'; exit 1")
    with pytest.raises(NativeError, match=r"status 1:\na\.h:1:2: error: wrong\nName a compiler"):
        library()


def test_of_those_who_wait_for_a_compiler_that_fails_none_tries_again(compiler: Compiler) -> None:
    compiler.write(seconds="0.3", end="exit 3")
    errors: list[str] = []

    def fail() -> None:
        with pytest.raises(NativeError) as caught:
            library()
        errors.append(str(caught.value))

    at_once(fail)
    assert len(errors) == 4
    assert len(set(errors)) == 1
    assert compiler.compiled == 1


def test_no_compiler_is_an_error_that_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NativeError, match=r"none of c\+\+, g\+\+, clang\+\+ is on PATH") as caught:
        library()
    assert "Install g++ or clang++" in str(caught.value)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(NativeError, match="a compiler that does not run"):
        library()


def test_a_cache_that_cannot_be_written_is_an_error(compiler: Compiler) -> None:
    folder = cache_folder()
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    with pytest.raises(NativeError, match="cannot be written") as caught:
        library()
    assert "Set XDG_CACHE_HOME to a folder of yours that no other user can write" in str(caught)
    assert not compiler.compiled


def test_a_cache_that_cannot_be_looked_into_is_an_error(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"/{'long' * 100}")
    with pytest.raises(NativeError, match=r"cannot be written.* File name too long"):
        library()
    assert not compiler.compiled


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_library_that_another_user_can_have_written_is_compiled_anew(
    kind: str, compiler: Compiler
) -> None:
    path = library()
    path.write_text("planted")
    if kind == "link":
        path.rename(path.with_suffix(".planted"))
        path.symlink_to(path.with_suffix(".planted"))
    else:
        (path if kind == "file" else path.parent).chmod(0o777)
    assert library() == path
    assert path.read_text() == "half\n"
    assert compiler.compiled == 2
    for made in (path, path.parent):
        assert not made.lstat().st_mode & 0o022
    library()
    assert compiler.compiled == 2


def test_a_cache_of_another_user_is_an_error(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library()
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(NativeError, match=r"a cache of another user: .* belongs to user"):
        library()
    assert compiler.compiled == 1
