"""Checkpoints of TensorFlow 2 in slices, or whose values are taken now and written later.

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

from tensoropt.frontend.saving.sliced_writes import Marks, SlicedWrite
from tensoropt.frontend.steps.variable_values import serialized_as
from tensoropt.tensorflow_private import functional_saver

__all__ = ["deferred_writes", "is_asked_beside", "with_tensor", "without_thread", "write_later"]

# The state of the process, as the hook is on TensorFlow's own class.
_noted: list[Callable[[], Any]] | None = None  # None while checkpoints are written at once
_sliced: SlicedWrite | None = None  # None while the first rank writes whole values
_extra: list[tuple[str, tf.Tensor]] = []  # the tensors of `with_tensor` that are not written yet


@contextmanager
def deferred_writes(
    is_beside: bool, sliced: SlicedWrite | None
) -> Iterator[list[Callable[[], Any]]]:
    """A context in which `write_later` writes in slices, or notes the functions that write.

    Args:
        is_beside: whether the functions are noted, to be called in order; else they are called.
        sliced: writes in slices; None to write whole values.
    """
    global _noted, _sliced
    before = _noted, _sliced
    noted: list[Callable[[], Any]] = []
    _noted, _sliced = noted if is_beside else None, sliced
    try:
        yield noted
    finally:
        _noted, _sliced = before


def write_later(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``Checkpoint._write``, on which the methods that save are built."""

    def write(self: Any, file_prefix: Any, options: Any = None) -> Any:
        options = options or tf.train.CheckpointOptions()
        is_sliced = _sliced is not None and options.experimental_sharding_callback is None
        is_sliced = is_sliced and _write_slices(self._saver, file_prefix, options)
        if _noted is None and not is_sliced:
            return original(self, file_prefix, options)
        noted: list[Callable[[], Any]] = []
        if not is_sliced:
            with _noting_operators(noted):
                self._saver.save(file_prefix=file_prefix, options=options)
        path = os.fspath(file_prefix)
        for callback in options.experimental_write_callbacks or ():
            given = [path] if inspect.signature(callback).parameters else []
            noted.append(functools.partial(callback, *given))
        if _noted is not None:
            _noted.extend(noted)
        else:
            for function in noted:
                function()
        return path

    return write


def _write_slices(saver: Any, prefix: Any, options: Any) -> bool:
    """Write a checkpoint in slices, if it has variables of steps and TensorFlow's saver alone
    writes it. Return whether it did."""
    noted: list[functools.partial[Any]] = []
    marks = Marks()
    with serialized_as(marks), _noting_operators(noted):
        saver.save(file_prefix=prefix, options=options)
    names, tensors = [], []
    *saves, merge = noted
    for save in saves:
        _, of_save, specs, values = save.args
        if any(specs) or any(each.dtype in (tf.variant, tf.resource) for each in values):
            return False
        names += of_save
        tensors += values
    has_marks = any(marks.variable(each) is not None for each in tensors)
    if _sliced is None or not has_marks or len(merge.args[0]) != len(saves):
        return False  # A registered saver writes files of its own.
    for name, tensor in _extra:
        names.append(name)
        tensors.append(tensor)
    _extra.clear()
    _sliced.begin(os.fspath(prefix), names, tensors, marks)
    return True


@contextmanager
def with_tensor(name: str, value: bytes) -> Iterator[None]:
    """A context in which the next checkpoint has one tensor more, a scalar of bytes."""
    global _extra
    io_ops = functional_saver.io_ops
    added = _extra = [(name, tf.constant(value))]  # The operator may run after the context.

    def save(prefix: Any, names: Any, specs: Any, tensors: Any, **more: Any) -> Any:
        extra, added[:] = added[:], []
        names, specs = [*names, *(name for name, _ in extra)], [*specs, *("" for _ in extra)]
        return io_ops.save_v2(prefix, names, specs, [*tensors, *(t for _, t in extra)], **more)

    functional_saver.io_ops = SimpleNamespace(**{**vars(io_ops), "save_v2": save})
    try:
        yield
    finally:
        functional_saver.io_ops = io_ops
        _extra = []


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
def _noting_operators(noted: list[Any]) -> Iterator[None]:
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
