"""Faults of machines, and the expected end of each job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from tests.machines import Link, Machine, Machines
from tests.oracles.machine_faults.training import PHASES

__all__ = ["ABORT_SECONDS", "Case", "cases"]

ABORT_SECONDS = 10
SHAPES = ((2, 1), (2, 2))
"""Numbers of machines, and of ranks on each."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault of the last machine.

    Attributes:
        fault: a key of `FAULTS`.
        phase: what the last rank does when it happens, from `PHASES`.
        machines: number of machines.
        ranks: number of ranks on each.
    """

    fault: str
    phase: str
    machines: int
    ranks: int

    def __str__(self) -> str:
        return f"{self.fault}, {self.phase}, {self.machines}x{self.ranks}"

    @property
    def loses_machine(self) -> bool:
        """Whether the machine is lost; otherwise the job goes on."""
        return self.fault != "loss"

    @property
    def is_silent(self) -> bool:
        """Whether the machine is lost without a word, so that only other ranks can name it.

        If its processes end, their connections close, and MPICH's launcher ends the job at once.
        """
        return self.fault in ("down", "off", "stopped")

    def strike(self, made: Machines) -> None:
        """Cause the fault."""
        FAULTS[self.fault](made, made.nodes[-1])


FAULTS: Mapping[str, Callable[[Machines, Machine], None]] = {
    "down": Machines.down,
    "loss": lambda made, machine: made.link(Link(loss=0.05), [machine]),
    "off": Machines.off,
    "stopped": Machines.stop,
    "ended": Machines.end,
}


def cases() -> list[Case]:
    """Each fault in each phase, for each shape."""
    return [Case(*what, *shape) for shape in SHAPES for what in product(FAULTS, PHASES)]
