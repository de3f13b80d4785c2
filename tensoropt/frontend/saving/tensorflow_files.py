"""What TensorFlow 2 saves with, on several ranks: the first rank writes, and all go on alike.

``tf.train.Checkpoint``, ``tf.train.CheckpointManager`` and ``tf.saved_model.save`` are called on
every rank. All ranks put the variables of parallel steps together, the first rank writes as
TensorFlow does, and the others wait and take over how it has numbered its checkpoints. All ranks
read the first rank's checkpoint. An error of one is raised on all. Summaries of the first rank go
to the script's folder, those of the others to a temporary one: all ranks compute them.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError, RankMismatchError
from tensoropt.execution.agreement.shared_outcome import together
from tensoropt.execution.checkpoints import files as files
from tensoropt.frontend.job import copies
from tensoropt.frontend.job.job import current, is_initialized
from tensoropt.frontend.steps.variable_values import (
    bring_up_to_date,
    only_read,
    shared_variables,
    steps_have_run,
)

__all__ = ["install", "on_first_rank", "remove"]

v1, v2 = tf.compat.v1, tf.compat.v2

_CHECKPOINTS = (tf.train.Checkpoint, v1.train.Checkpoint)
_WRITES = "a file is written where the first rank can write.", "Free some space, or name another."
_READS = "all ranks read the first rank's checkpoint.", "Give one that all of them can read."

_originals: list[tuple[Any, str, Any]] = []
_is_inside = False  # within one of these calls TensorFlow's own do the rest


def install() -> None:
    """Share what is saved from now on."""
    for kind in _CHECKPOINTS:
        _replace(kind, "save", _save)
        _replace(kind, "write", _write)
        _replace(kind, "restore", functools.partial(_read, "restore"))
        _replace(kind, "read", functools.partial(_read, "read"))
    _replace(tf.train.CheckpointManager, "save", _save_managed)
    for module in (tf.saved_model, v1.saved_model, v2.saved_model):
        _replace(module, "save", _save_model)
    for module in (tf.summary, v2.summary):
        _replace(module, "create_file_writer", _create_writer)


def remove() -> None:
    """Let TensorFlow be as it was."""
    while _originals:
        setattr(*_originals.pop())


def on_first_rank(
    call: str, write: Callable[[], Any], variables: Iterable[Any] | None = None
) -> Any:
    """Write on the first rank, while the others wait for it. Every rank calls.

    Args:
        call: names what is called, for errors.
        write: reads variables, assigns none of those below, and returns a JSON value.
        variables: those that it may read; by default all of parallel steps.

    Raises:
        Exception: what ``write`` raises, on all ranks.
        RankMismatchError: if the ranks are not all in this call.
    """
    if _is_inside:
        return write()
    job = current()
    job.agreement.check(call)  # another rank may still look at what the first one changes
    with only_read(shared_variables() if variables is None else variables):
        if not job.is_mpi:
            return write()

        def work() -> Any:
            with _inside():
                return write() if job.group.rank == 0 else None

        return together(job.agreement, f"the end of {call}", work, *_WRITES)[0]


@contextmanager
def _inside() -> Iterator[None]:
    global _is_inside
    before, _is_inside = _is_inside, True
    try:
        yield
    finally:
        _is_inside = before


def _replace(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is not None:  # TensorFlow 1's checkpoint has no `read`
        _originals.append((owner, name, original))
        setattr(owner, name, functools.wraps(original)(wrapper(original)))


def _is_shared() -> bool:
    """Whether a call is for all ranks: not where each trains a copy, and saves it."""
    if _is_inside or not is_initialized() or not tf.executing_eagerly():
        return False
    return copies.are_refused() or steps_have_run()


# Checkpoints


def _save(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(self: Any, file_prefix: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_shared():
            return original(self, file_prefix, *args, **kwargs)
        _check_options(args, kwargs)
        return _numbered(
            "tf.train.Checkpoint.save",
            lambda: original(self, file_prefix, *args, **kwargs),
            functools.partial(_number, self),
            functools.partial(_set_number, self),
        )

    return save


def _write(original: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Any, file_prefix: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_shared():
            return original(self, file_prefix, *args, **kwargs)
        _check_options(args, kwargs)
        return on_first_rank(
            "tf.train.Checkpoint.write",
            lambda: original(self, file_prefix, *args, **kwargs),
        )

    return write


def _save_managed(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_shared():
            return original(self, *args, **kwargs)
        _check_options(args, kwargs)
        return _numbered(
            "tf.train.CheckpointManager.save",
            lambda: original(self, *args, **kwargs),
            functools.partial(_kept, self),
            functools.partial(_set_kept, self),
        )

    return save


def _numbered(
    call: str,
    write: Callable[[], Any],
    state: Callable[[], Any],
    take_over: Callable[[Any], None],
) -> Any:
    """Write on the first rank; the others take over what that has changed, failed or not.

    Args:
        call, write: of `on_first_rank`.
        state: a JSON value that says how checkpoints are numbered and which are kept.
        take_over: called with the first rank's on the others.
    """
    found, error = None, None
    try:
        found = on_first_rank(call, write)
    except RankMismatchError:
        raise
    except Exception as caught:
        error = caught
    job = current()
    first = job.agreement.gather(f"the numbers after {call}", state())[0]
    if job.group.rank:
        take_over(first)
    if error is not None:
        raise error
    return found


def _number(checkpoint: Any) -> int:
    return int(checkpoint.save_counter.numpy())


def _set_number(checkpoint: Any, number: int) -> None:
    checkpoint.save_counter.assign(number)


def _kept(manager: Any) -> dict[str, Any]:
    step = getattr(manager, "_last_checkpoint_step", None)
    return {
        "number": _number(manager.checkpoint),
        "latest": manager.latest_checkpoint,
        "kept": list(manager._maybe_delete.items()),
        "preserved": manager._last_preserved_timestamp,
        "step": None if step is None else int(step),
    }


def _set_kept(manager: Any, first: dict[str, Any]) -> None:
    _set_number(manager.checkpoint, first["number"])
    manager._latest_checkpoint = first["latest"]
    manager._maybe_delete.clear()
    manager._maybe_delete.update((path, time) for path, time in first["kept"])
    manager._last_preserved_timestamp = first["preserved"]
    if first["step"] is not None:
        manager._last_checkpoint_step = first["step"]


def _check_options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for each in (*args, *kwargs.values()):
        if getattr(each, "experimental_enable_async_checkpoint", False):
            raise OptionError(
                "ranks wait until a checkpoint is written. Got CheckpointOptions("
                "experimental_enable_async_checkpoint=True) on several ranks; leave it out."
            )


def _read(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, save_path: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_shared():
            return original(self, save_path, *args, **kwargs)
        _check_options(args, kwargs)
        agreement, call = current().agreement, f"tf.train.Checkpoint.{name}"
        path = None if save_path is None else files.absolute(os.fspath(save_path))
        path = agreement.gather(call, path)[0]
        bring_up_to_date(shared_variables())
        status: list[Any] = []

        def work() -> None:
            with _inside():
                status.append(original(self, path, *args, **kwargs))

        together(agreement, f"the end of {call}", work, *_READS)
        return status[0]

    return read


# Models and summaries


def _save_model(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **kwargs: Any) -> None:
        if not _is_shared():
            original(*args, **kwargs)
            return
        on_first_rank("tf.saved_model.save", lambda: original(*args, **kwargs))

    return save


def _create_writer(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_file_writer(logdir: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_shared() or current().group.rank == 0:
            return original(logdir, *args, **kwargs)
        folder = tempfile.mkdtemp(prefix="tensoropt")
        writer = original(folder, *args, **kwargs)
        weakref.finalize(writer, shutil.rmtree, folder, ignore_errors=True)
        return writer

    return create_file_writer
