"""The operators in C++: compile and load them, or say why a process does without."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from collectives.errors import NativeError
from collectives.native.build import library, operators
from tensoropt.errors import OptionError

__all__ = ["SWITCH", "batch_norm_operators"]

SWITCH = "TENSOROPT_NATIVE"
"""Environment variable: 0 for TensorFlow's kernels alone; 1, or not set, for those in C++ if they
can be compiled and loaded."""


@functools.cache
def batch_norm_operators(*, says: bool) -> Any:
    """Return a module with the operators of `batch_norm.cc` as functions, or None.

    They run on CPUs, so a process with a GPU has none. The first call may compile, for some
    seconds. Some ranks may have the operators and others not: both send the same messages.

    Args:
        says: whether to write the reason to the standard error if compiling or loading fails.

    Raises:
        OptionError: if ``TENSOROPT_NATIVE`` is neither 0 nor 1.
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
        return operators(library("batch-norm", [Path(__file__).parent / "batch_norm.cc"]))
    except NativeError as error:
        if says:
            sys.stderr.write(
                "tensoropt: batch normalisation of a split batch runs on TensorFlow's kernels, "
                "and is slower than with operators in C++, which cannot be loaded here. Got "
                f"{error}\n{SWITCH}=0 chooses TensorFlow's kernels without this note.\n"
            )
        return None
