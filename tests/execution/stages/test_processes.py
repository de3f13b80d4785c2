"""The values that processes of a pipeline feed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tensoropt.execution.stages.processes import StageProcesses
from tensoropt.execution.world.shares import Share
from tensoropt.parallel.mesh import Mesh


def test_only_values_that_are_no_batches_are_the_first_rank_s() -> None:
    """Rows of a batch stay as they are, also of a batch that the plan does not know, such as an
    evaluation's."""
    sent: list[Any] = []

    def share(values: list[Any], axes: tuple[int, ...]) -> list[Any]:
        assert axes == (0,)
        sent.extend(values)
        return [np.zeros_like(value) for value in values]

    everyone = SimpleNamespace(mesh=Mesh.of(2), share=share)
    pipeline: Any = SimpleNamespace(everyone=everyone, here=0)
    rows = Share(np.array([[0, 2]]), np.ones((2, 3)), 4)
    feeds = {"batch": np.ones((4, 3)), "rate": np.array(0.5), "rows": rows}
    agreement: Any = None
    found = StageProcesses(pipeline, agreement).same_feeds(feeds, {"batch"})
    assert sent == [0.5]
    assert found["rate"] == 0.0
    assert found["rows"] is rows
    assert found["batch"] is feeds["batch"]
