"""The peak of a rank that runs whole batches of its own is predicted before the first one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished

PROGRAM = Path(__file__).with_name("own_peaks_program.py")
ERROR = 0.2  # Kernels may run in another order, and chunks of memory are larger than tensors.


def test_predicted_peaks_of_whole_batches_are_the_measured_ones(
    mpirun: Callable[..., Finished],
) -> None:
    # Without this allocator, statistics leave tensors of less than 256 KiB out.
    env = {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPU_ALLOCATOR_USE_BFC": "true"}
    finished = mpirun(2, PROGRAM, env=env)
    assert finished.returncode == 0, finished.stderr
    line = next(line for line in finished.stdout.splitlines() if line.startswith("{"))
    found = json.loads(line)
    assert len(found) == 4
    for name, (predicted, measured) in found.items():
        assert predicted == pytest.approx(measured, rel=ERROR), name
