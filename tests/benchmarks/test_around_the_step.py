"""The benchmark of whole epochs: its options, its summary, and the phases that callbacks note."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.around_the_step.__main__ import arguments, summary
from benchmarks.around_the_step.phases import EPOCH, PHASES, Phases

PARTS = ("epoch", "input", "evaluate", "save")


def rank(*seconds: float) -> dict[str, dict[str, float]]:
    return {part: {"seconds": value} for part, value in zip(PARTS, seconds, strict=True)}


def test_by_default_all_models_run_on_two_and_four_ranks() -> None:
    options = arguments([])
    assert (options.models, options.ranks) == (["resnet", "tables"], [2, 4])
    options = arguments(["--models", "tables", "--ranks", "2", "--turns", "1", "--profile"])
    assert (options.models, options.ranks, options.turns) == (["tables"], [2], 1)
    assert options.profile


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--models", "lenet"])
    assert "lenet" in capsys.readouterr().err


def test_the_slowest_rank_counts_and_the_median_of_turns() -> None:
    ours = [[rank(1, 2, 3, 4), rank(5, 1, 1, 1)], [rank(7, 0, 0, 0)], [rank(6, 9, 9, 9)]]
    found = summary({"keras": [[rank(2, 0, 0, 0)]], "ours": ours})
    assert found == {"keras": 2, "ours": 6, "input": 2, "evaluate": 3, "save": 4}


def test_epochs_after_the_first_are_averaged() -> None:
    phases = Phases()
    callbacks = phases.callbacks([], [])

    def call(name: str, *given: Any) -> None:
        for callback in callbacks:
            getattr(callback, name)(*given)

    call("on_train_begin")
    for epoch in range(3):
        call("on_epoch_begin", epoch)
        call("on_train_batch_begin", 0)
        assert phases.wait(lambda: 7) == 7
        call("on_test_begin")
        call("on_test_end")
        call("on_epoch_end", epoch)
    call("on_train_end")
    figures = phases.finish()
    assert set(figures) == {*PHASES, "input", "epoch"}
    parts = sum(figures[phase]["seconds"] for phase in EPOCH)
    assert figures["epoch"]["seconds"] == pytest.approx(parts)
    assert 0 < figures["input"]["seconds"] < figures["train"]["seconds"]
    assert all(of["peak_mib"] > 0 for of in figures.values() if "peak_mib" in of)
