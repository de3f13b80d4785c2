"""The code in C++: compile and load it, or say why a process does without."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from collectives.errors import NativeError
from collectives.native.build import library, operators
from tensoropt.errors import OptionError

__all__ = ["SWITCH", "batch_norm_operators", "slice_copies"]

SWITCH = "TENSOROPT_NATIVE"
"""Environment variable: 0 for TensorFlow's kernels alone; 1, or not set, for those in C++ if they
can be compiled and loaded."""

_Loaded = TypeVar("_Loaded")


@functools.cache
def batch_norm_operators(*, says: bool) -> Any:
    """Return a module with the operators of `batch_norm.cc` as functions, or None.

    Some ranks may have the operators and others not: both send the same messages.

    Args:
        says: whether to write the reason to the standard error if compiling or loading fails.

    Raises:
        OptionError: if ``TENSOROPT_NATIVE`` is neither 0 nor 1.
    """
    without = "batch normalisation of a split batch runs on TensorFlow's kernels, and is slower"
    return _loaded("batch-norm", "batch_norm.cc", operators, without if says else "")


@functools.cache
def slice_copies(*, says: bool) -> Any:
    """Return the function ``tensoropt_copy_slices`` of `slice_copies.cc`, or None.

    Args, Raises: see `batch_norm_operators`.
    """

    def load(path: Path) -> Any:
        try:
            copy = ctypes.CDLL(str(path)).tensoropt_copy_slices
        except OSError as error:
            raise NativeError(f"{path}, which cannot be loaded: {error}.") from error
        copy.restype, copy.argtypes = None, [ctypes.c_int64, *[ctypes.c_void_p] * 4]
        return copy

    without = "TensorFlow writes checkpoints beside steps, and takes more time from them"
    return _loaded("slice-copies", "slice_copies.cc", load, without if says else "")


def _loaded(
    name: str, source: str, load: Callable[[Path], _Loaded], without: str
) -> _Loaded | None:
    """Load a library; None without one. The first call may compile, for some seconds.

    A process with a GPU has none, because they run on CPUs.

    Args:
        name, source: the names of the library and of its file in C++.
        load: loads the library.
        without: what happens without the library, to write if loading fails; empty for nothing.
    """
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise OptionError(
            f"{SWITCH} is 0 for TensorFlow's kernels alone, or 1 or not set for those in C++. Got "
            f"{switch!r}; unset it."
        )
    if switch == "0" or tf.config.list_physical_devices("GPU"):
        return None
    try:
        return load(library(name, [Path(__file__).parent / source]))
    except NativeError as error:
        if without:
            sys.stderr.write(
                f"tensoropt: {without} than with code in C++, which cannot be loaded here. Got "
                f"{error}\n{SWITCH}=0 chooses TensorFlow's kernels without this note.\n"
            )
        return None
