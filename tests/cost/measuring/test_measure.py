"""A profile's measurements end in the time that is given to them, by a clock that they move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from collectives import world
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.machine_profile import Profile, Setting
from tensoropt.cost.measured_operator_times import MeasuredOperator
from tensoropt.cost.measuring import measure
from tensoropt.cost.measuring.measure import Measurer, WantedCollective
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.parallel.mesh import Mesh

SECONDS = 60.0


class Clock:
    """The seconds that measurements took; each takes those of its name."""

    def __init__(self, takes: dict[str, float]) -> None:
        self.now = 1000.0
        self._takes = takes

    def __call__(self) -> float:
        return self.now

    def operator(self, _: Any, __: Any, local: Any, *___: Any) -> MeasuredOperator:
        self.now += self._takes[local.work.operator]
        return MeasuredOperator(local.work, 1000, 0)

    def collective(self, _: Any, __: Any, kind: str, size: int, *___: Any, **____: Any) -> Any:
        self.now += self._takes[f"{kind} {size}"]
        return size, SimpleNamespace(seconds=1e-3, spread=0.0, outliers=0)


def measurer(clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Measurer:
    monkeypatch.setattr(measure, "monotonic", clock)
    monkeypatch.setattr(measure, "measure_operator", clock.operator)
    monkeypatch.setattr(measure, "measure_collective", clock.collective)
    profile = Profile(Setting("a processor", 2, (2,), "2.18.1", "MPICH 5.0"), (2,))
    config = tf.compat.v1.ConfigProto()
    return Measurer(world(), profile, folder / "profile.json", config, lambda *_: None)


@pytest.mark.parametrize(
    ("takes", "count"),
    [
        ([7.0] * 12, 8),
        ([25.0, 20.0, 9.0, 8.0], 2),  # a third one might take 25 seconds, too
        ([0.5] * 5, 5),
        ([90.0, 1.0], 1),  # the first is measured in any case
    ],
)
def test_operators_end_in_their_time(
    takes: Sequence[float], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock({f"operator {n}": seconds for n, seconds in enumerate(takes)})
    measures = measurer(clock, tmp_path, monkeypatch)
    works = [
        OperatorWork("elementwise", "float32", 4, 32, 1, f"operator {n}") for n in range(len(takes))
    ]
    operators: Any = [SimpleNamespace(work=work) for work in works]
    device = load_cluster("8-v100").device
    left = measures.operators(tf.Graph(), operators, Mesh(()), device, SECONDS)
    assert [each.work for each in measures.profile.operators] == works[:count]
    assert left == len(takes) - count
    assert clock.now - 1000 == sum(takes[:count])
    assert count == 1 or sum(takes[:count]) <= SECONDS


def test_collectives_end_in_their_time_and_cheaper_ones_take_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = {32: 30.0, 1024: 25.0, 2048: 20.0, 64: 4.0}
    clock = Clock({f"allreduce {size}": seconds for size, seconds in takes.items()})
    measures = measurer(clock, tmp_path, monkeypatch)
    wanted = [WantedCollective("allreduce", "", (0,), size) for size in takes]
    calls = measure._LEAST_CALLS
    left = measures.collectives(wanted, SECONDS, lambda _, __, size: takes[size] / calls)
    assert left == [wanted[2]]
    assert clock.now - 1000 == 59.0
