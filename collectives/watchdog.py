"""Reports collectives that take too long: what a rank waits for, and which ranks are missing.

In each process a thread measures, once a period, how long the process has been in a collective. If
this exceeds a limit, it asks the threads of the other processes. A process that waits in the same
collective has arrived. One that computes, or waits in another collective, is missing. One that does
not answer is stopped or unreachable. A wait for a message is treated alike: its sender is missing.
No message is sent while no wait is long.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from collectives.errors import TransportError

__all__ = [
    "ABORT_VARIABLE",
    "LOST_VARIABLE",
    "WARN_VARIABLE",
    "Limits",
    "Peers",
    "Wait",
    "Watchdog",
    "about",
    "limits",
    "terminate",
    "watchdog",
]

WARN_VARIABLE = "COLLECTIVES_WARN_SECONDS"
"""Environment variable: a collective that takes longer is reported; 0 for never, 60 by default."""

ABORT_VARIABLE = "COLLECTIVES_ABORT_SECONDS"
"""Environment variable: a collective that takes longer ends the job; 0, the default, for never."""

LOST_VARIABLE = "COLLECTIVES_LOST_SECONDS"
"""Environment variable: the job ends if the watchdog of a rank that others wait for does not answer
for this long; 0, the default, for never. A rank that computes answers."""

_WARN_SECONDS = 60.0  # the default of `WARN_VARIABLE`
_START_LIMITS = 5  # while MPI starts, no rank can be asked: the job ends after so many limits
_LONGEST_PERIOD = 1.0  # seconds between two calls of `Watchdog.look`
_FORWARDING_SECONDS = 0.5  # in which the launcher forwards a last line before the job ends
_MOST_TURNS = 4  # ranks that end the job for a silent machine one after another
_LONGEST_TEXT = 300  # characters of a record in a message
_LONGEST_LIST = 8  # ranks that a message names


class Limits(NamedTuple):
    """Seconds after which a collective is reported, a collective ends the job, and a rank that does
    not answer ends the job."""

    warn: float
    abort: float
    lost: float = 0.0


class Wait(NamedTuple):
    """A collective that this process is in.

    Attributes:
        what: description of the collective, the same on all of its ranks.
        ranks: the ranks of the world that take part.
        since: when the wait began, by `time.perf_counter`.
        sender: rank that sends the message waited for; None for a collective.
    """

    what: str
    ranks: tuple[int, ...]
    since: float
    sender: int | None = None


class Peers(Protocol):
    """Sends short messages between the watchdogs of all processes, and never waits."""

    @property
    def rank(self) -> int:
        """The rank of this process in the world."""

    def send(self, rank: int, message: bytes) -> None:
        """Send a message to the watchdog of another rank."""

    def received(self) -> Iterator[tuple[int, bytes]]:
        """The messages that have come, each with its sender's rank."""

    def abort(self) -> None:
        """End the job."""


def terminate() -> None:
    """End this process by a signal; the launcher then ends the other processes."""
    os.kill(os.getpid(), signal.SIGTERM)


def limits() -> Limits:
    """Return the limits that the environment variables set.

    Raises:
        TransportError: if a variable is not a number of seconds.
    """
    warn = _seconds(WARN_VARIABLE, _WARN_SECONDS)
    return Limits(warn, _seconds(ABORT_VARIABLE, 0.0), _seconds(LOST_VARIABLE, 0.0))


def _seconds(variable: str, usual: float) -> float:
    text = os.environ.get(variable, "")
    try:
        found = float(text) if text else usual
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise TransportError(
            f"{variable} is a number of seconds, 0 for never. Got {text!r}; leave it out for "
            f"{usual:g}."
        )
    return found


_labels = threading.local()


@contextmanager
def about(what: str) -> Iterator[None]:
    """Inside this context, reports call the collectives of this thread ``what``."""
    before = getattr(_labels, "what", "")
    _labels.what = what
    try:
        yield
    finally:
        _labels.what = before


@dataclass(slots=True)
class _Question:
    """A wait of this process, about which it has asked the other ranks.

    Attributes:
        asked: when it has asked, by the watchdog's clock.
        answers: the state of each rank that has answered.
        ends_by: the variable and the limit by which the wait ends the job; empty if it does not.
        is_reported: whether the wait has been reported.
    """

    wait: Wait
    asked: float
    answers: dict[int, Any]
    ends_by: str = ""
    is_reported: bool = False


