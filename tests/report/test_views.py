"""Tables and HTML of a plan's view."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensoropt.cli.main import main
from tensoropt.report.views.amounts import memory, time
from tensoropt.report.views.layers import (
    communication_table,
    layer_table,
    memory_table,
    replicated_table,
)
from tensoropt.report.views.summary import summary
from tensoropt.view import view_of
from tests.plan.small_plans import a_plan, staged_plan
from tests.view.small_steps import planned


def test_amounts_have_three_digits_and_a_unit() -> None:
    assert [memory(count) for count in (5, 1536, 2**20 * 100, 3 * 2**30)] == [
        "5 bytes",
        "1.5 KiB",
        "100 MiB",
        "3 GiB",
    ]
    assert [time(count) for count in (7, 12_345, 1_500_000, 2 * 10**9)] == [
        "7 ns",
        "12.3 us",
        "1.5 ms",
        "2 s",
    ]


def test_a_summary_says_what_the_step_takes_and_names_the_costliest_layers() -> None:
    plan = planned()
    view = view_of(plan)
    text = str(summary(view))
    assert text.startswith(f"{plan}\n")
    assert "2 machines of 2 devices (cluster 2x8-v100)" in text
    for part in view.summary.time:
        assert f"{part.name} {time(part.nanoseconds)}" in text
    for share in view.memory.peak:
        assert f"{share.holder} {memory(share.bytes)}" in text
    for row in view.costliest(10):
        assert row.name in text
        assert row.words in text


def test_tables_have_a_line_for_each_layer_move_and_holder() -> None:
    view = view_of(planned())
    assert len(str(layer_table(view)).splitlines()) == 2 + len(view.layers)
    lines = str(communication_table(view)).splitlines()
    assert len(lines) == 2 + len(view.communication) + 1
    assert float(lines[-1].split()[-1]) == pytest.approx(
        view.summary.network_nanoseconds / 1e6, abs=1e-3
    )
    held = str(memory_table(view))
    assert all(memory(share.bytes) in held for share in view.memory.peak)
    assert "does not list its communication" in str(communication_table(view_of(a_plan())))
    assert str(layer_table(view_of(staged_plan()))).startswith("stage  layer")


def test_what_devices_repeat_is_counted_once_with_its_reason() -> None:
    view = view_of(planned())
    text = str(replicated_table(view))
    whys = {each.why for row in view.layers for each in row.replicated}
    assert whys
    assert all(why in text for why in whys)
    total = sum(len(each.operators) for row in view.layers for each in row.replicated)
    counts = [int(count) for count in re.findall(r"(\d+) (?:operator|variable)s?\b", text)]
    assert sum(counts) == total


def test_a_notebook_shows_the_summary() -> None:
    view, html = view_of(planned()), planned()._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 2
    text = re.sub(r"<[^>]*>", "\n", html)
    for row in view.costliest(10):
        assert row.name in text


def test_show_prints_the_parts_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    planned().save(file)
    assert main(["show", str(file)]) == 0
    out = capsys.readouterr().out
    assert str(planned()) in out
    assert "VarHandleOp" not in out
    parts = ["--layers", "--operators", "--communication", "--memory", "--frontier"]
    assert main(["show", str(file), *parts]) == 0
    out = capsys.readouterr().out
    titles = [line for line in out.splitlines() if line in {part[2:] for part in parts}]
    assert titles == ["layers", "operators", "communication", "memory"]
    assert "frontier of cluster 2x8-v100" in out
    assert "VarHandleOp" in out
    picture = tmp_path / "plan.svg"
    assert main(["show", str(file), "--plot", str(picture), "--picture", "layers"]) == 0
    assert picture.stat().st_size > 1000
    assert main(["show", str(file), "--plot", str(picture), "--picture", "layer"]) == 1
    assert "Did you mean 'layers'" in capsys.readouterr().err
