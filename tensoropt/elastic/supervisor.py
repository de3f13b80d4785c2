"""Starts a job again after a loss, on the machines that answer, until its script has ended.

A script goes on from its last checkpoint by its own means. The supervisor decides from the reason
of an end, the hosts that answer and the checkpoints that the start has saved; see `after_loss`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from tensoropt.elastic.end_reasons import Ending, ending_of
from tensoropt.elastic.hosts import Host, next_starts, placement, write_starts
from tensoropt.elastic.launcher import MPIRun, Process
from tensoropt.elastic.rank_variables import PLAN_AHEAD_VARIABLE, RESTARTS_VARIABLE
from tensoropt.elastic.state import State, StateFile
from tensoropt.errors import OptionError

__all__ = ["TOO_FEW_STATUS", "Limits", "Supervisor", "after_loss"]

TOO_FEW_STATUS = 75
"""Exit status if too few devices answer: EX_TEMPFAIL of sysexits.h, "try again later"."""

_LOST_VARIABLE = "COLLECTIVES_LOST_SECONDS"
_LOST_SECONDS = "60"  # a rank's watchdog answers within a second, however busy the rank is
_POLL_SECONDS = 0.2
_PROBE_SECONDS = 30.0  # between two questions to hosts that did not answer
_WAIT_SECONDS = 5.0  # the same, while the job waits for them
_STOP_SECONDS = 300.0  # for a last checkpoint after SIGTERM


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a supervised job.

    Attributes:
        devices: the most ranks.
        least_devices: the fewest ranks with which the job is started.
        restarts: the most restarts in a row without a new checkpoint.
        wait_seconds: time to wait for hosts while fewer ranks than ``least_devices`` have one.
    """

    devices: int
    least_devices: int
    restarts: int
    wait_seconds: float


def after_loss(
    state: State, ending: Ending, checkpoints: int, has_lost_host: bool, limits: Limits
) -> tuple[State, str]:
    """The state after a start that has failed, and the reason to end the job; empty to go on.

    A script's own error comes again if the next start begins where this one began. So a start that
    has saved a checkpoint is followed by another one, and an error that returns at the same step
    ends the job at the latest after the next start.

    Args:
        state: the state of this start.
        ending: how it ended.
        checkpoints: the checkpoints that it has saved.
        has_lost_host: whether one of its hosts does not answer.
        limits: the job's.
    """
    is_lost = ending.is_lost or has_lost_host
    fruitless = 0 if checkpoints else state.fruitless + 1
    after = replace(
        state,
        checkpoints=state.checkpoints + checkpoints,
        fruitless=fruitless,
        suspect="" if checkpoints else ending.host,
    )
    if not is_lost and not checkpoints:
        return after, "the script failed by itself, and before a new checkpoint"
    if fruitless > limits.restarts:
        return after, f"{_counted(fruitless, 'start')} in a row saved no checkpoint"
    return after, ""


