"""No job and no graph before and after every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tensoropt

tensoropt.enable_graph_mode()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    tensoropt.reset_default_graph()
    yield
    tensoropt.shutdown()
    tensoropt.reset_default_graph()
