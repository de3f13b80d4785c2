"""TensorFlow 2's saving functions on several ranks: the first rank writes, and all ranks agree.

``tf.train.Checkpoint``, ``tf.train.CheckpointManager`` and ``tf.saved_model.save`` are called on
every rank. All ranks write the slices of a checkpoint's variables. The first rank does the rest as
TensorFlow does; the others send it variables of parallel steps that it reads, and then copy its
numbering of checkpoints. All ranks read the first
rank's checkpoint. An error on one rank is raised on all ranks. All ranks compute summaries; the
first rank's go to the script's folder, those of the other ranks to a temporary one.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import tensorflow as tf

from tensoropt.elastic.rank_variables import tell_checkpoint
from tensoropt.errors import RankMismatchError
from tensoropt.execution.agreement.shared_outcome import do_on_all_ranks
from tensoropt.execution.agreement.work_beside import Work
from tensoropt.execution.checkpoints import files as files
from tensoropt.frontend.job import copies
from tensoropt.frontend.job.job import current, is_initialized
from tensoropt.frontend.saving.deferred_writes import (
    deferred_writes,
    is_asked_beside,
    with_tensor,
    without_thread,
    write_later,
)
from tensoropt.frontend.saving.first_rank_reads import on_first_rank_alone
from tensoropt.frontend.saving.sliced_writes import SlicedWrite
from tensoropt.frontend.session.step_draws import go_on_from, step_counters
from tensoropt.frontend.steps.variable_values import (
    bring_up_to_date,
    only_read,
    shared_variables,
    steps_have_run,
)
from tensoropt.temporary_folder import temporary_folder

__all__ = ["install", "on_first_rank", "remove"]

v1, v2 = tf.compat.v1, tf.compat.v2

_CHECKPOINTS = (tf.train.Checkpoint, v1.train.Checkpoint)
_BESIDE = (tf.train.Checkpoint, tf.train.CheckpointManager)  # can write beside the steps
_POSITION = "tensoropt/steps"  # the name of the counters of random operators in a checkpoint
_WRITES = (
    "a file is written where the first rank can write.",
    "Make its folder, free some space, or name another.",
)
_READS = "all ranks read the first rank's checkpoint.", "Give one that all of them can read."

# The state of the process, as the hooks are on TensorFlow's own classes and modules.
_originals: list[tuple[Any, str, Any]] = []
_is_inside = False  # whether one of these calls is running, so that inner calls are TensorFlow's


def install() -> None:
    """Replace TensorFlow's saving functions by those of this module."""
    for kind in _CHECKPOINTS:
        _replace(kind, "save", _save)
        _replace(kind, "write", _write)
        _replace(kind, "restore", functools.partial(_read, "restore"))
        _replace(kind, "read", functools.partial(_read, "read"))
    _replace(tf.train.Checkpoint, "_write", write_later)
    _replace(tf.train.CheckpointManager, "save", _save_managed)
    for module in (tf.saved_model, v1.saved_model, v2.saved_model):
        _replace(module, "save", _save_model)
    for module in (tf.summary, v2.summary):
        _replace(module, "create_file_writer", _create_writer)


def remove() -> None:
    """Restore TensorFlow's own functions."""
    while _originals:
        setattr(*_originals.pop())