class Supervisor:
    """Runs one job; see the module.

    Args:
        launcher: starts the job.
        hosts: returns the hosts that the job may use, which may change.
        limits: the job's.
        file: keeps the state.
        say: prints one line for an event.
        clock: returns seconds.
        sleep: waits for seconds.
        plans_ahead: whether the first rank searches plans for the starts after a loss.
    """

    def __init__(
        self,
        launcher: MPIRun,
        hosts: Callable[[], Sequence[Host]],
        limits: Limits,
        file: StateFile,
        say: Callable[[str], None] = lambda text: _say(text),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        plans_ahead: bool = False,
    ) -> None:
        self._launcher = launcher
        self._hosts = hosts
        self._limits = limits
        self._file = file
        self._plans_ahead = plans_ahead
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._read: tuple[Host, ...] = ()
        self._silent: frozenset[str] = frozenset()
        self._signal = 0
        self._run: Process | None = None

    def run(self, command: tuple[str, ...]) -> int:
        """Start the job until it ends; return the exit status.

        Args:
            command: the command of each rank, by which the state's file knows the job.
        """
        state = self._file.read(command)
        with self._passed_on_signals():
            while True:
                hosts = self._placed(state)
                if self._signal:
                    return 128 + self._signal
                if hosts is None:
                    return TOO_FEW_STATUS
                state = replace(state, starts=state.starts + 1)
                self._file.write(state)
                ended = self._one_start(state, hosts)
                if isinstance(ended, int):
                    return ended
                state = ended

    def _one_start(self, state: State, hosts: Sequence[Host]) -> State | int:
        """Run the job once; return the state to start it again, or the exit status."""
        devices, begun = _ranks(hosts), self._clock()
        named = ", ".join(map(str, hosts))
        self._say(f"start {state.starts} on {_counted(devices, 'device')}: {named}")
        environment = {
            RESTARTS_VARIABLE: str(state.starts - 1),
            _LOST_VARIABLE: os.environ.get(_LOST_VARIABLE, _LOST_SECONDS),
            **self._ahead(state, hosts),
        }
        run = self._run = self._launcher.start(hosts, environment)
        try:
            is_stopped = self._watch(run, state, hosts)
        except BaseException:
            run.send(signal.SIGTERM)
            raise
        finally:
            self._run = None
        ending = ending_of(run.status() or 0, run.output())
        count = run.checkpoints
        if ending.is_done:
            self._file.remove()
            self._say(f"the script has ended, after {_counted(state.starts, 'start')}")
            return 0
        if is_stopped or self._signal:
            state = replace(state, checkpoints=state.checkpoints + count, fruitless=0, suspect="")
            self._file.write(state)
            if not self._signal:
                return state
            name = signal.Signals(self._signal).name
            self._say(f"the job ends with status {128 + self._signal}, since {name} came")
            return 128 + self._signal
        self._say(
            f"start {state.starts} ended after {self._clock() - begun:.0f} s and "
            f"{_counted(count, 'checkpoint')}: {ending.reason}"
        )
        silent = self._ask([host.name for host in hosts])
        after, reason = after_loss(state, ending, count, bool(silent), self._limits)
        if reason:
            self._file.remove()
            self._say(f"the job ends with status {ending.status}: {reason}")
            return ending.status
        after = self._without_suspect(after, state.suspect, silent)
        self._file.write(after)
        return after

    def _ahead(self, state: State, hosts: Sequence[Host]) -> dict[str, str]:
        """The variable of the first rank that searches plans for the starts after a loss."""
        if not self._plans_ahead:
            return {}
        without = {*state.left_out, *self._silent}
        limits = self._limits
        starts = next_starts(self._read, hosts, without, limits.devices, limits.least_devices)
        if not starts:
            self._say("no plan is searched ahead: no start follows on fewer machines of this one")
        present = tuple(host.slots for host in hosts)
        return {PLAN_AHEAD_VARIABLE: write_starts((present, *starts) if starts else ())}

    def _without_suspect(self, after: State, suspect: str, silent: frozenset[str]) -> State:
        """Leave a host out if two starts in a row were lost there, and the rest is enough."""
        hosts = self._known()
        name = next((host.name for host in hosts if _label(host.name) == after.suspect), "")
        rest = placement(hosts, {name, *after.left_out, *silent}, self._limits.devices)
        is_enough = _ranks(rest) >= self._limits.least_devices
        if not name or after.suspect != suspect or name in silent or not is_enough:
            return after
        self._say(f"{name} is left out: two starts in a row were lost there")
        return replace(after, left_out=(*after.left_out, name), suspect="")

    def _placed(self, state: State) -> tuple[Host, ...] | None:
        """The hosts of the next start; None if too few answer in time."""
        begun, is_told = self._clock(), False
        while not self._signal:
            hosts = self._known()
            silent = self._ask([host.name for host in hosts])
            placed = placement(hosts, {*silent, *state.left_out}, self._limits.devices)
            if placed and _ranks(placed) >= self._limits.least_devices:
                return placed
            counts = f"{_ranks(placed)} of at least {self._limits.least_devices} devices answer"
            if self._clock() - begun >= self._limits.wait_seconds:
                self._say(f"the job ends with status {TOO_FEW_STATUS}: {counts}")
                return None
            if not is_told:
                self._say(f"{counts}: waits for more, {self._limits.wait_seconds:g} s at most")
                is_told = True
            self._sleep(min(_WAIT_SECONDS, self._limits.wait_seconds))
        return None

    def _known(self) -> Sequence[Host]:
        """The hosts that the job may use; those of before if they cannot be read now."""
        try:
            self._read = tuple(self._hosts())
        except OptionError as error:
            if not self._read:
                raise
            self._say(f"the hosts stay as they are: {error}")
        return self._read

    def _ask(self, names: Sequence[str]) -> frozenset[str]:
        """The hosts that do not answer; a line for each that did before, or does again."""
        silent = frozenset(names) - self._launcher.answering(names)
        for name in sorted(silent - self._silent):
            self._say(f"{name} does not answer and is left out")
        for name in sorted((self._silent - silent) & frozenset(names)):
            self._say(f"{name} answers again")
        self._silent = (self._silent - frozenset(names)) | silent
        return silent

    def _watch(self, run: Process, state: State, hosts: Sequence[Host]) -> bool:
        """Wait for the end of a start; return whether it was stopped to start on more devices."""
        asked, due = None, self._clock() + _PROBE_SECONDS
        saved_before: int | None = None  # checkpoints when more devices were there
        stopped_at: float | None = None
        with ThreadPoolExecutor(1) as thread:
            while run.status() is None:
                self._sleep(_POLL_SECONDS)
                now = self._clock()
                if stopped_at is not None:
                    if now - stopped_at > _STOP_SECONDS:
                        run.send(signal.SIGKILL)
                elif saved_before is not None:
                    if run.checkpoints > saved_before and not self._signal:
                        self._say("a checkpoint is saved: the job stops to start on more devices")
                        run.send(signal.SIGTERM)
                        stopped_at = now
                elif asked is not None and asked.done():
                    if self._may_grow(state, hosts, asked.result()):
                        saved_before = run.checkpoints
                    asked = None
                elif asked is None and now >= due:
                    due = now + _PROBE_SECONDS
                    asked = self._question(thread, state, hosts)
        return stopped_at is not None

    def _question(
        self, thread: ThreadPoolExecutor, state: State, hosts: Sequence[Host]
    ) -> Future[frozenset[str]] | None:
        """While the job runs, ask unused hosts whether they answer; None if there are none."""
        used = {host.name for host in hosts}
        known = self._known()
        if _ranks(placement(known, state.left_out, self._limits.devices)) <= _ranks(hosts):
            return None
        names = [host.name for host in known if host.name not in {*used, *state.left_out}]
        return thread.submit(self._launcher.answering, names)

    def _may_grow(self, state: State, hosts: Sequence[Host], answering: frozenset[str]) -> bool:
        """Whether more ranks have a host, now that these hosts answer; a line if so."""
        used = {host.name for host in hosts}
        known = self._known()
        without = {host.name for host in known} - used - answering
        more = _ranks(placement(known, {*without, *state.left_out}, self._limits.devices))
        if more <= _ranks(hosts):
            return False
        names = ", ".join(sorted(answering))
        self._silent -= answering
        self._say(f"{names} can be used: the next checkpoint takes it to {more} devices")
        return True

    @contextmanager
    def _passed_on_signals(self) -> Iterator[None]:
        """A context in which SIGTERM and SIGINT go to the launcher, and end the job."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def pass_on(number: int, frame: FrameType | None) -> None:
            del frame
            self._signal = number
            if self._run is not None:
                self._run.send(number)

        before = {each: signal.signal(each, pass_on) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _ranks(hosts: Sequence[Host]) -> int:
    return sum(host.slots for host in hosts)


def _label(name: str) -> str:
    """A host's name without its domain, as launchers and ranks print it."""
    return name.partition(".")[0]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say(text: str) -> None:
    sys.stderr.write(f"tensoropt run: {text}\n")
    sys.stderr.flush()
