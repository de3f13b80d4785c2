"""The interpreter of ranks that the supervisor starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def rank_interpreter(_interpreter: Callable[..., list[str | Path]]) -> list[str | Path]:
    """The command that stands for Python in two ranks, see ``tests/forkserver/``."""
    return _interpreter(2, False)
