"""The library of collectives in C++: its sources, its operators, and its functions' types."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.native.build import operators

__all__ = ["BEFORE", "NOTE", "SOURCES", "loaded"]

SOURCES = [
    Path(__file__).parent / name
    for name in (
        *("operator.cc", "definition.h", "functions.h"),
        *("board.h", "communication.h", "direct.h", "dtypes.h"),
        *("connections.h", "network.h", "started.h"),
        *("copy.h", "reduce.h", "transfer.h", "window.h"),
    )
]
BEFORE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int)
NOTE = np.dtype(
    [("call", np.int64), ("started", np.float64), ("ended", np.float64), ("worked", np.float64)]
)
"""The times of one call, see `communication.h`."""


@functools.cache
def loaded(path: Path) -> tuple[Any, ctypes.CDLL]:
    """The operator's Python function, and the library's functions.

    Raises:
        NativeError: if it cannot be loaded.
    """
    python_functions = operators(path)
    tf.no_gradient("CollectivesMove")
    tf.no_gradient("CollectivesAllreduce")
    tf.no_gradient("CollectivesWait")
    functions = ctypes.CDLL(str(path))
    functions.collectives_open.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_double),
        *(ctypes.c_bool, ctypes.POINTER(ctypes.c_int), ctypes.c_int64, ctypes.c_double),
    ]
    functions.collectives_reads.argtypes = [
        *(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)
    ]
    functions.collectives_reads.restype = ctypes.c_bool
    functions.collectives_window_bytes.argtypes = [ctypes.c_int, ctypes.c_int64]
    functions.collectives_window_bytes.restype = ctypes.c_int64
    functions.collectives_board_bytes.argtypes = [ctypes.c_int]
    functions.collectives_board_bytes.restype = ctypes.c_int64
    functions.collectives_board_open.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_double)
    ]
    functions.collectives_board_open.restype = ctypes.c_void_p
    functions.collectives_board_gather.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    ]
    functions.collectives_board_gather.restype = ctypes.c_bool
    functions.collectives_seconds.restype = ctypes.c_double
    functions.collectives_running.restype = ctypes.c_int64
    functions.collectives_network_running.restype = ctypes.c_int64
    functions.collectives_addresses.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    functions.collectives_addresses.restype = None
    functions.collectives_observe.argtypes = [ctypes.c_bool, BEFORE]
    functions.collectives_take_notes.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    functions.collectives_take_notes.restype = ctypes.c_int64
    functions.collectives_run.restype = ctypes.c_double
    functions.collectives_run.argtypes = [
        *(ctypes.c_int, ctypes.c_int, ctypes.c_char_p),
        ctypes.POINTER(ctypes.c_int),
        *[ctypes.c_int] * 2,
        *[ctypes.c_int64] * 2,
        *[ctypes.c_int] * 2,
        ctypes.POINTER(ctypes.c_int64),
        *[ctypes.c_int64] * 2,
        *[ctypes.c_void_p] * 2,
        *(ctypes.c_char_p, ctypes.c_int),
    ]
    return python_functions, functions
