"""Messages that are on their way: sends that have begun and are not done."""

from __future__ import annotations

import atexit
import threading
import time
from typing import Protocol

from collectives.buffers import Bytes

__all__ = ["Outbox", "Request"]

_PERIOD_SECONDS = 1e-3


class Request(Protocol):
    """What MPI has begun."""

    def Test(self) -> bool:
        """Whether it is done; goes on with it."""


class Outbox:
    """Of this process. A thread goes on with its sends, whatever the process waits for or computes.

    MPI moves a large message only while its sender calls MPI, which a rank does not that waits in
    shared memory; and the receiver may be who it waits for. Where receivers fetch messages by
    themselves the thread has nothing to do but to see that they have.
    """

    def __init__(self) -> None:
        self._sent: list[tuple[Request, Bytes]] = []
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def add(self, request: Request, buffer: Bytes) -> None:
        """Go on with a send, and keep its buffer until it is done."""
        with self._lock:
            self._sent.append((request, buffer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._go_on, name="outbox", daemon=True)
                self._thread.start()
                atexit.register(self._stop)  # MPI ends after that
        self._wanted.set()

    def _go_on(self) -> None:
        while True:
            self._wanted.wait()
            if self._is_over:
                return
            with self._lock:
                self._sent = [each for each in self._sent if not each[0].Test()]
                if not self._sent:
                    self._wanted.clear()
                    continue
            time.sleep(_PERIOD_SECONDS)

    def _stop(self) -> None:
        self._is_over = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
