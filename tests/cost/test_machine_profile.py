"""Profiles as files: written whole, checked when read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.machine_profile import (
    MeasuredCollective,
    Overheads,
    Profile,
    Setting,
    measured_cluster,
)
from tensoropt.cost.measured_operator_times import MeasuredOperator
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.errors import PlanError

SETTING = Setting("a processor", 2, (2,), "2.18.1", "MPICH 5.0")
PROFILE = Profile(
    setting=SETTING,
    mesh=(2,),
    complete=True,
    collectives=(
        MeasuredCollective("allreduce", "", (0,), 32, 32, 900, 0.1, 0),
        MeasuredCollective("allreduce", "", (0,), 4, 16, 800, 0.1, 1),
    ),
    overheads=Overheads(100, 800, 50_000),
    operators=(
        MeasuredOperator(
            OperatorWork("elementwise", "float32", 4, 32, 1, "Relu", (("T", "x"),), ((2, 2),)),
            1200,
            800,
        ),
    ),
    skipped={"0123": "While: OptionError: no"},
)


def test_a_profile_is_written_and_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profile.json"
    PROFILE.save(path)
    assert Profile.load(path, SETTING) == PROFILE
    assert [file.name for file in path.parent.iterdir()] == ["profile.json"]


def test_tables_are_by_size(tmp_path: Path) -> None:
    (table,) = PROFILE.tables()
    assert (table.kind, table.mesh, table.axes) == ("allreduce", (2,), (0,))
    assert (table.bytes, table.nanoseconds) == ((16, 32), (800, 900))


def test_no_size_takes_longer_than_a_larger_one() -> None:
    times = {16: 500, 32: 9000, 64: 700, 128: 1200}
    collectives = tuple(
        MeasuredCollective("allgather", "", (0,), size, size, time, 0.0, 0)
        for size, time in times.items()
    )
    (table,) = replace(PROFILE, collectives=collectives).tables()
    assert table.nanoseconds == (500, 700, 700, 1200)


def test_of_what_was_measured_several_times_the_median_counts() -> None:
    collectives = tuple(
        MeasuredCollective("allgather", "", (0,), size, size, time, 0.0, 0)
        for size in (16, 32)
        for time in (size * 10, size * 9000, size * 11)
    )
    (table,) = replace(PROFILE, collectives=collectives).tables()
    assert table.nanoseconds == (176, 352)


def test_a_truncated_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    PROFILE.save(path)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(PlanError, match=r"whole, readable JSON.*tensoropt profile --force"):
        Profile.load(path)
    with pytest.raises(PlanError, match="readable"):
        Profile.load(tmp_path / "none.json")


def test_an_edited_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    PROFILE.save(path)
    values = json.loads(path.read_text())
    values["collectives"][0]["nanoseconds"] = 1
    path.write_text(json.dumps(values))
    with pytest.raises(PlanError, match=r"changed afterwards.*--force"):
        Profile.load(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema", 1, "schema 10. Got .* of schema 1"),
        ("mesh", [1], "mesh/0"),
        ("operators", [{"operator": "Relu"}], "operators/0"),
        ("extra", 1, "at extra: 1 "),
    ],
)
def test_a_profile_follows_its_schema(key: str, value: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Profile.from_json({**PROFILE.to_json(), key: value}, "a file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mesh": ()}, "axes of the mesh"),
        ({"overheads": Overheads(2**62, 0, 0)}, "operator_overhead_seconds"),
    ],
)
def test_a_profile_makes_a_cluster(change: dict[str, Any], message: str) -> None:
    values = replace(PROFILE, **change).to_json()
    with pytest.raises(PlanError, match=rf"measurements of a profile agree.*{message}.*--force"):
        Profile.from_json(values, "a file")


def test_a_foreign_profile_is_refused_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    PROFILE.save(path)
    here = replace(SETTING, processor="another", ranks_per_host=(4,))
    with pytest.raises(PlanError, match=r"processor 'a processor' instead of 'another'; ranks_per"):
        Profile.load(path, here)
    assert Profile.load(path, here, force=True) == PROFILE
    # Without MPI started, its version is not known; it agrees with any.
    assert Profile.load(path, replace(SETTING, mpi="")) == PROFILE
    with pytest.raises(PlanError, match=r"mpi 'MPICH 5\.0' instead of 'Open MPI'"):
        Profile.load(path, replace(SETTING, mpi="Open MPI"))


def test_the_file_s_name_is_the_setting_s_but_for_mpi() -> None:
    assert SETTING.file_name == replace(SETTING, mpi="").file_name
    assert SETTING.file_name.startswith("2-ranks-")
    assert SETTING.file_name != replace(SETTING, tensorflow="2.19.0").file_name


def test_a_measured_cluster_has_the_profile_s_figures() -> None:
    cluster = measured_cluster(load_cluster("8-v100"), PROFILE)
    assert cluster.measured == PROFILE.tables()
    assert cluster.step_overhead_seconds == 50e-6
    assert cluster.collective_overhead_seconds == 800e-9
    assert cluster.device.operator_overhead_seconds == 100e-9
    assert cluster.levels == load_cluster("8-v100").levels


def test_pieces_that_lie_differently_have_tables_of_their_own() -> None:
    collectives = tuple(
        MeasuredCollective("allgather", runs, (0,), 64, size, time, 0.0, 0)
        for runs, size, time in (("whole", 64, 100), ("long", 64, 200), ("short", 96, 600))
    )
    tables = {table.kind: table for table in replace(PROFILE, collectives=collectives).tables()}
    assert tables["allgather"].nanoseconds == (300,)
    assert {kind: table.nanoseconds for kind, table in tables.items() if " " in kind} == {
        "allgather whole": (100,),
        "allgather long": (200,),
        "allgather short": (600,),
    }
