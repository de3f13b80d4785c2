"""Operators in C++: whether a process has them, and what says so where it has not."""

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
"""Environment variable: 0 for TensorFlow's kernels alone, 1 or nothing for those in C++ where they
can be had."""


@functools.cache
def batch_norm_operators(*, says: bool) -> Any:
    """The operators of `batch_norm.cc`, as a module's functions; None where there are none.

    They run on CPUs, so there are none beside GPUs. The first call may compile, for some seconds.
    Ranks need not agree: with them or without, what they send to each other is alike.

    Args:
        says: whether it tells why there are none, if a compiler fails.

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
                "and is slower than with operators in C++, which could not be had. Got "
                f"{error}\n{SWITCH}=0 chooses TensorFlow's without this note.\n"
            )
        return None
