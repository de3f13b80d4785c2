"""Garbage collection, put off while graphs are built.

Graphs are many objects, hardly any of which is garbage, and what they are made of counts as new to
Python's collector: every so often it reads all objects of the process to find nothing, half a
second with TensorFlow's. What refers to itself in a circle, as a TensorFlow graph does, stays for
as long.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collected_later"]


@contextmanager
def collected_later() -> Iterator[None]:
    """Collect no garbage in here, nor in what a function calls that this decorates."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
