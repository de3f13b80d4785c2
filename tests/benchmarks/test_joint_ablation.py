"""Unity's ablation of dimensions: each way has the one before it, and pipelines all."""

from __future__ import annotations

import itertools

from benchmarks.joint.ablation import figure_15a


def test_no_way_is_slower_than_the_one_that_it_contains() -> None:
    times = figure_15a(2, "mlp")
    assert list(times)[-1] == "pipeline"
    assert all(after <= before for before, after in itertools.pairwise(times.values()))
