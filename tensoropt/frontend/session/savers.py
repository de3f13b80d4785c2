"""``Saver.save`` and ``Saver.restore`` on TensorOpt's sessions.

Every rank writes and reads its part of a checkpoint (`execution.checkpoints.checkpoint`).
TensorFlow's saver does the rest, on the first rank: it names and numbers checkpoints, removes old
ones, and writes the graph and the file ``checkpoint``. An error on one rank is raised on all ranks.

With ``save_beside`` (`init`), ``Saver.save`` copies the variables and returns. Threads write the
copies, and the first rank's thread does the work of TensorFlow's saver when all are written.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.elastic.rank_variables import tell_checkpoint
from tensoropt.errors import CheckpointError
from tensoropt.execution.agreement.shared_outcome import do_on_all_ranks
from tensoropt.execution.agreement.work_beside import Work
from tensoropt.execution.checkpoints import files as files
from tensoropt.execution.checkpoints.checkpoint import WRITE_REMEDY, WRITE_RULE
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.execution.lowering.draws import Draws
from tensoropt.frontend.inputs.data_pipelines import pipelines_of
from tensoropt.frontend.job.job import current
from tensoropt.frontend.session.saver_operators import restored_by, saved_by
from tensoropt.frontend.session.session import Session
from tensoropt.tensorflow_private import SessionInterface

__all__ = ["install"]

_POSITION = "tensoropt/position"  # the name in a checkpoint

v1 = tf.compat.v1

_save = v1.train.Saver.save
_restore = v1.train.Saver.restore


def install() -> None:
    """Savers that get one of TensorOpt's sessions save and restore in parallel."""
    v1.train.Saver.save = save
    v1.train.Saver.restore = restore


