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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal, TextIO, TypeAlias

from tensoropt.elastic.hosts import Host
from tensoropt.elastic.rank_variables import CONTROL_LINE, THREADS_VARIABLE
from tensoropt.errors import OptionError

__all__ = ["BINDINGS", "Binding", "Cores", "MPIRun", "Process", "mpirun"]

Binding = Literal["none", "core", "socket"]
BINDINGS: tuple[Binding, ...] = ("none", "core", "socket")

_OPEN_MP = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores that each rank may use, and its threads.

    Attributes:
        threads: number of threads of a rank; None if the ranks of a machine share its cores.
        binding: "core" binds a rank to as many cores as it has threads, one by default; "socket"
            to the cores of one processor; "none" to no cores.
    """

    threads: int | None = None
    binding: Binding = "none"

    def of_mpich(self) -> list[str]:
        """The options of MPICH's launcher, which binds no rank by default."""
        if self.binding == "none":
            return []
        width = f":{self.threads or 1}" if self.binding == "core" else ""
        return ["-bind-to", f"{self.binding}{width}"]

    def of_open_mpi(self) -> list[str]:
        """The options of Open MPI's launcher, which binds one or two ranks to a core by default."""
        place = f"slot:PE={self.threads or 1}" if self.binding == "core" else ""
        level = "package" if self.binding == "socket" else self.binding  # its name since version 5
        return ["--bind-to", level, "--map-by", f"{place}:OVERSUBSCRIBE"]

    def variables(self) -> dict[str, str]:
        """The environment of a rank. A number of OpenMP's threads that is set already stays."""
        if self.threads is None:
            return {}
        threads = str(self.threads)
        return {THREADS_VARIABLE: threads, _OPEN_MP: os.environ.get(_OPEN_MP, threads)}


_PROBE_SECONDS = 20.0  # a login takes seconds; a machine that is off answers never
_TERMINATION_SECONDS = 2.0
_TAIL_BYTES = 1 << 16  # of output, from which the reason of an end is read
_CARRIED = ("COLLECTIVES_", "MPIR_CVAR_", "OMP_", "TENSOROPT_", "TF_", "UCX_")
_ALSO_CARRIED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "PYTHONUNBUFFERED")

_Write: TypeAlias = Callable[[TextIO, bytes], object]


class MPIRun:
    """Starts jobs on hosts by ``mpirun``.

    Args:
        command: the command of each rank.
        write: receives this process's stream for each piece of the ranks' output, and the piece,
            without control lines; by default the stream gets the piece.
        cores: the cores and threads of each rank.
        variables: further environment variables of each rank.
    """

    def __init__(
        self,
        command: Sequence[str],
        write: _Write = lambda *output: _pass_on(*output),
        cores: Cores = Cores(),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._command = tuple(command)
        self._cores = cores
        self._variables = {**cores.variables(), **(variables or {})}
        self._write = write
        self._mpirun = mpirun()
        version = subprocess.run([self._mpirun, "--version"], capture_output=True, text=True)
        self._is_open_mpi = "open-mpi" in version.stdout.lower().replace(" ", "-")

    def start(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> Process:
        """Start the job, with the number of ranks of each host and these variables."""
        whole = {**os.environ, **self._variables, **environment}
        return Process([*self.launch(hosts, whole), *self._command], whole, self._write)

    def launch(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> list[str]:
        """The command line before the command of each rank."""
        ranks = str(sum(host.slots for host in hosts))
        named = [f"{host.name}:{host.slots}" for host in hosts if host.name]
        if not self._is_open_mpi:
            on = ["-hosts", ",".join(named)] if named else []
            return [self._mpirun, *self._cores.of_mpich(), *on, "-np", ranks]
        carried = [
            name
            for name in sorted(environment)
            if name in _ALSO_CARRIED or name.startswith(_CARRIED)
        ]
        return [
            *(self._mpirun, *self._cores.of_open_mpi()),
            *(["--host", ",".join(named)] if named else []),
            *(part for name in carried for part in ("-x", name)),
            *("-np", ranks),
        ]

    def answering(self, names: Sequence[str]) -> frozenset[str]:
        """The hosts on which ``true`` ends well now. This machine answers always."""
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


class Process:
    """A start of a job: the launcher's process.

    MPICH's launcher writes the signal that ended a rank to standard output.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], write: _Write
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        out, errors = self._process.stdout, self._process.stderr
        assert out is not None
        assert errors is not None
        self._streams = [
            _Stream(out, partial(write, sys.stdout)),
            _Stream(errors, partial(write, sys.stderr)),
        ]

    @property
    def checkpoints(self) -> int:
        """The number of checkpoints that the ranks have saved so far."""
        return sum(stream.control_lines for stream in self._streams)

    def status(self) -> int | None:
        """The launcher's exit status, negative for a signal; None while it runs."""
        status = self._process.poll()
        if status is not None:
            for stream in self._streams:
                # A process that outlives the launcher may hold a pipe open.
                stream.thread.join(_TERMINATION_SECONDS)
        return status

    def output(self) -> str:
        """The end of standard output and error. Complete once the launcher has ended."""
        return "".join(stream.tail.decode("utf-8", "replace") for stream in self._streams)

    def send(self, number: int) -> None:
        """Send the launcher a signal, which it passes on to the ranks."""
        self._process.send_signal(number)


class _Stream:
    """A pipe that a thread reads and passes on without control lines.

    If nobody reads what is passed on any more (``tensoropt run ... | head``), the rest is dropped:
    the job goes on, and its checkpoints are counted.

    Attributes:
        tail: the last bytes that were passed on.
        control_lines: the number of control lines.
        thread: the thread, which ends with the content.
    """

    def __init__(self, pipe: IO[bytes], write: Callable[[bytes], object]) -> None:
        self.tail, self.control_lines = b"", 0
        self._pipe, self._write = pipe, write
        self.thread = threading.Thread(target=self._read, name="output of ranks", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        held = b""  # the start of what may be a control line
        with self._pipe:
            while True:
                content = os.read(self._pipe.fileno(), _TAIL_BYTES)
                held += content
                self.control_lines += held.count(CONTROL_LINE)
                held = held.replace(CONTROL_LINE, b"")
                cut = held.rfind(CONTROL_LINE[:1]) if content else -1
                if cut < 0 or not CONTROL_LINE.startswith(held[cut:]):
                    cut = len(held)
                passed, held = held[:cut], held[cut:]
                if passed:
                    self.tail = (self.tail + passed)[-_TAIL_BYTES:]
                    try:
                        self._write(passed)
                    except BrokenPipeError:
                        self._write = lambda _: None
                if not content:
                    return


def _pass_on(stream: TextIO, content: bytes) -> None:
    stream.buffer.write(content)
    stream.flush()


def mpirun() -> str:
    """The path of ``mpirun``: beside the interpreter, otherwise on PATH.

    Raises:
        OptionError: if there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    path = str(beside) if beside.exists() else shutil.which("mpirun")
    if path is None:
        raise OptionError(
            "ranks are started by mpirun. Got none beside the interpreter and none on PATH. "
            "Install it with: pip install 'tensoropt[mpi]'"
        )
    return path
