"""Random strategies with pieces in proportion to the speeds of devices, against one device."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.execution.test_uneven_pieces import lookups
from tests.oracles.equality.in_proportion import BAR, BUILDERS, error_of


@pytest.mark.parametrize(("model", "devices"), [("mlp", 3), ("lookups", 4), ("mlp", 6)])
def test_training_equals_one_device(model: str, devices: int) -> None:
    script = lookups(12) if model == "lookups" else BUILDERS[model](tf.float64)
    assert error_of(script, devices, 1) <= BAR
