"""Compile libraries of operators in C++ at their first use, and keep them in the user's cache.

The file name of a library has a digest of its sources, the compiler, the options, TensorFlow's
version and the processor, so a change of any of them compiles another library. One process compiles
while other processes wait. The file gets its final name only when it is complete. A library is
loaded only if no other user could have written it.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from collectives.errors import NativeError

__all__ = ["cache_folder", "library", "operators"]

# g++ 13 rejects the code for AVX512-FP16 in TensorFlow's copy of Eigen. No operator here computes
# in half precision.
_OPTIONS = (
    *("-O3", "-march=native", "-U__AVX512FP16__", "-fwrapv", "-fPIC", "-shared"),
    *("-Wall", "-Wextra"),  # `make test` makes errors of them, by -Werror in CXX
)
_COMPILERS = ("c++", "g++", "clang++")
_SECONDS = 300
# Measured with g++ 12, on a core of its own and on one that others share.
_ANNOUNCED = "collectives: compiling {} in C++, once for this machine: some 10 to 30 s\n"
_OWN_CACHE = "Set XDG_CACHE_HOME to a folder of yours that no other user can write."
_REMEDY = "Name a compiler for C++17 in CXX: g++ 9, clang++ 9 or newer."
_LINES = 12  # of the compiler's output that an error repeats
_FAILED = ".failed"  # suffix of the file with the reason why compiling failed
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path:
    """Return the folder of compiled libraries, below ``XDG_CACHE_HOME`` or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "tensoropt" / "native"


def library(name: str, sources: Sequence[Path]) -> Path:
    """Return the path of a library. Compile it if the cache does not have it.

    Any number of processes may call at once: one compiles, and if it fails, the waiting processes
    do not try again. The variable ``CXX`` names the compiler; without it the first of c++, g++ and
    clang++ on PATH is used.

    Args:
        name: prefix of the file name.
        sources: the file to compile, then the files that it includes.

    Raises:
        NativeError: if there is no compiler, or it fails, or the cache cannot be written or
            belongs to another user.
    """
    compiler = _compiler()
    options = [*_OPTIONS, *_tensorflow_options()]
    libraries = tf.sysconfig.get_link_flags()
    made_with = [*compiler, _version(compiler), tf.__version__, *options, _processor()]
    path = cache_folder() / f"{name}-{_digest(made_with, sources)}.so"
    since = time.time()
    try:
        if _is_own(path.parent) and _is_own(path):
            return path
        _make_own(path.parent)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, or this process ends
            if not _is_own(path):
                _raise_failed(path, since)
                sys.stderr.write(_ANNOUNCED.format(name))
                sys.stderr.flush()
                _compile([*compiler, *options], sources[0], libraries, path)
    except OSError as error:
        raise NativeError(f"a cache that cannot be written: {error}.\n{_OWN_CACHE}") from error
    return path


@functools.cache
def operators(path: Path) -> Any:
    """Load a library, and return the module with a Python function for each of its operators.

    Raises:
        NativeError: if TensorFlow cannot load the library.
    """
    try:
        return tf.load_op_library(str(path))
    except tf.errors.OpError as error:
        raise NativeError(
            f"{path}, which TensorFlow does not load: {error.message}\nRemove that file."
        ) from error


def _is_own(path: Path) -> bool:
    """Whether a file or folder exists, and no other user can have written it."""
    if not path.exists():
        return False
    status = path.stat() if path.is_dir() else path.lstat()  # the mode of a link has all rights
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def _make_own(folder: Path) -> None:
    """Make a folder that no other user can write.

    Raises:
        NativeError: if it belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise NativeError(
            f"a cache of another user: {folder} belongs to user {status.st_uid}.\n{_OWN_CACHE}"
        )
    if status.st_mode & _OTHERS_WRITE:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
        for library_path in folder.glob("*.so"):
            library_path.unlink(missing_ok=True)


def _tensorflow_options() -> list[str]:
    """TensorFlow's options, with its headers as those of a system, in which compilers warn of
    nothing."""
    flags = tf.sysconfig.get_compile_flags()
    return [f"-isystem{flag[2:]}" if flag.startswith("-I") else flag for flag in flags]


def _compiler() -> list[str]:
    """The compiler's command, with the options that ``CXX`` gives."""
    named = os.environ.get("CXX", "")
    if named:
        return shlex.split(named)
    for name in _COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise NativeError(
        f"no C++ compiler: none of {', '.join(_COMPILERS)} is on PATH.\nInstall g++ or clang++, or "
        "name a compiler in CXX."
    )


def _version(compiler: list[str]) -> str:
    """The first line of the compiler's ``--version``."""
    return (_run([*compiler, "--version"]).splitlines() or [""])[0]


def _processor() -> str:
    """The processor's architecture and its instruction set extensions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    features = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return platform.machine() + features


def _digest(words: list[str], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _raise_failed(path: Path, since: float) -> None:
    """Raise the error of another process that has failed to compile this file since ``since``."""
    failed = path.with_suffix(_FAILED)
    if failed.exists() and failed.stat().st_mtime >= since:
        raise NativeError(failed.read_text())


def _compile(command: list[str], source: Path, libraries: list[str], path: Path) -> None:
    """Compile to a temporary file, and rename it to ``path``."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "made.so"
        try:
            _run([*command, str(source), "-o", str(made), *libraries])
        except NativeError as error:
            path.with_suffix(_FAILED).write_text(str(error))
            raise
        made.chmod(0o755)
        made.replace(path)
        path.with_suffix(_FAILED).unlink(missing_ok=True)


def _run(command: list[str]) -> str:
    """Run a command, and return its output.

    Raises:
        NativeError: if the command cannot run, fails or times out; a failure quotes the error
            lines of the output, or its last lines if it has none.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.output.decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if "error: " in line]
        quoted = errors[:_LINES] or lines[-_LINES:]
        said = [f"{command[0]} that ends with status {error.returncode}:", *quoted, _REMEDY]
        raise NativeError("\n".join(said)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(f"a compiler that does not run: {error}.\n{_REMEDY}") from error
    return done.stdout.decode(errors="replace")
