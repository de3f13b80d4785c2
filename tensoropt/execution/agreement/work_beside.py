"""Work that threads of all ranks do beside the steps, such as writing a checkpoint.

No rank waits for a thread between steps. The agreement before each run tells all ranks whether all
threads have ended. At the next run, then, all ranks end the work together: all go on, or all raise
the same error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.shared_outcome import do_on_all_ranks

__all__ = ["Work", "WorkBeside"]

_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.05
"""The time between two questions whether the work is done, while all ranks wait for it."""


@dataclass(slots=True, eq=False)
class Work:
    """A piece of work of which each rank has a part.

    Attributes:
        call: its name, the same on all ranks.
        part: this rank's part. It runs in a thread and returns a JSON value. It gets the event by
            which it is told that the part of another rank has failed; it may wait for other ranks
            only until then.
        then: called on all ranks with the values of all parts, after all of them have ended well.
        rule, remedy: see `do_on_all_ranks`.
    """

    call: str
    part: Callable[[threading.Event], Any]
    then: Callable[[list[Any]], None]
    rule: str = ""
    remedy: str = ""
    _value: Any = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def run(self, has_failed: threading.Event) -> bool:
        """Do this rank's part. Return whether it has ended well."""
        try:
            self._value = self.part(has_failed)
        except BaseException as error:
            self._error = error
        return self._error is None

    def result(self) -> Any:
        """Return the value of this rank's part, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._value


class WorkBeside:
    """At most one `Work` at a time. All ranks make the same calls, except `wait_here`."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._agreement = Agreement(None)
        self._has_failed = threading.Event()
        self._thread = threading.Thread()

    def start(self, agreement: Agreement, work: Work) -> None:
        """Start a piece of work, after the one before has ended.

        Raises:
            Exception: the error of the work before; then the new work is not started.
        """
        self.wait()
        self._agreement, self._work = agreement, work
        self._has_failed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[work], daemon=True, name=work.call)
        self._thread.start()

    def poll(self) -> None:
        """End the work if all ranks have told each other that it is done. No rank waits here.

        Raises:
            Exception: the error of the work, the same on all ranks.
        """
        if self._work is not None and self._agreement.done.everywhere:
            self._end(self._work)

    def wait(self) -> None:
        """Wait until the work is done on all ranks, and end it.

        Raises:
            Exception: the error of the work, the same on all ranks.
        """
        work = self._work
        if work is None:
            return
        pause = _SHORTEST_PAUSE_SECONDS
        while not self._agreement.done.everywhere:
            self._agreement.check(f"the wait for {work.call}")
            self._thread.join(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._end(work)

    def wait_here(self) -> None:
        """Wait until this rank's part is done. Other ranks need not make this call."""
        if self._work is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self, work: Work) -> None:
        done = self._agreement.done
        done.failed_here = not work.run(self._has_failed)
        done.here = True

    def _end(self, work: Work) -> None:
        self._has_failed.set()  # Without a failure all threads have ended, and none asks.
        self._thread.join()
        self._work = None
        done = self._agreement.done
        done.here = done.failed_here = done.everywhere = False
        values = do_on_all_ranks(
            self._agreement, f"the end of {work.call}", work.result, work.rule, work.remedy
        )
        done.everywhere = False
        work.then(values)
