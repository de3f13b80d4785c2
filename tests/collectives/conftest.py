"""Eager mode for every test here: TensorOpt's frontend, imported by others, turns it off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tensorflow.python.eager import context


@pytest.fixture(autouse=True)
def _eager_outside_of_graphs() -> Iterator[None]:
    with context.eager_mode():
        yield
