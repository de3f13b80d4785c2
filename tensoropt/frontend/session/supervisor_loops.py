"""Periodic loops of TensorFlow's supervisors, run between the script's runs instead of in threads.

In threads, the loops that save, count and summarise would run the graph in a different order on
every rank. Here a loop runs after a run of the script, when it is due by the first rank's clock. It
runs for the first time before the first run, as TensorFlow's threads do.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from tensoropt.frontend.job.job import Job, current, is_initialized
from tensoropt.tensorflow_private import coordinator

__all__ = ["install", "run_due_loops"]

_start = coordinator.LooperThread.start


@dataclass(slots=True)
class _Loop:
    """A periodic loop.

    Attributes:
        job: the job in which it was started.
        loop: TensorFlow's thread object, never started as a thread.
        due_seconds: the time of the next run by this process's clock; None before the first.
    """

    job: Job
    loop: Any
    due_seconds: float | None = None


_loops: list[_Loop] = []
_running = threading.Lock()


def install() -> None:
    """Let periodic loops run between the script's runs."""
    coordinator.LooperThread.start = start


def start(self: Any) -> None:
    """``LooperThread.start``: a loop with an interval is registered here and gets no thread."""
    if not is_initialized() or self._timer_interval_secs is None:
        _start(self)
        return
    self.start_loop()
    _loops.append(_Loop(current(), self))


def run_due_loops(only_new: bool = False) -> None:
    """Run each loop that is due, or only the new ones. All ranks run the same loops."""
    job = current()
    _loops[:] = [s for s in _loops if s.job is job and not s.loop._coord.should_stop()]
    in_script = threading.current_thread() is threading.main_thread()
    waiting = [s for s in _loops if s.due_seconds is None or not only_new]
    if not waiting or not in_script or not _running.acquire(blocking=False):
        return  # the runs that a loop makes start no loops
    try:
        now = time.monotonic()
        is_due = [service.due_seconds is None or service.due_seconds <= now for service in waiting]
        for service, due in zip(
            waiting, job.agreement.gather("the loops of a supervisor", is_due)[0], strict=True
        ):
            if due:
                service.due_seconds = now + service.loop._timer_interval_secs
                with service.loop._coord.stop_on_exception():
                    service.loop.run_loop()
    finally:
        _running.release()
