"""Tables of plans, frontiers and profiles."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.plan.operator_plan import Dimension, OperatorPlan
from tensoropt.plan.parallelism_profile import ProfilePoint
from tensoropt.plan.point_peak import PointPeak
from tensoropt.report.parallelism_profile_table import profile_table
from tensoropt.report.plan_table import frontier_table, plan_table
from tensoropt.report.text_table import Report, table, write


def plan(points: int = 2, chosen: int = 1, limit: int | None = None) -> Plan:
    frontier = tuple((n * 2**20, (points - n + 1) * 1_000_000) for n in range(1, points + 1))
    sizes = (Dimension("batch", 8), Dimension("columns", 4))
    return Plan(
        *("mini_time", 2, (2,), load_cluster("2x8-v100"), "0" * 64, ("step",), {}, ()),
        operators=(
            OperatorPlan("x", "Placeholder", ((0,), ()), "[2]", (), "[0,-1]", 0, 512, sizes),
            OperatorPlan(
                *("y", "MatMul", ((0,), ()), "[2]", ("[0,-1]", "[-1,-1]"), "[0,-1]", 4500, 1024),
                dimensions=sizes,
            ),
            OperatorPlan("step", "NoOp", (), "[2]", (), "", 0, 0, ()),
        ),
        time_nanoseconds=frontier[chosen][1],
        memory_bytes=frontier[chosen][0],
        memory_limit_bytes=limit,
        frontier=frontier,
        point=chosen,
        exact=True,
        executed_nanoseconds=frontier[chosen][1],
        network_nanoseconds=0,
    )


def test_columns_are_aligned() -> None:
    assert str(table(["name", "n"], [["a", "10"], ["longer", "2"]], [False, True])) == (
        "name     n\n------  --\na       10\nlonger   2"
    )


def test_a_terminal_breaks_entries_within_their_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    report = Report(table(["name", "n"], [["[bold] :x: " * 9, "10"]], [False, True]), "end [2]")
    write(report)
    assert capsys.readouterr().out == f"{report}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write(report)
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    header, _, first, *further, last = drawn.splitlines()
    assert header.split() == ["name", "n"]
    assert (first.split()[:2], first.split()[-1]) == (["[bold]", ":x:"], "10")
    assert further
    assert all(len(line) <= 40 and line.startswith("[bold]") for line in further)
    assert last == "end [2]"


def test_a_plan_lists_its_operators_and_the_step() -> None:
    lines = str(plan_table(plan())).splitlines()
    assert lines[0].split("  ")[0] == "operator"
    first = [line.split("  ")[0] for line in lines[2:]]
    assert first == ["x", "y", "resharding", "search's sum", "step (predicted)"]
    maps = lines[0].index("maps")
    assert [line[maps:].split("  ")[0] for line in lines[2:4]] == [
        "-> [0,-1]",
        "[0,-1] [-1,-1] -> [0,-1]",
    ]
    assert lines[3].split() == [
        "y",
        "MatMul",
        "[2]",
        "[0,-1]",
        "[-1,-1]",
        "->",
        "[0,-1]",
        "4.5",
        "1.0",
    ]
    times = (lines[-3].split()[-1], lines[-2].split()[-1], lines[-1].split()[-2])
    resharding, total, step = (float(time.replace(",", "")) for time in times)
    assert resharding + 4.5 == total == step == 1000.0


def test_a_frontier_marks_the_plan_and_what_fits() -> None:
    lines = str(frontier_table(plan(points=3, chosen=1, limit=2 * 2**20))).splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["0", "1.00", "3.000", "yes"],
        ["*", "1", "2.00", "2.000", "yes"],
        ["2", "3.00", "1.000", "no"],
    ]
    small = replace(plan(), frontier=((512, 2000), (1536, 1000)), memory_bytes=1536)
    header, _, first, *_ = str(frontier_table(small)).splitlines()
    assert "memory (KiB, " in header
    assert first.split()[:2] == ["0", "0.50"]


def test_a_frontier_tells_points_apart_that_differ_in_their_way() -> None:
    some = replace(plan(points=2, chosen=0), frontier_ways=("whole batch", "whole batch"))
    assert some.way == "whole batch"
    assert "whole batch" not in str(frontier_table(some))
    some = replace(some, frontier_ways=("2 microbatches", "whole batch"), microbatches=2)
    lines = str(frontier_table(some)).splitlines()
    assert [line.split("yes ")[-1].strip() for line in lines[2:]] == list(some.frontier_ways)
    # A plan besides the frontier has its own way, and no number.
    some = replace(some, point=None, executed_nanoseconds=3_000_000, microbatches=4)
    (own,) = [line for line in str(frontier_table(some)).splitlines() if line.startswith("*")]
    assert own.split() == ["*", "1.00", "3.000", "yes", "4", "microbatches"]


def test_a_point_whose_peak_is_too_high_does_not_fit() -> None:
    some = plan(points=3, chosen=0, limit=4 * 2**20)
    peaks = tuple(PointPeak(n * 2**20, "estimate") for n in (2, 3, 9))
    lines = str(frontier_table(replace(some, frontier_peaks=peaks))).splitlines()
    assert "peak (MiB, estimated) " in lines[0]
    assert [line.split()[-3:] for line in lines[3:]] == [
        ["3.00", "2.000", "yes"],
        ["9.00", "1.000", "no"],
    ]


def test_a_peak_says_that_it_is_estimated() -> None:
    some = plan(points=2, chosen=0)
    assert "memory (MiB, the search's sum) " in str(frontier_table(some))
    ran, between = PointPeak(3 * 2**20, "dry run"), PointPeak(4 * 2**20, "interpolation")
    header, _, *lines = str(frontier_table(replace(some, frontier_peaks=(ran, between)))).split(
        "\n"
    )
    assert "peak (MiB)  by " in header
    assert [line.split()[-3] for line in lines] == ["run", "interpolation"]
    assert ["3.00" in lines[0], "4.00" in lines[1]] == [True, True]


def test_a_point_without_a_peak_has_its_sum_and_says_so() -> None:
    some = plan(points=2, chosen=0)
    peaks = (None, PointPeak(4 * 2**20, "estimate"))
    header, _, first, last = str(frontier_table(replace(some, frontier_peaks=peaks))).split("\n")
    assert "memory (MiB)  by " in header
    assert first.split()[2:4] == ["1.00", "sum"]
    assert last.split()[1:3] == ["4.00", "estimate"]


def test_lines_of_a_table_rise_in_memory_and_fall_in_time() -> None:
    """Sums may go back and forth. A plan beside the frontier is in its place by its own peak."""
    some = plan(points=4, chosen=1)
    times = [time for _, time in some.frontier]
    peaks = tuple(PointPeak(n * 2**20, "estimate") for n in (3, 4, 6, 9))
    frontier = tuple(zip((4, 2, 3, 1), times, strict=True))
    some = replace(some, frontier=frontier, frontier_peaks=peaks, point=None)
    _, _, *lines = str(frontier_table(replace(some, peak_bytes=5 * 2**20))).split("\n")
    cells = [line.replace("*", "plan").replace("dry run", "run").split() for line in lines]
    assert [cell[-4] for cell in cells] == ["3.00", "4.00", "5.00", "6.00", "9.00"]
    assert [cell[0] for cell in cells] == ["0", "1", "plan", "2", "3"]
    assert [cell[-2] for cell in cells if cell[0] != "plan"] == ["4.000", "3.000", "2.000", "1.000"]


@pytest.mark.parametrize("chosen", [0, 17, 199])
def test_a_long_frontier_is_thinned_but_keeps_ends_and_plan(chosen: int) -> None:
    lines = str(frontier_table(plan(points=200, chosen=chosen))).splitlines()
    numbers, memory = zip(
        *(line.replace("*", " ").split()[:2] for line in lines[2:-1]), strict=True
    )
    assert {"1.00", "200.00", f"{chosen + 1}.00"} <= set(memory)
    assert [f"{int(number) + 1}.00" for number in numbers] == list(memory)
    assert len(memory) <= 25
    assert sum("*" in line for line in lines) == 1
    assert lines[-1] == f"({200 - len(memory)} of 200 points left out)"


def test_a_frontier_in_another_order_shows_the_same() -> None:
    one = plan(points=5, chosen=3)
    other = str(frontier_table(replace(one, frontier=one.frontier[::-1], point=1))).splitlines()[2:]
    for line, same in zip(other, str(frontier_table(one)).splitlines()[2:], strict=True):
        mine, theirs = line.replace("*", " ").split(), same.replace("*", " ").split()
        assert mine[1:] == theirs[1:]
        assert int(mine[0]) == 4 - int(theirs[0])


def test_a_profile_shows_the_speedup() -> None:
    points = [
        ProfilePoint(1, None, 4 * 2**20, 2**30),
        ProfilePoint(2, 0.010, 2 * 2**20, 2**30),
        ProfilePoint(4, 0.004, 2**20, 2**30),
    ]
    lines = str(profile_table(ParallelismProfile(tuple(points)))).splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["1", "does", "not", "fit", "4.00", "estimated"],
        ["2", "10.000", "1.00", "2.00", "estimated"],
        ["4", "4.000", "2.50", "1.00", "estimated"],
    ]


def test_a_profile_shows_limits_costs_and_measured_rows() -> None:
    tight, ample = 2**20, 2**30
    profile = ParallelismProfile(
        (
            ProfilePoint(1, None, 4 * 2**20, tight, 36, 10.0, is_measured=True),
            ProfilePoint(1, 0.010, 4 * 2**20, ample, 36, 10.0, is_measured=True),
            ProfilePoint(2, 0.009, 2**20, tight, 36, 10.0),
            ProfilePoint(2, 0.004, 2 * 2**20, ample, 36, 10.0),
        )
    )
    header, _, *rows, note = str(profile_table(profile)).splitlines()
    assert "limit (MiB)" in header
    assert "cost of 1M samples" in header
    assert [row.split() for row in rows] == [
        ["1", "1.00", "does", "not", "fit", "4.00", "measured"],
        ["1", "1,024.00", "10.000", "1.00", "4.00", "3,600", "0.7716", "measured"],
        ["2", "1.00", "9.000", "1.00", "1.00", "4,000", "1.389", "estimated"],
        ["2", "1,024.00", "4.000", "2.50", "2.00", "9,000", "0.6173", "estimated"],
    ]
    assert note.startswith("estimated: from the cluster's figures")


def test_a_profile_shows_plans_and_where_scaling_ends() -> None:
    points = [
        ProfilePoint(1, 0.010, 1, None, 36, way="whole batch"),
        ProfilePoint(2, 0.008, 1, None, 36, way="2 stages", network_seconds=0.002),
    ]
    *rows, end = str(profile_table(ParallelismProfile(tuple(points)))).splitlines()
    assert rows[0].split()[-3:] == ["network", "plan", "predicted"]
    assert rows[-1].split()[-5:] == ["4,500", "25%", "2", "stages", "estimated"]
    assert end.startswith("scaling ends at 1 device: the next 1 gain 25%")
    limited = [
        replace(point, memory_limit_bytes=limit) for limit in (2**20, 2**30) for point in points
    ]
    limited.sort(key=lambda point: point.devices)
    *_, tight, ample = str(profile_table(ParallelismProfile(tuple(limited)))).splitlines()
    assert tight.startswith("with 1.00 MiB, scaling ends at 1 device")
    assert ample.startswith("with 1,024.00 MiB, scaling ends at 1 device")
