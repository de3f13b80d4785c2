"""Reads files and uses their values: an accepted value has to work."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

from tensoropt.cli.show import plan_parts
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.machine_profile import Profile, measured_cluster
from tensoropt.cost.measured_links import MeasuredLinks, on_links
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.errors import TensorOptError
from tensoropt.plan import Plan
from tensoropt.plan.comparison import ExecutedSteps, compare
from tensoropt.report.machine_profile_tables import (
    collective_table,
    operator_table,
    overhead_line,
    steps_line,
)
from tensoropt.report.text_table import write

__all__ = ["READ_AND_USED"]


class _Unusable(Exception):
    """An accepted value does not work."""


def _plan(path: Path) -> None:
    plan = Plan.load(path)
    _works(lambda: _use_plan(plan))


def _use_plan(plan: Plan) -> None:
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
        write(*plan_parts(plan))
        print(compare(plan, ExecutedSteps()))
    assert set(plan.configurations) == {operator.name for operator in plan.operators}
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    _use_cluster(plan.cluster)


def _profile(path: Path) -> None:
    profile = Profile.load(path)
    _works(lambda: _use_profile(profile))


def _use_profile(profile: Profile) -> None:
    for text in (collective_table, operator_table, overhead_line, steps_line):
        assert str(text(profile)).encode()
    assert Profile.from_json(json.loads(json.dumps(profile.to_json())), "again") == profile
    _use_cluster(measured_cluster(load_cluster("8-v100"), profile))


def _links(path: Path) -> None:
    links = MeasuredLinks.load(path)
    _works(lambda: _use_links(links))


def _use_links(links: MeasuredLinks) -> None:
    assert MeasuredLinks.from_json(json.loads(json.dumps(links.to_json())), "again") == links
    assert links.setting.file_name.encode()
    template = load_cluster("this-machine")
    for hosts in ([2, 2], [2, 1], [2]):
        _use_cluster(on_links(Cluster.for_hosts(template, hosts, 2**33, 2), links))


def _cluster(path: Path) -> None:
    cluster = load_cluster(path)
    _works(lambda: _use_cluster(cluster))


def _use_cluster(cluster: Cluster) -> None:
    """Use a cluster: print its description, and price a step on a few devices."""
    assert Cluster.from_json(json.loads(json.dumps(cluster.to_json())), "again") == cluster
    assert isinstance(hash(cluster), int)
    assert f"{cluster}: {cluster.description}".encode()
    for devices in {1, cluster.devices or 4}:
        mesh = cluster.mesh(devices)
        cost = ClusterCostModel(cluster, mesh)
        work = OperatorWork("contraction", "float32", 2**40, 2**33, 2)
        assert cost.operator_nanoseconds(work).total > 0
        assert cost.step_nanoseconds() >= 0
        for axis in range(len(mesh.axes))[:3] if devices <= 1024 else ():
            assert cost.collective_nanoseconds("allreduce", (axis,), 2**30) > 0


def _works(use: Callable[[], None]) -> None:
    """Use an accepted value; here an error of the library counts as a failure."""
    try:
        use()
    except TensorOptError as error:
        raise _Unusable(f"accepted, then {type(error).__name__}: {error}") from error


READ_AND_USED: dict[str, Callable[[Path], None]] = {
    "plan": _plan,
    "profile": _profile,
    "links": _links,
    "cluster": _cluster,
}
"""For each kind a function that reads and uses a file. It raises an error of the library if the
file is refused, and another error if an accepted file does not work."""
