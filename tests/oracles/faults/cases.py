"""The faults, and the expected end of each job."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracles.faults.training import FAULTS, PHASES

__all__ = ["Case", "cases"]

HERE = Path(__file__).parent
WATCHED: Mapping[str, str] = {"COLLECTIVES_WARN_SECONDS": "2", "COLLECTIVES_ABORT_SECONDS": "10"}
AT_FOUR_RANKS = ("raises", "killed", "stopped")
LIMIT_SECONDS = 25.0  # seconds from the fault: ten of the watchdog, its messages, a slow machine


@dataclass(frozen=True, slots=True)
class Case:
    """A fault and the expected end of its job.

    Attributes:
        name: name of the case, for readers.
        ranks: number of ranks of the job.
        program: a script and its arguments.
        words: texts that the output has at least once.
        once: a text that the output has exactly once.
        never: a text that the output does not have.
        status: exit status of the launcher; None for any but 0.
        limit_seconds: most seconds from the fault to the end.
        env: variables that are added to the environment.
        strike: called with the launcher's process group if the fault comes from outside.
        is_noted: whether the program makes the file ``struck`` when its fault happens.
    """

    name: str
    ranks: int
    program: tuple[str | Path, ...]
    words: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    never: tuple[str, ...] = ("Exception ignored",)
    status: int | None = None
    limit_seconds: float = LIMIT_SECONDS
    env: Mapping[str, str] = field(default_factory=lambda: WATCHED)
    strike: Callable[[int], None] | None = None
    is_noted: bool = False


def cases() -> list[Case]:
    """All cases: each fault in each phase, and the faults that users met."""
    found = [_in_a_phase(fault, phase, 2) for phase in PHASES for fault in FAULTS]
    found += [_in_a_phase(fault, phase, 4) for phase in PHASES for fault in AT_FOUR_RANKS]
    return [*found, *_met(), *_interrupts(6)]


def _met() -> list[Case]:
    """The faults that users met."""

    def case(name: str, ranks: int = 2, **ends: Any) -> Case:
        return Case(f"{name}, {ranks} ranks", ranks, (HERE / "met.py", name), **ends)

    goes_on: dict[str, Any] = {"words": ("replicas are equal",), "status": 0}
    left_out = {
        **goes_on,
        "words": ("replicas are equal", "rank 0 leaves out", "rank 1 leaves out"),
    }
    copies: dict[str, Any] = {"words": ("TENSOROPT_ALLOW_COPIES",)}
    fed = ("'features'", "rank 1")
    fuzzed = ("-m", "tests.oracles.fuzz_files", "--files", "300")
    return [
        case("skips_what_is_not_a_number", **left_out),
        case("skips_what_is_not_a_number", 4, **left_out),
        case("skips_what_a_python_function_refuses", **left_out),
        case("skips_what_an_assertion_refuses", **left_out),
        case("skips_what_a_kernel_refuses", once=("ends the job",)),
        case("is_started_alone", words=("the start of MPI",), limit_seconds=60.0),
        case("drops_out_in_a_loop", **goes_on, limit_seconds=60.0),
        case("feeds_other_batches", words=fed, once=("ends the job",)),
        case("feeds_other_batches", 4, words=("'features'",), once=("ends the job",)),
        case("leaves_out_a_step", words=fed, once=("ends the job",)),
        case("trains_in_a_plain_session", **copies),
        case("trains_with_a_tape", **copies),
        case("trains_in_a_function", **copies),
        case("trains_with_keras", once=("ends the job",)),
        case("reads_strings", words=("strings were read",), status=0),
        case("catches_a_failed_save", **goes_on),
        case("catches_a_failed_save", 4, **goes_on),
        Case("damaged files", 1, fuzzed, words=('"others": 0',), status=0, limit_seconds=120.0),
    ]


def _interrupts(count: int) -> list[Case]:
    """Ctrl-C at random moments of training."""

    def late(group: int) -> None:
        time.sleep(random.uniform(0, 1))
        _ctrl_c(group)

    program = (HERE / "training.py", "mid_training", "interrupted")
    once = ("ends the job, after KeyboardInterrupt",)
    return [
        Case(f"Ctrl-C {number}, 2 ranks", 2, program, once=once, strike=late, is_noted=True)
        for number in range(count)
    ]


def _in_a_phase(fault: str, phase: str, ranks: int) -> Case:
    rank = 0 if phase in ("in_search", "in_save") else ranks - 1
    program = (HERE / "training.py", phase, fault)
    name = f"{fault}, {phase}, {ranks} ranks"
    return Case(name, ranks, program, **_ends(fault, phase, rank), is_noted=True)


def _ends(fault: str, phase: str, rank: int) -> dict[str, Any]:
    """The expected end of a job with a fault in a phase."""
    if fault == "killed":
        return {"once": ("Killed (signal 9)",), "never": ("Traceback",)}
    if fault == "leaves":
        # MPICH's launcher kills the other ranks, and joins the bits of all ranks' ends in its own
        # status: 7, 9 or 15, by which ends first.
        return {}
    if fault == "stopped":
        return {"words": (f"rank {rank}, which does not answer (stopped", "ABORT_SECONDS=10")}
    if fault == "interrupted":
        return {"once": ("ends the job, after KeyboardInterrupt",), "strike": _ctrl_c}
    if fault == "terminated":
        return {"strike": _terminate}
    if phase == "in_save":
        return {"words": ("checkpoints",), "once": ("ends the job",)}
    if fault == "raises":
        return {"words": (f"a fault on rank {rank}",), "once": ("ends the job",)}
    return {"status": 3} if phase == "at_end" else {"once": ("ends the job",)}


def _ctrl_c(group: int) -> None:
    os.killpg(group, signal.SIGINT)


def _terminate(group: int) -> None:
    os.killpg(group, signal.SIGTERM)
