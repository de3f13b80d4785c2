"""The benchmark of measured frontiers: its points, and its figures of known measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measured_frontier.drawing import draw
from benchmarks.measured_frontier.figures import figures
from benchmarks.measured_frontier.strategies import BASELINES, Measured, along


def measured(point: int | None, costs: tuple[float, int], *baselines: str) -> Measured:
    """A strategy that takes a tenth more time and as much memory as predicted."""
    time, memory = costs
    return Measured(
        point, baselines, "whole batch", time, 0.0, memory, 1.1 * time, memory, 0.0, (1.1 * time,)
    )


ROWS = [
    measured(0, (8.0, 100)),
    measured(1, (4.0, 200)),
    measured(2, (2.0, 400), "optcnn"),
    measured(None, (4.0, 400), "data_parallel"),
    measured(None, (1.5, 300), "tofu"),
    measured(None, (4.1, 201), "mesh_tensorflow"),
]


def test_points_lie_at_even_distances_along_the_frontier() -> None:
    dense = [(1000 + number, 8000 - number) for number in range(50)]
    frontier = [*dense, (2000, 4000), (4000, 2000), (8000, 1000)]
    assert along(frontier, 4) == [0, 50, 51, 52]
    assert along(frontier[-3:], 12) == [0, 1, 2]
    chosen = along(frontier, 12)
    assert len(chosen) == 12
    assert {0, 50, 51, 52} <= {*chosen}


def test_figures_of_known_measurements() -> None:
    found = figures(ROWS)
    assert found["points"] == 3
    assert found["spearman"] == pytest.approx(1.0)
    assert found["time_error"] == pytest.approx(1 / 11, abs=1e-4)
    assert found["peak_error"] == 0.0
    assert found["dominates_measured"] == {
        "data_parallel": True,
        "optcnn": True,  # a point itself
        "tofu": False,
        "mesh_tensorflow": True,
    }
    assert found["excess_measured"]["tofu"] == pytest.approx(1 / 3, abs=1e-4)


def test_the_order_counts_pairs_that_measurements_tell_apart() -> None:
    found = figures(ROWS)
    assert (found["pairs"], found["pairs_told_apart"], found["order_told_apart"]) == (15, 12, 1.0)
    alike = [replace(row, measured_ms=100 + 2 * n, spread_ms=1.1) for n, row in enumerate(ROWS)]
    found = figures(alike)
    assert found["pairs_told_apart"] == 10  # all but neighbours
    assert found["order_told_apart"] == pytest.approx((3 - 6) / 9, abs=1e-4)  # a tie counts nothing
    found = figures([replace(row, spread_ms=10.0) for row in ROWS])
    assert found["order_told_apart"] is None


def test_measurements_that_do_not_repeat_bound_the_rank_correlation() -> None:
    times = [100.0, 110, 120, 130, 140, 150]

    def at_most(*turns: list[float]) -> float | None:
        by_row = zip(*turns, strict=True)
        rows = [replace(row, turns_ms=of) for row, of in zip(ROWS, by_row, strict=True)]
        value: float | None = figures(rows)["spearman_at_most"]
        return value

    assert at_most(times, times, times, times) == 1.0
    assert at_most(times, times[::-1]) == 0.0
    swapped = [times[place] for place in (1, 0, 3, 2, 5, 4)]  # correlates 29/35 with the others
    assert at_most(times, swapped) == pytest.approx((2 * 29 / 64) ** 0.5, abs=1e-4)
    assert at_most(times) is None


def test_rows_return_from_their_file_and_are_drawn(tmp_path: Path) -> None:
    assert [Measured.from_json(row.to_json()) for row in ROWS] == ROWS
    assert {name for row in ROWS for name in row.baselines} == {*BASELINES}
    draw({"rnn": ROWS, "vgg16": ROWS}, "2 ranks", tmp_path / "frontiers.png")
    assert (tmp_path / "frontiers.png").read_bytes()[:4] == b"\x89PNG"
