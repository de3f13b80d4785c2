"""SIGTERM, which batch systems send before they take a machine: all ranks stop after one step."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any

import tensorflow as tf

from tensoropt.execution.agreement.agreement import StopRequest
from tensoropt.frontend.job.job import current, is_initialized, rank
from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode

__all__ = ["PreemptionHook", "install"]

v1: Any = tf.compat.v1

_STATUS = 128 + signal.SIGTERM


class PreemptionHook(v1.train.SessionRunHook):  # type: ignore[misc]
    """Ends a monitored session, and the script, after SIGTERM has come to any rank.

    The ranks tell each other in the agreement before each run, so all of them stop after the same
    run. The session closes as usual: its `CheckpointSaverHook` saves a checkpoint. Then the script
    exits with status 143. List this hook last: hooks after it would not
    end, because it raises SystemExit. A second SIGTERM, or one after the session, ends the process
    at once.

    ``MonitoredTrainingSession`` adds this hook if it has a ``checkpoint_dir``.
    """

    def __init__(self) -> None:
        enable_graph_mode()
        self._before: Any = signal.SIG_DFL
        self._coordinator: Any = None
        self._stop = StopRequest()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Handle SIGTERM from now on, if this is the main thread."""
        del session
        is_first = self._coordinator is None  # TensorFlow makes a failed session again
        self._coordinator = coord
        self._stop = current().agreement.stop
        if is_first and threading.current_thread() is threading.main_thread():
            former = signal.signal(signal.SIGTERM, self._asked)
            self._before = signal.SIG_DFL if former is None else former  # None: set by C code

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop the session if any rank got SIGTERM before this run."""
        del run_values
        if self._stop.everywhere:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Restore the former handler of SIGTERM.

        Raises:
            SystemExit: with status 143, if SIGTERM has ended the session.
        """
        del session
        if signal.getsignal(signal.SIGTERM) == self._asked:
            signal.signal(signal.SIGTERM, self._before)
        current().agreement.check("the end of a session")
        if self._stop.everywhere:
            raise SystemExit(_STATUS)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._stop.here or self._coordinator.should_stop():
            signal.signal(number, self._before)
            signal.raise_signal(number)
            return
        self._stop.here = True
        text = (
            f"tensoropt: rank {rank()} has got SIGTERM. All ranks stop after their next step, "
            f"save, and end with status {_STATUS}; a second SIGTERM ends the job at once.\n"
        )
        os.write(2, text.encode())  # sys.stderr may be in the middle of another line


def install() -> None:
    """Add a `PreemptionHook` to each ``MonitoredTrainingSession`` that saves checkpoints."""
    v1.train.MonitoredTrainingSession = _preemptible(v1.train.MonitoredTrainingSession)


def _preemptible(make: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(make)

    @wraps(make)
    def session(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        hooks = list(given.arguments.get("hooks") or ())
        if is_initialized() and given.arguments.get("checkpoint_dir"):
            if not any(isinstance(hook, PreemptionHook) for hook in hooks):
                hooks.append(PreemptionHook())
            given.arguments["hooks"] = hooks
        return make(*given.args, **given.kwargs)

    return session
