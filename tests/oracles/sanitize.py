"""``python -m tests.oracles.sanitize``: random driving of the C++ of collectives, under sanitizers.

The driver in ``tests/collectives/native/driver/`` needs no TensorFlow. It runs windows, messages,
collectives and direct reads within a machine, and collectives and messages over connections.
AddressSanitizer and UndefinedBehaviorSanitizer see 2 to 8 processes, and 256 threads.
ThreadSanitizer sees 2 to 8 threads, as it finds no races between processes. The last line is one
JSON object: the number of trials of each kind. A wrong result, a report of a sanitizer, or ranks
that wait for ever are printed, and end with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["compiled", "drive", "main", "sanitize"]

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = ROOT / "tests" / "collectives" / "native" / "driver" / "driver.cc"
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Werror"),
    "thread": ("-fsanitize=thread", "-Wno-error"),  # compilers warn that it knows no fences
}
KINDS = (("address", "processes"), ("address", "many"), ("thread", "threads"))
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:exitcode=77",  # looking for leaks needs the right to trace
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=77:atexit_sleep_ms=0",
}
LIMIT_SECONDS = 600


def compiled(
    folder: Path, level: str = "-O1", names: Sequence[str] = tuple(SANITIZERS)
) -> dict[str, Path]:
    """Compile the driver with sanitizers, all at once; return the programs.

    Args:
        folder: where the programs are written.
        level: optimization of the program that AddressSanitizer sees; ``-O0`` compiles in two
            thirds of the time.
        names: the sanitizers.

    Raises:
        RuntimeError: if the compiler fails, or warns of our code.
    """
    running = {}
    for name in names:
        command = [
            *(os.environ.get("CXX") or "c++").split(),
            # Reports name lines, for which the first level of debugging information does.
            *("-std=c++17", "-g1", "-march=native", "-pthread", "-Wall", "-Wextra"),
            level if name == "address" else "-O1",
            *SANITIZERS[name],
            f"-I{ROOT / 'collectives' / 'native'}",
            *(str(DRIVER), "-o", str(folder / name)),
        ]
        running[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for name, process in running.items():
        _, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"The driver compiles for {name}. Got:\n{errors}")
    return {name: folder / name for name in names}


def drive(program: Path, kind: str, seed: int, seconds: float) -> int:
    """Run the driver; return the number of trials.

    Raises:
        RuntimeError: if a result is wrong, a sanitizer reports, or ranks wait for ever.
    """
    command = [str(program), kind, str(seed), str(seconds)]
    done = _run(command, seconds)
    if "unexpected memory mapping" in done.stderr:  # older ThreadSanitizers, with random addresses
        done = _run(["setarch", "-R", *command], seconds)
    if done.returncode:
        raise RuntimeError(
            f"{kind} work and end. Got status {done.returncode} of {' '.join(command)}:\n"
            f"{done.stderr}"
        )
    return int(done.stdout)


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **OPTIONS}
    limit = seconds + LIMIT_SECONDS
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)


def sanitize(
    seconds: float,
    seed: int = 0,
    level: str = "-O1",
    names: Sequence[str] = tuple(SANITIZERS),
) -> dict[str, int]:
    """Compile and drive; return the number of trials of each kind.

    Args:
        seconds: how long processes, and threads, are driven; 256 ranks take one trial.
        seed: of the first trial; trial n has the seed ``seed + n``.
        level: see `compiled`.
        names: the sanitizers.

    Raises:
        RuntimeError: see `compiled` and `drive`.
    """
    with tempfile.TemporaryDirectory() as folder:
        programs = compiled(Path(folder), level, names)
        return {
            kind: drive(programs[name], kind, seed, 0 if kind == "many" else seconds)
            for name, kind in KINDS
            if name in programs
        }


def main(arguments: list[str] | None = None) -> None:
    """Parse the arguments, drive, and print the trials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        print(json.dumps(sanitize(options.seconds, options.seed)))
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
