"""Steps whose branches run on several sides, as they are searched, against plain TensorFlow."""

from __future__ import annotations

import pytest

import tensoropt as tf
from tests.oracles.equality import train_plain, worst_error
from tests.oracles.equality.side_by_side import forest, searched, trained
from tests.proofs import proof

tf.enable_graph_mode()


@pytest.mark.parametrize("seed", [proof(1), 2])
def test_many_and_nested_branches_train_as_one_device(seed: int) -> None:
    """Without and with an operator that all branches read."""
    script = forest(seed)
    plan = searched(script, 4)
    assert (plan.schedule, len(plan.stages)) == ("side_by_side", 4)
    assert worst_error(trained(script, plan), train_plain(script)) <= 1e-10
