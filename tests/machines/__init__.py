"""Simulated machines on this one, joined by links of any rate, delay and loss.

``python -m tests.machines run --machines 2 --ranks 4 -- python train.py`` runs a job over them.
"""

from __future__ import annotations

from tests.machines.available import why_not
from tests.machines.jobs import Ended, Job
from tests.machines.links import Link
from tests.machines.machines import Machine, Machines, MachinesError, machines
from tests.machines.processes import Process

__all__ = [
    "Ended",
    "Job",
    "Link",
    "Machine",
    "Machines",
    "MachinesError",
    "Process",
    "machines",
    "why_not",
]