class Watchdog:
    """Reports collectives of this process that take too long, and ends the job if asked to.

    Args:
        limits: how long a collective may take.
        clock: returns seconds; the collectives in C++ must use the same clock.
        say: prints a line.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.perf_counter,
        say: Callable[[str], None] = lambda text: _say(text),
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._say = say
        self._waits: dict[int, Wait] = {}
        self._others: list[Callable[[], Wait | None]] = []
        self._peers: Peers | None = None
        self._hosts: tuple[str, ...] = ()
        self._end_alone = terminate
        self._question: _Question | None = None
        self._roll_call: _Question | None = None
        self._period = min([_LONGEST_PERIOD, *(seconds / 4 for seconds in limits if seconds)])
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start a thread that calls `look` periodically until `stop`, if a limit is set."""
        if any(self._limits):
            self._thread.start()
            atexit.register(self.stop)  # MPI ends after that

    def end_alone_by(self, end: Callable[[], None]) -> None:
        """Set how this process ends the job before `connect`; by default `terminate`."""
        self._end_alone = end

    def connect(self, peers: Peers, hosts: Sequence[str] = ()) -> None:
        """Set the connection by which the other processes can be asked.

        Args:
            peers: the connection.
            hosts: the machine of each rank of the world; reports name it if there are several.
        """
        self._peers = peers
        self._hosts = tuple(hosts) if len(set(hosts)) > 1 else ()

    def add(self, probe: Callable[[], Wait | None]) -> None:
        """Add a function that returns a collective in which this process is, or None."""
        self._others.append(probe)

    @contextmanager
    def waiting(
        self, kind: str, ranks: tuple[int, ...], sender: int | None = None
    ) -> Iterator[None]:
        """Record a wait, around a call that waits for other ranks or for a message."""
        thread = threading.get_ident()
        what = getattr(_labels, "what", "") or kind
        self._waits[thread] = Wait(what, ranks, self._clock(), sender)
        try:
            yield
        finally:
            self._waits.pop(thread)

    def stop(self) -> None:
        """Stop the thread. Must be called before MPI ends."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self._period):
            self.look()

    def look(self) -> None:
        """Answer the questions of other ranks once, and check the longest wait of this process."""
        waits = [*list(self._waits.values()), *(probe() for probe in self._others)]
        wait = min((each for each in waits if each), key=lambda each: each.since, default=None)
        if self._peers is not None:
            for rank, message in self._peers.received():
                self._take(self._peers, rank, json.loads(message), wait)
        question = self._question
        if question is not None and (wait is None or wait.since != question.wait.since):
            if question.is_reported:
                took = self._clock() - question.wait.since
                what = _quoted(question.wait.what)
                self._say(f"{self._name} goes on after {took:.0f} s in {what}")
            self._question = None
        if wait is not None:
            self._follow_up(wait)

    def _follow_up(self, wait: Wait) -> None:
        """Ask other ranks about a wait that is too long, and report it a few periods later."""
        now, question = self._clock(), self._question
        ends_by = self._ends_by(wait, now)
        is_long = 0 < self._limits.warn <= now - wait.since
        if (is_long and question is None) or (ends_by and not (question and question.ends_by)):
            self._question = question = _Question(wait, now, {}, ends_by)
            self._ask(question)
        if question is None or question.is_reported:
            return
        # If the missing ranks wait themselves, this rank waits longer, so that they report first.
        periods = 8 if self._missing_ranks_wait(question) else 4
        if self._hosts and self._peers is not None and question.ends_by:
            # Ranks of several groups may wait for one silent machine: one of them says so.
            periods += 2 * min(self._peers.rank, _MOST_TURNS)
        if now < question.asked + periods * self._period:
            return
        question.is_reported = True
        is_first = self._report(question)
        if question.ends_by:
            # The launcher drops output that it has not forwarded when the job ends. The rank that
            # reports waits for the forwarding and ends the job; the other ranks wait longer.
            self._end.wait(_FORWARDING_SECONDS if is_first else 4 * _FORWARDING_SECONDS)
            if self._peers is None:
                self._end_alone()
                return
            self._peers.abort()

    def _ends_by(self, wait: Wait, now: float) -> str:
        """The variable and the limit by which a wait ends the job; empty if it goes on."""
        if 0 < self._limits.abort <= now - wait.since:
            return f"{ABORT_VARIABLE}={self._limits.abort:g}"
        is_lost = self._limits.lost > 0 and self._has_silent_rank(wait, now)
        return f"{LOST_VARIABLE}={self._limits.lost:g}" if is_lost else ""

    def _has_silent_rank(self, wait: Wait, now: float) -> bool:
        """Whether a rank that is waited for has not answered for the limit; asks all, in turns."""
        limit, roll_call = self._limits.lost, self._roll_call
        if self._peers is None:
            return now - wait.since >= _START_LIMITS * limit
        if roll_call is None or roll_call.wait.since != wait.since:
            if now - wait.since < limit / 4:
                return False
        elif now < roll_call.asked + limit:
            return False
        else:
            asked = wait.ranks if wait.sender is None else (wait.sender,)
            silent = {*asked} - {self._peers.rank, *roll_call.answers}
            if silent:
                return True
        self._roll_call = _Question(wait, now, {})
        self._ask(self._roll_call)
        return False

    def _missing_ranks_wait(self, question: _Question) -> bool:
        """Whether all ranks that have not come have answered, and wait for something else."""
        wait, own = question.wait, None if self._peers is None else self._peers.rank
        same = [wait.what, list(wait.ranks)]
        missing = [r for r in wait.ranks if r != own and question.answers.get(r) != same]
        missing = missing if wait.sender is None else [wait.sender]
        return bool(missing) and all(question.answers.get(rank) is not None for rank in missing)

    @property
    def _name(self) -> str:
        if self._peers is None:
            return f"a process on {socket.gethostname()}"
        return self._rank(self._peers.rank)

    def _rank(self, rank: int) -> str:
        """A rank, with its machine if there are several."""
        return f"rank {rank} on {self._hosts[rank]}" if self._hosts else f"rank {rank}"

    def _silent_hosts(self, question: _Question) -> str:
        """A sentence about the machines of which no rank answers a question; empty if none is."""
        if not self._hosts or self._peers is None:
            return ""
        alive = {self._hosts[rank] for rank in (self._peers.rank, *question.answers)}
        asked = dict.fromkeys(self._hosts[rank] for rank in question.wait.ranks)
        silent = [host for host in asked if host not in alive]
        return f". No rank on {_listed(silent)} answers: see to machine and network" * bool(silent)

    def _ask(self, question: _Question) -> None:
        if self._peers is None:
            return
        for rank in question.wait.ranks:
            if rank != self._peers.rank:
                self._peers.send(rank, json.dumps({"asks": question.wait.since}).encode())

    def _take(self, peers: Peers, rank: int, message: dict[str, Any], wait: Wait | None) -> None:
        """Take a message: answer a question, or keep an answer."""
        if "asks" in message:
            state = None if wait is None else [wait.what, list(wait.ranks)]
            peers.send(rank, json.dumps({"answers": message["asks"], "state": state}).encode())
            return
        for question in (self._question, self._roll_call):
            if question is not None and message["answers"] == question.wait.since:
                question.answers[rank] = message["state"]

    def _report(self, question: _Question) -> bool:
        """Report a wait, on the lowest of the ranks in the same wait; return whether this is it."""
        wait, own = question.wait, None if self._peers is None else self._peers.rank
        same = [wait.what, list(wait.ranks)]
        here = [rank for rank, state in question.answers.items() if state == same]
        if own is not None and any(rank < own for rank in here):
            return False
        took = self._clock() - wait.since
        absent = [rank for rank in wait.ranks if rank != own and rank not in here]
        text = f"{self._name} has waited {took:.0f} s in {_quoted(wait.what)}"
        if own is None:
            text += ", to which every process of the job comes"
        elif wait.sender is not None:
            text += f", for a message: {self._absence(wait.sender, question)}, has not sent it"
        elif not absent:
            text += f", where all of ranks {_listed(wait.ranks)} are"
        else:
            text += f", a collective of ranks {_listed(wait.ranks)}. Not there: "
            text += "; ".join(self._absence(rank, question) for rank in absent[:_LONGEST_LIST])
            text += "; and others" if len(absent) > _LONGEST_LIST else ""
        text += self._silent_hosts(question)
        hint = "" if self._limits.abort else f"; {ABORT_VARIABLE}=SECONDS would end the job"
        self._say(
            f"{text}. The job ends, by {question.ends_by}"
            if question.ends_by
            else f"{text}. It goes on waiting{hint}"
        )
        return True

    def _absence(self, rank: int, question: _Question) -> str:
        """A rank that has not come, and what it does instead."""
        name = self._rank(rank)
        if rank not in question.answers:
            return f"{name}, which does not answer (stopped, stuck or out of reach)"
        state = question.answers[rank]
        if state is None:
            return f"{name}, which is in no collective (it computes, or does something else)"
        return f"{name}, which waits in {_quoted(state[0])}"


def _listed(values: Sequence[int | str]) -> str:
    more = ", ..." if len(values) > _LONGEST_LIST else ""
    return ", ".join(map(str, values[:_LONGEST_LIST])) + more


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " ...")


def _say(text: str) -> None:
    sys.stderr.write(f"collectives: {text}.\n")
    sys.stderr.flush()


_watchdog: Watchdog | None = None


def watchdog() -> Watchdog:
    """Return the watchdog of this process. The first call starts it.

    Raises:
        TransportError: see `limits`.
    """
    global _watchdog
    if _watchdog is None:
        _watchdog = Watchdog(limits())
        _watchdog.start()
    return _watchdog
