"""Jobs of a benchmark on simulated machines, by the names of their shapes and links."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from tests.machines import Link, machines

__all__ = ["LINKS", "SHAPES", "RunJob", "jobs_on"]

SHAPES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"2x1": (2, 1), "2x2": (2, 2), "4x1": (4, 1)}
)
"""For each name the number of machines and of ranks on each."""

LINKS: Mapping[str, Link] = MappingProxyType(
    {
        f"{rate}-{delay}": Link.parse(f"rate {rate} delay {delay}")
        for rate in ("10gbit", "1gbit", "100mbit")
        for delay in ("0.1ms", "1ms")
    }
)
"""For each name the rate and the delay between two machines."""

RunJob = Callable[[Sequence[object], Mapping[str, str]], None]
"""Runs Python with some arguments on every rank, with further environment variables."""

_LIMIT_SECONDS = 1800.0


@contextmanager
def jobs_on(shape: str, link: str) -> Iterator[RunJob]:
    """Make machines, and yield the function that runs jobs on them.

    A job raises RuntimeError if it fails.

    Args:
        shape: a key of `SHAPES`.
        link: a key of `LINKS`.
    """
    count, ranks = SHAPES[shape]
    with tempfile.TemporaryDirectory() as folder, machines(count, LINKS[link]) as made:
        common = {
            # Links that were kept are those of other machines: all have the same names.
            "TENSOROPT_PROFILES": folder,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path])),
        }

        def run(program: Sequence[object], environment: Mapping[str, str]) -> None:
            command = [sys.executable, *map(str, program)]
            job = made.mpirun(ranks, command, env={**common, **environment})
            ended = job.wait(_LIMIT_SECONDS)
            if ended.status:
                raise RuntimeError(f"a job ends well. Got {ended.status}:\n{ended.stderr}")

        yield run
