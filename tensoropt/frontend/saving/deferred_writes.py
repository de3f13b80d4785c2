"""Checkpoints of TensorFlow 2 whose values are taken now and whose files are written later.

``tf.train.Checkpoint`` reads all values, then writes a file and calls callbacks. Here the operators
that write, and the callbacks, are noted. The values are eager tensors. TensorFlow does not change
the memory of a tensor that somebody holds, so a variable's value is not copied until the variable
changes.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import functional_saver

__all__ = ["deferred_writes", "is_asked_beside", "with_tensor", "without_thread", "write_later"]

# The state of the process, as the hook is on TensorFlow's own class.
_noted: list[Callable[[], Any]] | None = None  # None while checkpoints are written at once


@contextmanager
def deferred_writes() -> Iterator[list[Callable[[], Any]]]:
    """A context in which `write_later` notes what it writes: functions to be called in order."""
    global _noted
    before, _noted = _noted, []
    try:
        yield _noted
    finally:
        _noted = before


def write_later(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``Checkpoint._write``, on which the methods that save are built."""

    def write(self: Any, file_prefix: Any, options: Any = None) -> Any:
        if _noted is None:
            return original(self, file_prefix, options)
        options = options or tf.train.CheckpointOptions()
        with _noting_operators(_noted):
            self._saver.save(file_prefix=file_prefix, options=options)
        path = os.fspath(file_prefix)
        for callback in options.experimental_write_callbacks or ():
            given = [path] if inspect.signature(callback).parameters else []
            _noted.append(functools.partial(callback, *given))
        return path

    return write


@contextmanager
def with_tensor(name: str, value: bytes) -> Iterator[None]:
    """A context in which the next checkpoint has one tensor more, a scalar of bytes."""
    io_ops = functional_saver.io_ops
    added = [(name, tf.constant(value))]

    def save(prefix: Any, names: Any, specs: Any, tensors: Any, **more: Any) -> Any:
        extra, added[:] = added[:], []
        names, specs = [*names, *(name for name, _ in extra)], [*specs, *("" for _ in extra)]
        return io_ops.save_v2(prefix, names, specs, [*tensors, *(t for _, t in extra)], **more)

    functional_saver.io_ops = SimpleNamespace(**{**vars(io_ops), "save_v2": save})
    try:
        yield
    finally:
        functional_saver.io_ops = io_ops


def is_asked_beside(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the options among some arguments ask to write in a thread."""
    return any(_in_thread(argument) for argument in (*args, *kwargs.values()))


def without_thread(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with options that do not ask TensorFlow for a thread of its own."""
    return tuple(map(_plain, args)), {name: _plain(v) for name, v in kwargs.items()}


def _in_thread(argument: Any) -> bool:
    return bool(getattr(argument, "experimental_enable_async_checkpoint", False))


def _plain(argument: Any) -> Any:
    if not _in_thread(argument):
        return argument
    options = copy.copy(argument)
    options.experimental_enable_async_checkpoint = False
    return options


@contextmanager
def _noting_operators(noted: list[Callable[[], Any]]) -> Iterator[None]:
    """A context in which TensorFlow's saver notes its operators that write."""

    def later(function: Callable[..., Any]) -> Callable[..., None]:
        def note(*args: Any, **kwargs: Any) -> None:
            noted.append(functools.partial(function, *args, **kwargs))

        return note

    io_ops, gen_io_ops = functional_saver.io_ops, functional_saver.gen_io_ops
    save, merge = later(io_ops.save_v2), later(gen_io_ops.merge_v2_checkpoints)
    functional_saver.io_ops = SimpleNamespace(**{**vars(io_ops), "save_v2": save})
    functional_saver.gen_io_ops = SimpleNamespace(
        **{**vars(gen_io_ops), "merge_v2_checkpoints": merge}
    )
    try:
        yield
    finally:
        functional_saver.io_ops, functional_saver.gen_io_ops = io_ops, gen_io_ops