def save(
    self: Any, sess: Any, save_path: str, global_step: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """``Saver.save``. Every rank calls it, and gets the name of the first rank's checkpoint.

    The checkpoint has TensorFlow's format under every plan: TensorFlow can restore it, and
    TensorOpt can restore TensorFlow's.

    Raises:
        CheckpointError: if a rank cannot read the folder.
        RankMismatchError: if some ranks do not make this call.
        Exception: TensorFlow's own. An error on one rank is raised on all ranks.
    """
    if not isinstance(sess, Session):
        return _save(self, sess, save_path, global_step, *args, **kwargs)
    if global_step is not None and not isinstance(global_step, tf.compat.integral_types):
        global_step = v1.train.global_step(sess, global_step)  # a run, which every rank makes
    job = current()
    job.beside.wait()
    if job.save_beside and self.saver_def and saved_by(sess.graph, self.saver_def.save_tensor_name):
        return _save_beside(self, sess, save_path, global_step, *args, **kwargs)
    call = _call("save", self)
    is_told = False

    def tell(path: str | None) -> str | None:
        """Tell all ranks the first rank's path; None if there is nothing to save."""
        nonlocal is_told
        is_told = True
        told: str | None = job.agreement.gather(call, path)[0]
        return told

    def write(fetched: str, feed: Mapping[str, str]) -> str:
        ((filename, path),) = feed.items()
        tell(files.absolute(path))
        _write(sess, fetched, filename, files.absolute(path))
        return path

    def work() -> Any:
        if job.group.rank:
            path = tell(None)
            if path is not None:
                saver = self.saver_def
                _write(sess, saver.save_tensor_name, saver.filename_tensor_name, path)
            return None
        try:
            path = _save(self, _Standing(sess, write), save_path, global_step, *args, **kwargs)
        finally:
            if not is_told:
                tell(None)
        return {"path": path, "last": self._last_checkpoints}

    first = do_on_all_ranks(job.agreement, f"the end of {call}", work)[0]
    self._last_checkpoints = [tuple(entry) for entry in first["last"]]
    if job.group.rank == 0 and first["path"] is not None:
        tell_checkpoint()
    return first["path"]


def restore(self: Any, sess: Any, save_path: str) -> None:
    """``Saver.restore``. Every rank calls it, and all ranks read the first rank's checkpoint.

    Raises:
        CheckpointError: if only some ranks can read the checkpoint.
        RankMismatchError: if some ranks do not make this call.
        Exception: TensorFlow's own. An error on one rank is raised on all ranks.
    """
    if not isinstance(sess, Session):
        _restore(self, sess, save_path)
        return
    current().beside.wait()
    agreement = current().agreement
    call = _call("restore", self)

    def read(operation: str, feed: Mapping[str, str]) -> None:
        ((filename, path),) = feed.items()
        _read(sess, operation, filename, path)

    def work() -> None:
        path = None if save_path is None else files.absolute(tf.compat.as_str(save_path))
        path = agreement.gather(call, path)[0]
        if path is not None:
            _check_seen(path, call)
        _restore(self, _Standing(sess, read), path)

    do_on_all_ranks(agreement, f"the end of {call}", work)


def _save_beside(
    saver: Any, session: Session, save_path: str, global_step: Any, *args: Any, **kwargs: Any
) -> Any:
    """Copy the variables, and let threads write the checkpoint. The result is that of `save`."""
    job = current()
    call = _call("save", saver)

    def named() -> Any:
        """The first rank's name of the checkpoint; None if there is nothing to save."""

        def stop(_: str, feed: Mapping[str, str]) -> None:
            (path,) = feed.values()
            raise _Named(path)

        if job.group.rank == 0:
            try:
                _save(saver, _Standing(session, stop), save_path, global_step, *args, **kwargs)
            except _Named as found:
                return found.path
        return None

    path = do_on_all_ranks(job.agreement, call, named)[0]
    if path is None:
        return None
    write = _copied(session, saver.saver_def.save_tensor_name, files.absolute(path))

    def part(has_failed: threading.Event) -> Any:
        """Write this rank's slices; on the first rank, do the rest of the save."""

        def publish(*_: Any) -> str:
            write(has_failed)
            if has_failed.is_set():
                raise _Named(path)  # Another rank has the error.
            return str(path)

        if job.group.rank:
            write(has_failed)
            return None
        with session.graph.as_default():
            try:
                _save(saver, _Standing(session, publish), save_path, global_step, *args, **kwargs)
            except _Named:
                return []
        tell_checkpoint()
        return saver._last_checkpoints

    def then(values: list[Any]) -> None:
        saver._last_checkpoints = [tuple(entry) for entry in values[0]]

    job.beside.start(job.agreement, Work(call, part, then, WRITE_RULE, WRITE_REMEDY))
    return path


class _Named(Exception):
    """Leaves TensorFlow's saver where it has named a checkpoint."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class _Standing(SessionInterface):  # type: ignore[misc]
    """A session for TensorFlow's saver, which runs one operator on it: to save or to restore."""

    def __init__(self, session: Session, run: Callable[[str, Mapping[str, str]], Any]) -> None:
        self._session = session
        self._run = run

    @property
    def graph(self) -> tf.Graph:
        """The session's graph."""
        return self._session.graph

    def run(self, fetches: Any, feed_dict: Any = None, *_: Any, **__: Any) -> Any:
        """Save or restore the checkpoint that the feed names."""
        return self._run(fetches, feed_dict)


def _call(method: str, saver: Any) -> str:
    operator = saver.saver_def.save_tensor_name if saver.saver_def else "nothing"
    return f"Saver.{method}, which runs {operator}"


def _write(session: Session, fetched: str, filename: str, path: str) -> None:
    """Write a checkpoint. All ranks must call this."""
    saved = saved_by(session.graph, fetched)
    if saved is None:
        session.run(fetched, {filename: path})
        return
    others = session.run(dict(saved.others)) if saved.others else {}
    with session.executor() as (executor, draws):
        others = {**others, **_position(session, draws)}
        executor.save(saved.variables, others, path, draws)


def _copied(session: Session, fetched: str, path: str) -> Callable[[threading.Event], None]:
    """Copy the values of a checkpoint; return the function that writes them. All ranks call it."""
    saved = saved_by(session.graph, fetched)
    assert saved is not None, "asked before"
    others = session.run(dict(saved.others)) if saved.others else {}
    with session.executor() as (executor, draws):
        others = {**others, **_position(session, draws)}
        return executor.copied(saved.variables, others, path, draws)


def _position(session: Session, draws: Draws) -> dict[str, Any]:
    """The position in the data and the counters of random operators, by name in a checkpoint.

    The first rank's value is written.
    """
    position = pipelines_of(session.graph).position()
    if not position and not draws.seeded:
        return {}
    strings = [json.dumps(draws.seeded).encode(), *position]
    value = np.empty(len(strings), object)
    value[:] = strings
    return {_POSITION: value}


def _go_on(session: Session, draws: Draws, restored: Sequence[SavedTensor], path: str) -> None:
    """Go on from a checkpoint's position, if the saver restores all other tensors of it.

    A saver that restores some of the tensors, for example to train another model, begins anew.
    """
    reader = tf.train.load_checkpoint(path)
    names = set(reader.get_variable_to_shape_map())
    if _POSITION in names and names <= {_POSITION, *(tensor.name for tensor in restored)}:
        counters, *position = reader.get_tensor(_POSITION)
        draws.go_on_from(json.loads(counters))
        pipelines_of(session.graph).go_on_from(position)


def _read(session: Session, operation: str, filename: str, path: str) -> None:
    """Read a checkpoint. All ranks must call this."""
    restored = restored_by(session.graph, operation, filename)
    if restored is None:
        session.run(operation, {filename: path})
        return
    with session.executor() as (executor, draws):
        executor.variables.restore(restored, path)
        _go_on(session, draws, restored, path)


def _check_seen(path: str, call: str) -> None:
    """Refuse a checkpoint that some ranks can read and others cannot."""
    agreement = current().agreement
    if any(agreement.gather(f"{call}: is it there", files.is_there(path))):
        seen = files.is_visible(path, files.is_there)
        blind = [
            n for n, is_seen in enumerate(agreement.gather(f"{call}: for all", seen)) if not is_seen
        ]
        if blind:
            raise CheckpointError(
                f"a checkpoint is in a folder that all ranks see. Got {path!r}, which rank "
                f"{blind[0]} does not see. Give one of a file system that all machines share."
            )
