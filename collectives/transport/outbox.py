"""Messages that have been sent and have not arrived."""

from __future__ import annotations

import atexit
import threading
import time
from typing import Protocol

from collectives.buffers import Bytes

__all__ = ["Outbox", "Request"]

_PERIOD_SECONDS = 1e-3


class Request(Protocol):
    """A send that MPI has begun."""

    def Test(self) -> bool:
        """Continue the send; return whether it is done."""


class Outbox:
    """The unfinished sends of this process, which a thread continues.

    MPI moves a large message only while its sender calls MPI. A rank that waits in shared memory
    does not call MPI, and it may wait for the receiver of that message. So a thread calls MPI
    meanwhile. If receivers fetch messages by themselves, the thread only notes that the messages
    have arrived.
    """

    def __init__(self) -> None:
        self._sent: list[tuple[Request, Bytes]] = []
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._has_ended = False
        self._thread: threading.Thread | None = None

    def add(self, request: Request, buffer: Bytes) -> None:
        """Continue a send and keep its buffer until the send is done."""
        with self._lock:
            self._sent.append((request, buffer))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._continue_sends, name="outbox", daemon=True
                )
                self._thread.start()
                atexit.register(self._stop)  # MPI ends after this function
        self._wanted.set()

    def _continue_sends(self) -> None:
        while True:
            self._wanted.wait()
            if self._has_ended:
                return
            with self._lock:
                self._sent = [sent for sent in self._sent if not sent[0].Test()]
                if not self._sent:
                    self._wanted.clear()
                    continue
            time.sleep(_PERIOD_SECONDS)

    def _stop(self) -> None:
        self._has_ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
