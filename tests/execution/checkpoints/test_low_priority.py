"""Work at a low priority is done in a thread of its own."""

from __future__ import annotations

import os
import threading

import pytest

from tensoropt.execution.checkpoints.low_priority import at_low_priority


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_work_has_a_low_priority_and_its_caller_the_usual_one() -> None:
    before = niceness()
    assert at_low_priority(niceness) == 19
    assert niceness() == before


def test_an_error_of_the_work_is_raised() -> None:
    def fail() -> None:
        raise FileNotFoundError("checkpoint")

    with pytest.raises(FileNotFoundError, match="checkpoint"):
        at_low_priority(fail)
