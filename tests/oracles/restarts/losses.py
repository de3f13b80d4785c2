"""Losses of a rank of one machine, or of a machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.machines import Machines
from tests.oracles.restarts.training import DOORS

__all__ = ["Case", "Loss", "draw_cases"]

RANK_FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
MACHINE_FAULTS = ("off", "down", "stop", "end")
COMES_BACK = {"off": Machines.on, "down": Machines.up}
SHAPES = (0, 2, 3)
"""Numbers of machines with one rank each; 0 is this machine with two ranks."""
MOST_STEPS = 12
LOSSES_OF_A_JOB = 3


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss in one start of a job.

    Attributes:
        fault: a key of `RANK_FAULTS`, or one of `MACHINE_FAULTS`.
        steps: steps of the start before the fault; 0 for a fault before the first one.
        delay_seconds: time from the last of these steps, or from the start of the ranks.
        target: the rank, or the machine's position.
    """

    fault: str
    steps: int
    delay_seconds: float
    target: int

    def __str__(self) -> str:
        return f"{self.fault} {self.target} after {self.steps}"

    def strike(self, folder: Path, start: int, made: Machines | None) -> None:
        """Cause the fault."""
        if made is None:
            process = int((folder / f"{start}.{self.target}").read_text())
            os.kill(process, RANK_FAULTS[self.fault])
        else:
            fault = {"off": Machines.off, "down": Machines.down, "stop": Machines.stop}
            fault.get(self.fault, Machines.end)(made, made.nodes[self.target])

    def bring_back(self, made: Machines) -> None:
        """Bring a machine back whose link was lost."""
        COMES_BACK[self.fault](made, made.nodes[self.target])


@dataclass(frozen=True, slots=True)
class Case:
    """A job and its losses, one in each start.

    Attributes:
        door: a key of `DOORS`.
        machines: see `SHAPES`.
        losses: in order.
        is_reversed: whether the first rank is on the last machine.
    """

    door: str
    machines: int
    losses: tuple[Loss, ...]
    is_reversed: bool

    @property
    def ranks(self) -> int:
        """The most ranks of the job."""
        return self.machines or 2

    def __str__(self) -> str:
        where = f"{self.machines} machines" if self.machines else "2 ranks"
        return f"{self.door}, {where}: {', '.join(map(str, self.losses))}"


def draw_cases(losses: int, seed: int) -> list[Case]:
    """Cases with so many losses together, over all doors and shapes in turns."""
    random = np.random.default_rng(seed)
    cases: list[Case] = []
    left = losses
    while left > 0:
        doors, number = list(DOORS), len(cases)
        machines = SHAPES[number // len(doors) % len(SHAPES)]
        count = min(left, 1 if machines else LOSSES_OF_A_JOB)
        drawn = tuple(_draw(random, machines) for _ in range(count))
        cases.append(Case(doors[number % len(doors)], machines, drawn, bool(random.integers(2))))
        left -= count
    return cases


def _draw(random: np.random.Generator, machines: int) -> Loss:
    faults: Sequence[str] = MACHINE_FAULTS if machines else tuple(RANK_FAULTS)
    return Loss(
        fault=str(random.choice(faults)),
        steps=int(random.integers(MOST_STEPS + 1)),
        delay_seconds=float(random.uniform(0, 0.5)),
        target=int(random.integers(1, machines) if machines else random.integers(2)),
    )
