"""Monitored sessions and summaries: TensorFlow's own, on TensorOpt's sessions.

Hooks follow the first rank's clock, so that all ranks make the same runs, and only the first rank
writes files.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from tensoropt.frontend.job.job import current, is_initialized
from tensoropt.frontend.session.session import Session
from tensoropt.tensorflow_private import basic_session_run_hooks, session_manager, writer_cache
from tensoropt.tensorflow_private import session as session_module
from tensoropt.tensorflow_private import summary as summary_module

__all__ = ["install"]

v1 = tf.compat.v1

_timer = basic_session_run_hooks.SecondOrStepTimer
_triggers = _timer.should_trigger_for_step


def install() -> None:
    """After `init`, monitored sessions are TensorOpt's, and only the first rank's hooks write."""
    names = {**vars(session_module), "Session": _session}
    session_manager.session = SimpleNamespace(**names)
    v1.summary.FileWriter = writer_cache.FileWriter = summary_module.FileWriter = FileWriter
    _timer.should_trigger_for_step = should_trigger_for_step


def _session(target: str = "", graph: tf.Graph | None = None, config: Any = None) -> Any:
    """The session of a monitored session or supervisor; before `init`, TensorFlow's own."""
    kind = Session if is_initialized() else v1.Session
    return kind(target, graph, config)


def _writes() -> bool:
    return not is_initialized() or current().group.rank == 0


def should_trigger_for_step(self: Any, step: int) -> bool:
    """``SecondOrStepTimer``'s method; the first rank's clock decides if it counts seconds."""
    decision = bool(_triggers(self, step))
    if not is_initialized() or not current().is_mpi or self._every_secs is None:
        return decision
    return bool(current().agreement.gather("the clock of a hook", decision)[0])


class FileWriter(tf.compat.v1.summary.FileWriter):  # type: ignore[misc]
    """``tf.summary.FileWriter`` that writes on the first rank and does nothing on the others."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A writer on the first rank, a `_Silent` one on the others."""
        if _writes():
            return super().__new__(cls)
        return _Silent(str(args[0] if args else kwargs.get("logdir", "")))


class _Silent:
    """A writer whose methods do nothing."""

    def __init__(self, logdir: str) -> None:
        self._logdir = logdir

    def get_logdir(self) -> str:
        """The folder of the first rank's files."""
        return self._logdir

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_error: object) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_kwargs: None