def on_first_rank(
    call: str,
    write: Callable[[], Any],
    variables: Iterable[Any] = (),
    keeps: bool = True,
    answer: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Any:
    """Write on the first rank, while the others send it the variables that it reads.

    Every rank must call this.

    Args:
        call: the name of the call, for errors.
        write: may read the variables, assigns none of them, and returns a JSON value.
        variables: variables that ``write`` reads first; it may read all of parallel steps.
        keeps, answer: see `on_first_rank_alone`.

    Raises:
        Exception: the error of ``write``, on all ranks.
        RankMismatchError: if some ranks do not make this call.
    """
    if _is_inside:
        return write()
    job = current()
    job.agreement.check(call)  # another rank may still read a file that the first one changes
    all_variables = [*variables, *shared_variables()]
    variables = {id(variable): variable for variable in all_variables}.values()
    if not job.is_mpi:
        with only_read(variables):
            return write()

    def work() -> Any:
        with _inside():
            return on_first_rank_alone(call, variables, write, keeps, answer)

    return do_on_all_ranks(job.agreement, f"the end of {call}", work, *_WRITES)[0]


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
    """Whether all ranks make this call together; not if each trains a copy and saves it."""
    if _is_inside or not is_initialized() or not tf.executing_eagerly():
        return False
    is_alone = current().group.size == 1
    return is_alone or copies.are_refused() or steps_have_run()


# Checkpoints


def _save(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = "tf.train.Checkpoint.save"
        return _saved(original, self, args, kwargs, _Numbers(call, self, _number, _set_number))

    return save


def _write(original: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = "tf.train.Checkpoint.write"
        return _saved(original, self, args, kwargs, _Numbers(call, self, _nothing, _set_nothing))

    return write


def _save_managed(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = "tf.train.CheckpointManager.save"
        return _saved(original, self, args, kwargs, _Numbers(call, self, _kept, _set_kept))

    return save


class _Numbers(NamedTuple):
    """The numbers of checkpoints and the list of kept ones, of a checkpoint or a manager.

    Attributes:
        call: the name of the method that saves.
        owner: the checkpoint or manager.
        get: returns the numbers as a JSON value.
        set: sets the numbers.
    """

    call: str
    owner: Any
    get: Callable[[Any], Any]
    set: Callable[[Any, Any], None]

    def take_over(self, first: Any) -> None:
        """Set the first rank's numbers on this rank, if it is another one."""
        if current().group.rank:
            self.set(self.owner, first)


def _saved(
    original: Callable[..., Any],
    owner: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    numbers: _Numbers,
) -> Any:
    """Write on the first rank, now or beside the steps; other ranks take its numbers over.

    They take them over even if the writing fails.
    """
    if not _is_shared():
        return original(owner, *args, **kwargs)
    job = current()
    job.beside.wait()
    is_beside = isinstance(numbers.owner, _BESIDE) and (
        job.save_beside or is_asked_beside(args, kwargs)
    )
    given, named = without_thread(args, kwargs)
    counters = json.dumps(step_counters()).encode()
    result, error, writes = None, None, list[Callable[[], Any]]()
    sliced = SlicedWrite(is_beside)
    try:
        with (
            with_tensor(_POSITION, counters),
            deferred_writes(is_beside, sliced if job.is_mpi else None) as writes,
        ):
            result = on_first_rank(
                numbers.call, lambda: original(owner, *given, **named), answer=sliced.answer
            )
    except RankMismatchError:
        raise
    except Exception as caught:
        error = caught
    first = job.agreement.gather(f"the numbers after {numbers.call}", numbers.get(owner))[0]
    numbers.take_over(first)
    if error is not None:
        raise error
    if is_beside and result is not None:
        _write_beside(numbers, files.absolute(result), writes, sliced.later)
    elif result is not None and job.group.rank == 0:
        tell_checkpoint()
    return result


def _write_beside(
    numbers: _Numbers,
    path: str,
    writes: list[Callable[[], Any]],
    write_slices: Callable[[threading.Event], None] | None,
) -> None:
    """Let threads write a checkpoint; those of other ranks wait for the first rank's.

    Args:
        numbers: see `_saved`.
        path: the name of the checkpoint.
        writes: functions that the first rank calls to write it; none on the other ranks.
        write_slices: writes this rank's slices before; None if there are no slices.
    """
    job = current()
    is_first = job.group.rank == 0
    path = path if write_slices is None else f"{path}.numbers"  # Slices have the folder of `path`.

    def mark() -> None:
        if is_first:
            files.mark_being_saved(path)

    def part(has_failed: threading.Event) -> Any:
        if not is_first:
            if write_slices is not None:
                write_slices(has_failed)
            files.wait_until_saved(path, has_failed)
            return None
        try:
            if write_slices is not None:
                write_slices(has_failed)
            if has_failed.is_set():
                return None  # Another rank raises its error.
            for write in writes:
                write()
            writes.clear()
        finally:
            files.tidy_mark(path)
        tell_checkpoint()
        return numbers.get(numbers.owner)

    def then(values: list[Any]) -> None:
        numbers.take_over(values[0])

    do_on_all_ranks(job.agreement, f"the start of {numbers.call}", mark, *_WRITES)
    job.beside.start(job.agreement, Work(numbers.call, part, then, *_WRITES))


def _nothing(owner: Any) -> None:
    del owner


def _set_nothing(owner: Any, first: Any) -> None:
    del owner, first


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


def _read(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, save_path: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_shared():
            return original(self, save_path, *args, **kwargs)
        current().beside.wait()
        args, kwargs = without_thread(args, kwargs)
        agreement, call = current().agreement, f"tf.train.Checkpoint.{name}"
        path = None if save_path is None else files.absolute(os.fspath(save_path))
        path = agreement.gather(call, path)[0]
        bring_up_to_date(shared_variables())
        status: list[Any] = []

        def work() -> None:
            with _inside():
                status.append(original(self, path, *args, **kwargs))
            if path is not None:
                _go_on(path)

        do_on_all_ranks(agreement, f"the end of {call}", work, *_READS)
        return status[0]

    return read


def _go_on(path: str) -> None:
    """Let the steps' random operators go on from a checkpoint, if it has their counters."""
    if tf.io.gfile.isdir(path):  # a saved model
        return
    reader = tf.train.load_checkpoint(path)
    if reader.has_tensor(_POSITION):
        go_on_from(json.loads(reader.get_tensor(_POSITION)))


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
        with ExitStack() as stack:
            writer = original(str(stack.enter_context(temporary_folder())), *args, **kwargs)
            weakref.finalize(writer, stack.pop_all().close)
        return writer

    return create_file_writer
