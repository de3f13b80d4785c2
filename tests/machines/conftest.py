"""Two machines, and programs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import RANK_ENV, python_path
from tests.machines import Ended, Link, Machines, machines

__all__ = ["Pair"]

_LIMIT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two machines.

    Attributes:
        machines: both.
        interpreter: the command that stands for Python, see ``tests/forkserver/``.
        one_job: a context in which no other test's ranks run.
    """

    machines: Machines
    interpreter: list[str | Path]
    one_job: Callable[[], AbstractContextManager[None]]

    def mpirun(self, ranks: int, program: Path, *arguments: str | Path) -> Ended:
        """Run a program with as many ranks on each machine; return its end."""
        command = [*self.interpreter, program, *arguments]
        env = {**RANK_ENV, **python_path()}
        with self.one_job():
            return self.machines.mpirun(ranks, command, env=env).wait(_LIMIT_SECONDS)


@pytest.fixture
def pair(
    _interpreter: Callable[..., list[str | Path]],
    one_job: Callable[[], AbstractContextManager[None]],
) -> Iterator[Pair]:
    """Two machines, joined by 1 Gbit/s."""
    with machines(2, Link.parse("rate 1gbit")) as made:
        yield Pair(made, _interpreter(2, False), one_job)
