"""Every picture shows the plan's own numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensoropt.errors import OptionError
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.plan.parallelism_profile import ProfilePoint
from tensoropt.report.pictures.layers import shown_layers
from tensoropt.report.pictures.plans import OVERVIEW, PICTURES, picture
from tensoropt.view import PlanView, view_of
from tests.plan.small_plans import a_plan, staged_plan
from tests.view.small_steps import planned


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned()


@pytest.fixture(scope="module")
def view(plan: Plan) -> PlanView:
    return view_of(plan)


def axes_of(view: PlanView, name: str) -> Any:
    (axes,) = picture(view, name).axes
    return axes


def test_the_frontier_has_all_points_the_plan_and_the_limit(plan: Plan, view: PlanView) -> None:
    axes = axes_of(view, "frontier")
    lines = {line.get_label().split(":")[0]: line for line in axes.lines}
    memories, times = lines["frontier"].get_data()
    points = plan.points
    assert points == sorted(points)
    assert [x * 2**20 for x in memories] == pytest.approx([memory for memory, _ in points])
    assert [y * 1e6 for y in times] == pytest.approx([time for _, time in points])
    ((memory,), (time,)) = lines["this plan"].get_data()
    assert (memory * 2**20, time * 1e6) == pytest.approx((plan.peak_bytes, plan.time_nanoseconds))
    limit = view.summary.device_limit_bytes
    assert lines["limit of the peak"].get_xdata()[0] * 2**20 == pytest.approx(limit)
    assert plan.details is not None
    for name, _, nanoseconds, of_other in plan.details.others:
        ((memory,), (time,)) = lines[name].get_data()
        assert (memory * 2**20, time * 1e6) == pytest.approx((of_other, nanoseconds))
    assert axes.get_title().startswith(f"{len(points)} strategies, none beaten")
    of_plan = tuple(point for point in view.frontier if point.kind == "plan")
    title = axes_of(replace(view, frontier=of_plan), "frontier").get_title()
    assert title.startswith("1 strategy, none beaten")


def test_the_bars_of_layers_are_their_times_and_divisions(view: PlanView) -> None:
    rows = shown_layers(view)
    operators, network = axes_of(view, "layers").containers
    for row, bar, after in zip(rows, operators, network, strict=True):
        assert bar.get_width() == pytest.approx(row.operators_nanoseconds / 1e6)
        assert after.get_width() == pytest.approx(row.network_nanoseconds / 1e6)
    texts = [text.get_text() for text in axes_of(view, "divisions").texts]
    splits = [split for row in rows for split in row.splits]
    assert texts == [f"{split.dimension or 'repeated'} {split.pieces}" for split in splits]


def _area(outline: Any) -> float:
    """The area within an outline (the shoelace formula)."""
    x, y = outline.vertices.T
    return abs(float(np.sum(x * np.roll(y, 1) - y * np.roll(x, 1)))) / 2


def test_the_areas_of_memory_reach_the_peak(plan: Plan, view: PlanView) -> None:
    axes = axes_of(view, "memory")
    top = max(path.vertices[:, 1].max() for area in axes.collections for path in area.get_paths())
    assert top * 2**20 == pytest.approx(plan.peak_bytes)
    step = view.memory.step
    ends = [step[0].event, *((a.event + b.event) / 2 for a, b in pairwise(step)), step[-1].event]
    held = sum((b - a) * sum(at.bytes) for (a, b), at in zip(pairwise(ends), step, strict=True))
    drawn = sum(_area(path) for area in axes.collections for path in area.get_paths())
    assert drawn * 2**20 == pytest.approx(held)
    bar = axes_of(view_of(a_plan()), "memory")
    height = sum(patch.get_height() for patch in bar.patches)
    assert height * 2**20 == pytest.approx(a_plan().memory_bytes)


def test_the_bars_of_a_schedule_are_its_passes() -> None:
    staged = staged_plan()
    view = view_of(staged)
    bars = sorted(
        (round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_x() + bar.get_width())
        for bar in axes_of(view, "schedule").patches
    )
    passes = sorted((each.stage, each.start / 1e6, each.end / 1e6) for each in view.schedule)
    assert [bar for each in bars for bar in each] == pytest.approx([n for p in passes for n in p])
    assert len(passes) == 2 * (2 * staged.microbatches + 1)
    with pytest.raises(
        OptionError, match=r"Got a plan without stages .* layers, divisions, memory\.$"
    ):
        picture(view_of(a_plan()), "schedule")


def test_pictures_are_equal_files(plan: Plan, view: PlanView, tmp_path: Path) -> None:
    for name in (*PICTURES, OVERVIEW):
        if name != "schedule":
            plan.plot(name, tmp_path / f"{name}.svg")
            drawn = (tmp_path / f"{name}.svg").read_text("utf-8")
            assert drawn.rstrip().endswith("</svg>")
            if name != OVERVIEW:
                title = axes_of(view, name).get_title()
                assert f">{escape(title, quote=False)}</text>" in drawn
    for name in ("frontier.png", "frontier.svg"):
        plan.plot_frontier(tmp_path / name)
        first = (tmp_path / name).read_bytes()
        plan.plot_frontier(tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
    with pytest.raises(OptionError, match=r"ends with \.png, \.svg, \.pdf"):
        plan.plot(file=tmp_path / "frontier.bmp")
    with pytest.raises(OptionError, match="a picture of a plan is one of"):
        plan.plot("frontiers")


def test_a_profile_draws_time_and_cost_over_devices() -> None:
    points = [
        ProfilePoint(n, 0.01 / n, 2**20, None, batch_size=8, device_hour_cost=2.0)
        for n in (1, 2, 4)
    ]
    profile = ParallelismProfile(tuple(points))
    time, cost = profile.plot().axes
    assert list(time.lines[0].get_xdata()) == [1, 2, 4]
    assert list(time.lines[0].get_ydata()) == pytest.approx([10, 5, 2.5])
    assert list(time.lines[1].get_ydata()) == pytest.approx([10, 5, 2.5])  # perfect scaling
    costs = [point.million_samples_cost for point in points]
    assert list(cost.lines[0].get_ydata()) == pytest.approx(costs)


def test_without_matplotlib_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match=r"pip install 'tensoropt\[plots\]'"):
        a_plan().plot()
