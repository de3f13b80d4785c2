"""What every test shares: quiet libraries, reproducible Hypothesis runs, programs of their own.

Hypothesis draws the same examples in every run, so that a commit passes or fails for its own
reasons; ``HYPOTHESIS_PROFILE=explore`` draws new ones.
"""

from __future__ import annotations

import os

# NumPy reads this when it is imported: no thread may run when workers are forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import contextlib
import fcntl
import gc
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, settings

from tensoropt.elastic.launcher import mpirun as mpirun_path
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.planner.kernels import load_kernels
from tensoropt.tensor_spec import TensorSpec
from tests.machines import why_not

ROOT = Path(__file__).resolve().parent.parent
FORKSERVER = ROOT / "tests" / "forkserver"

# The process that collects tests; workers are its forks.
_OWNER = os.getpid()

pytest_plugins = ["tests.workers"]

# TensorFlow reads this when it is first imported, which no test has done yet.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow's default where the processor has AVX-512 or better; its other kernels take fewer
# layouts, and its other allocator counts nothing.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# What the machine's owner has measured is not for tests to plan with.
os.environ["TENSOROPT_PROFILE"] = "none"
# Nor are the plans that the user's own runs have kept, and tests keep none there.
os.environ["TENSOROPT_PLANS"] = "none"
# Nor does the load of the machine's cores change plans.
os.environ["TENSOROPT_RANK_SPEEDS"] = "equal"

# Tests see every line of ranks, without a process that filters them; those of the filter unset it.
os.environ["TENSOROPT_VERBOSE"] = "1"

# MPICH's launcher leaves a file in /tmp when a job is aborted, unless this variable is set.
os.environ.setdefault("HWLOC_XMLFILE", "")

