"""No test of the planner leaves a job to the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tensoropt as tf


@pytest.fixture(autouse=True)
def _no_job_stays() -> Iterator[None]:
    yield
    tf.shutdown()
