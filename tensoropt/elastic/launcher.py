"""Starts ranks by MPICH's or Open MPI's ``mpirun``, and asks by it whether a host answers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from tensoropt.elastic.control_lines import CONTROL_LINE
from tensoropt.elastic.hosts import Host
from tensoropt.errors import OptionError

__all__ = ["Launcher", "MPIRun", "Run"]

_PROBE_SECONDS = 20.0  # a login takes seconds; a machine that is off answers never
_TERMINATION_SECONDS = 2.0
_TAIL_BYTES = 1 << 16  # of standard error, which the reason of an end is read from
_CARRIED = ("COLLECTIVES_", "MPIR_CVAR_", "OMP_", "TENSOROPT_", "TF_", "UCX_")
_ALSO_CARRIED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "PYTHONUNBUFFERED")


class Run(Protocol):
    """A start of a job."""

    @property
    def checkpoints(self) -> int:
        """The number of checkpoints that the ranks have saved so far."""

    def status(self) -> int | None:
        """The launcher's exit status, negative for a signal; None while it runs."""

    def errors(self) -> str:
        """The end of the standard error. Complete once the launcher has ended."""

    def send(self, number: int) -> None:
        """Send the launcher a signal, which it passes on to the ranks."""


class Launcher(Protocol):
    """Starts jobs on hosts."""

    def start(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> Run:
        """Start the job, with the number of ranks of each host and these variables."""

    def answering(self, names: Sequence[str]) -> frozenset[str]:
        """The hosts on which a process can be started now."""


class MPIRun:
    """`Launcher` by ``mpirun``.

    Args:
        command: the command of each rank.
        write: receives the ranks' standard error without control lines; by default this process's.
    """

    def __init__(
        self, command: Sequence[str], write: Callable[[bytes], object] | None = None
    ) -> None:
        self._command = tuple(command)
        self._write = write or _to_standard_error
        self._mpirun = _mpirun()
        version = subprocess.run([self._mpirun, "--version"], capture_output=True, text=True)
        self._is_open_mpi = "open-mpi" in version.stdout.lower().replace(" ", "-")

    def start(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> _Process:
        """Start the job; see `Launcher`."""
        whole = {**os.environ, **environment}
        return _Process([*self.launch(hosts, whole), *self._command], whole, self._write)

    def launch(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> list[str]:
        """The command line before the command of each rank."""
        ranks = str(sum(host.slots for host in hosts))
        named = [f"{host.name}:{host.slots}" for host in hosts if host.name]
        if not self._is_open_mpi:
            return [self._mpirun, *(["-hosts", ",".join(named)] if named else []), "-np", ranks]
        carried = [
            name
            for name in sorted(environment)
            if name in _ALSO_CARRIED or name.startswith(_CARRIED)
        ]
        return [
            *(self._mpirun, "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"),
            *(["--host", ",".join(named)] if named else []),
            *(part for name in carried for part in ("-x", name)),
            *("-np", ranks),
        ]

    def answering(self, names: Sequence[str]) -> frozenset[str]:
        """The hosts on which ``true`` ends well; see `Launcher`. This machine answers always."""
        asked = [name for name in names if name]
        if not asked:
            return frozenset(names)
        with ThreadPoolExecutor(len(asked)) as threads:
            answers = dict(zip(asked, threads.map(self._answers, asked), strict=True))
        return frozenset(name for name in names if not name or answers[name])

    def _answers(self, name: str) -> bool:
        process = subprocess.Popen(
            [*self.launch([Host(name, 1)], {}), "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(_PROBE_SECONDS) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False


class _Process:
    """`Run` of a launcher's process; a thread passes its standard error on."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        write: Callable[[bytes], object],
    ) -> None:
        self.checkpoints = 0
        self._tail = b""
        self._write = write
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="standard error", daemon=True)
        self._reader.start()

    def status(self) -> int | None:
        """See `Run`."""
        status = self._process.poll()
        if status is not None:
            # A process that outlives the launcher may hold the pipe open.
            self._reader.join(_TERMINATION_SECONDS)
        return status

    def errors(self) -> str:
        """See `Run`."""
        return self._tail.decode("utf-8", "replace")

    def send(self, number: int) -> None:
        """See `Run`."""
        self._process.send_signal(number)

    def _read(self) -> None:
        assert self._process.stderr is not None
        held = b""  # the start of a line whose rest has not come
        with self._process.stderr as stream:
            while True:
                content = stream.read1(_TAIL_BYTES)  # type: ignore[attr-defined]
                held += content
                self.checkpoints += held.count(CONTROL_LINE)
                held = held.replace(CONTROL_LINE, b"")
                cut = held.rfind(CONTROL_LINE[:1]) if content else -1
                if cut < 0 or not CONTROL_LINE.startswith(held[cut:]):
                    cut = len(held)
                passed, held = held[:cut], held[cut:]
                if passed:
                    self._tail = (self._tail + passed)[-_TAIL_BYTES:]
                    self._write(passed)
                if not content:
                    return


def _to_standard_error(content: bytes) -> None:
    sys.stderr.buffer.write(content)
    sys.stderr.flush()


def _mpirun() -> str:
    """The path of ``mpirun``: beside the interpreter, otherwise on PATH.

    Raises:
        OptionError: if there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    path = str(beside) if beside.exists() else shutil.which("mpirun")
    if path is None:
        raise OptionError(
            "`tensoropt run` starts ranks by mpirun. Got none beside the interpreter and none on "
            "PATH. Install it with: pip install 'tensoropt[mpi]'"
        )
    return path