# Ranks share the machine's cores: a thread pool as wide as the machine in each would swamp it.
RANK_ENV = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
    ),
    "1",
)
# Unbuffered, print() writes a line in pieces, and the launcher mixes those of several ranks.
RANK_ENV["PYTHONUNBUFFERED"] = ""
# A rank that waits leaves its core to other tests, too.
RANK_ENV["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
TERMINATION_SECONDS = 2.0

# Times on a shared machine say nothing about a test's examples.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "repeatable", settings.get_profile("explore"), derandomize=True, max_examples=50
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: exit status, what it wrote, and how long it took."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests on simulated machines where the system makes none."""
    return True if collection_path == ROOT / "tests" / "machines" and why_not() else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that tests on simulated machines were left out, and why."""
    reason = why_not()
    if reason:
        terminalreporter.write_line(f"NOT TESTED: jobs over several machines, since {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start ranks and put them first, see ``tests/workers.py``."""
    for item in items:
        if "mpirun" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.mpi)
    items.sort(key=lambda item: item.get_closest_marker("mpi") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what has been imported out of Python's garbage collections, and have fewer of them.

    TensorFlow's modules are a million objects, and its graphs as many: a twentieth of the time.
    Workers share it, and the compiled kernels of planning.
    """
    if session.config.option.workers > 1:
        load_kernels()
    gc.collect()
    gc.freeze()
    gc.set_threshold(7_000)


@pytest.fixture(scope="session")
def chain() -> Callable[..., Graph]:
    """``chain("Exp", ...)``: a small training step, made without TensorFlow.

    ``x`` times ``w`` (``product``), then unary operators of these types under their names in
    lower case, the ``loss`` of the last, and its gradient by ``w`` (``dw``). Every tensor but the
    loss has 1 KB.
    """
    rows, scalar = TensorSpec((16, 16), "float32"), TensorSpec((), "float32")

    def operator(
        name: str, kind: str, inputs: list[Operator], spec: TensorSpec = rows, **fields: object
    ) -> Operator:
        return Operator(
            name=name,
            type=kind,
            inputs=tuple(TensorName(each.name, 0) for each in inputs),
            input_specs=tuple(each.outputs[0] for each in inputs),
            outputs=(spec,),
            **fields,  # type: ignore[arg-type]
        )

    def make(*kinds: str) -> Graph:
        x = operator("x", "Placeholder", [])
        w = operator("w", "VariableV2", [], attributes={"dtype": "float32"})
        matmul = {"transpose_a": False, "transpose_b": False}
        operators = [x, w, operator("product", "MatMul", [x, w], attributes=matmul)]
        for kind in kinds:
            operators.append(operator(kind.lower(), kind, [operators[-1]]))
        loss = operator("loss", "L2Loss", [operators[-1]], scalar)
        tag = GradientTag(0, "dense", (TensorName("loss", 0),), TensorName("w", 0), (None,), (), ())
        gradient = operator("dw", GRADIENT, [], gradient=tag)
        return Graph({each.name: each for each in [*operators, loss, gradient]})

    return make


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this session share, and no other session."""
    folder = tmp_path_factory.getbasetemp() / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold a file locked, whatever the workers."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def _interpreter(_shared: Path) -> Callable[..., list[str | Path]]:
    """``_interpreter(count, fresh)``: the command that stands for Python in up to so many ranks.

    Unless it is to be fresh, a program is run in a fork of an interpreter that has imported
    TensorFlow, which is ten times as fast. There are two of them, for even and odd ranks, as ranks
    differ in the order of sets.
    """

    def command(count: int, fresh: bool) -> list[str | Path]:
        if fresh:
            return [sys.executable]
        with _held(_shared / "servers.lock"):
            for number in range(min(count, 2)):
                if not (_shared / str(number)).exists():
                    _start_server(_shared, number, _OWNER)
        return [sys.executable, "-I", "-S", FORKSERVER / "client.py", _shared]

    return command


def _start_server(folder: Path, number: int, owner: int) -> None:
    """Return once the server listens; it ends with its owner."""
    with (folder / f"{number}.log").open("w+") as log:
        command: list[str | Path] = [sys.executable, FORKSERVER / "server.py"]
        command += [str(number), str(owner)]
        environment = {**os.environ, **RANK_ENV, **python_path()}
        status = subprocess.call(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        if status:
            log.seek(0)
            raise RuntimeError(f"A server for ranks has to start. Got:\n{log.read()}")


@pytest.fixture(scope="session")
def one_job(_shared: Path) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """``one_job()``: a context in which no other test's ranks run."""
    return lambda: _held(_shared / "mpirun.lock")


@pytest.fixture(scope="session")
def mpirun(
    _interpreter: Callable[..., list[str | Path]],
    one_job: Callable[[], contextlib.AbstractContextManager[None]],
) -> Callable[..., Finished]:
    """``mpirun(np, program, *args, timeout=600.0, env=None, fresh=False, waits=False)``: a Python
    program on ``np`` ranks.

    ``program`` is a file, or an option of the interpreter (``"-c"`` or ``"-m"``) whose value comes
    first in ``args``; ``env`` is added to this process's environment. ``fresh`` interpreters have
    imported nothing, and the launcher starts them itself. Returns how the program ended, whatever
    its exit status. A run longer than ``timeout`` seconds is killed, ranks included, and raises
    ``TimeoutError`` with what it had written. One run happens at a time, but for those whose ranks
    do little else than ``waits``: others run beside them.
    """
    launcher = mpirun_path()

    def run(
        np: int,
        program: str | Path,
        *args: str | Path,
        timeout: float = 600.0,
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
        waits: bool = False,
    ) -> Finished:
        interpreter = _interpreter(np, fresh)
        command = [launcher, "-np", str(np), *map(str, [*interpreter, program, *args])]
        whole_env = {**os.environ, **RANK_ENV, **python_path(), **(env or {})}
        with contextlib.nullcontext() if waits else one_job():
            return _run(command, timeout, whole_env)

    return run


@pytest.fixture(scope="session")
def python(_interpreter: Callable[..., list[str | Path]]) -> Callable[..., Finished]:
    """``python(program, *args, timeout=600.0, env=None, cwd=None, fresh=False)``: the same in one
    process, and without a launcher; ``cwd`` is the folder in which it runs."""

    def run(
        program: str | Path,
        *args: str | Path,
        timeout: float = 600.0,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        fresh: bool = False,
    ) -> Finished:
        command = [*map(str, [*_interpreter(1, fresh), program, *args])]
        return _run(command, timeout, {**os.environ, **python_path(), **(env or {})}, cwd)

    return run


def python_path() -> dict[str, str]:
    """The repository's root comes first, so that programs import the code under test."""
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *([inherited] if inherited else [])])}


def _run(
    command: list[str], timeout: float, env: Mapping[str, str], cwd: Path | None = None
) -> Finished:
    # Files, not pipes: a rank that outlives its launcher would hold a pipe open, and us with it.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            # Also on a test's own time-out or an interrupt: no rank may stay behind.
            if process.poll() is None:
                _kill(process)
        seconds = time.monotonic() - start
        stdout, stderr = (_text(file) for file in (out, err))
    if not ended:
        raise TimeoutError(
            f"Expected the ranks to end within {timeout} s. Got no end: killed after "
            f"{seconds:.1f} s.\n$ {' '.join(command)}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    return Finished(process.returncode, stdout, stderr, seconds)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a launcher and everything under it.

    MPICH's launcher gives each rank a session of its own, out of reach of a signal to the group.
    Asked politely it ends its ranks; those that it leaves are looked up beforehand and killed.
    """
    below = _descendants(process.pid)
    _signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(TERMINATION_SECONDS)
    except subprocess.TimeoutExpired:
        below |= _descendants(process.pid)
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
    for pid in below:
        _signal_group(pid, signal.SIGKILL)


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that ``pid`` leads; one that is gone or leads none needs no signal."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _descendants(ancestor: int) -> set[int]:
    """Processes below ``ancestor``, read from /proc; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state parent ...", where the name may itself hold blanks and brackets.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended between the listing and the reading.
        children.setdefault(parent, []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found
