"""What TensorFlow's supervisors do every so often: between runs, not in threads.

Threads that save, count or summarise would run the graph in another order on every rank. So each
such loop takes its turn after a run of the script's, when the first rank's clock says so. The first
turn comes before the first run: TensorFlow's threads are done with theirs before a first step is.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from tensorflow.python.training import coordinator

from tensoropt.frontend.job.job import Job, current, is_initialized

__all__ = ["install", "serve"]

_start = coordinator.LooperThread.start


@dataclass(slots=True)
class _Service:
    """A loop that takes turns.

    Attributes:
        job: in which it was started.
        loop: TensorFlow's thread, never started as one.
        due_seconds: by this process's clock, the time of the next turn; None before the first.
    """

    job: Job
    loop: Any
    due_seconds: float | None = None


_services: list[_Service] = []
_turns = threading.Lock()


def install() -> None:
    """Let timed loops take turns with the script."""
    coordinator.LooperThread.start = start


def start(self: Any) -> None:
    """``LooperThread.start``: a loop with an interval gets no thread."""
    if not is_initialized() or self._timer_interval_secs is None:
        _start(self)
        return
    self.start_loop()
    _services.append(_Service(current(), self))


def serve(only_new: bool = False) -> None:
    """Give each loop that is due its turn, or each new one. All ranks make the same runs."""
    job = current()
    _services[:] = [s for s in _services if s.job is job and not s.loop._coord.should_stop()]
    in_script = threading.current_thread() is threading.main_thread()
    waiting = [s for s in _services if s.due_seconds is None or not only_new]
    if not waiting or not in_script or not _turns.acquire(blocking=False):
        return  # a turn's own runs give no turns
    try:
        now = time.monotonic()
        mine = [service.due_seconds is None or service.due_seconds <= now for service in waiting]
        for service, due in zip(waiting, job.group.allgather_object(mine)[0], strict=True):
            if due:
                service.due_seconds = now + service.loop._timer_interval_secs
                with service.loop._coord.stop_on_exception():
                    service.loop.run_loop()
    finally:
        _turns.release()
