"""A space that nobody asked for and that fails: a note, and the plan without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from tensoropt.errors import GraphError, InfeasibleError, LayoutError
from tensoropt.execution.runtime.executor import Executor
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.plan_executor import plan_executor
from tests.frontend.test_branches import towers
from tests.frontend.test_pipeline import perceptron

OFFERED = "tensoropt.planner.spaces"
BUILD = "tensoropt.frontend.planning.build_execution_graph"


class Failing:
    """Raises an error however it is called."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *_: object, **__: object) -> Any:
        raise self.error


class Unbounded:
    """A bound that lets every number of stages and microbatches be wanted."""

    def __init__(self, _: object) -> None:
        pass

    def nanoseconds(self, stages: int, microbatches: int) -> float:
        return 0.0 * stages * microbatches


@pytest.mark.parametrize(
    ("place", "space", "error"),
    [
        (f"{OFFERED}.branches.branches_side_by_side", "branches side by side", LayoutError("why")),
        (
            "tensoropt.planner.searches.branch_search.forked",
            "branches side by side",
            KeyError("why"),
        ),
        (f"{OFFERED}.stages.PipelineBound", "stages", ValueError("why")),
        (f"{OFFERED}.stages.microbatch_counts", "stages", AssertionError("why")),
        (f"{OFFERED}.stages.PipelineSearch", "stages", GraphError("why\nand more")),
        ("tensoropt.planner.searches.pipeline_search.SplitProfile", "stages", IndexError("why")),
        (f"{OFFERED}.rewritten.near_candidates", "rewritten graphs", TypeError("why")),
        (
            "tensoropt.planner.offers.strategies.Strategies._data_parallelism",
            "data parallelism",
            ZeroDivisionError("why"),
        ),
        (
            "tensoropt.planner.offers.strategies.FrontierPeaks",
            "peaks along the frontier",
            MemoryError("why"),
        ),
    ],
)
def test_what_fails_while_it_is_looked_at_is_left_out(
    monkeypatch: pytest.MonkeyPatch, place: str, space: str, error: Exception
) -> None:
    tf.init(devices=2, cluster="2x8-v100")
    perceptron()
    without = tf.find_strategy(batch_size=64, pipeline=False)
    monkeypatch.setattr(f"{OFFERED}.stages._SHORTEST_STEP", 0)
    monkeypatch.setattr(f"{OFFERED}.stages.PipelineBound", Unbounded)
    monkeypatch.setattr(f"{OFFERED}.rewritten._LOOK_SECONDS", 0)
    monkeypatch.setattr(place, Failing(error))
    plan = tf.find_strategy(batch_size=64)
    reason = f"{space} ({type(error).__name__}: {str(error).splitlines()[0]})"
    assert f"left out, because its search failed: {reason}" in plan.notes
    assert not plan.stages
    assert plan.time_nanoseconds == without.time_nanoseconds


def test_pipelines_that_cannot_be_made_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    towers(4, False)
    monkeypatch.setattr(
        "tensoropt.planner.offers.pipelines.plan_for_pipeline", Failing(KeyError("why"))
    )
    plan = tf.find_strategy(batch_size=3, pipeline="auto")
    assert not plan.stages
    (note,) = [note for note in plan.notes if "KeyError: 'why'" in note]
    assert "cannot be executed" in note


def test_what_is_demanded_may_fail_and_an_interrupt_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    towers(4, False)
    monkeypatch.setattr(
        "tensoropt.planner.searches.pipeline_search.SplitProfile", Failing(GraphError("why"))
    )
    with pytest.raises(GraphError, match="why"):
        tf.find_strategy(batch_size=3, pipeline=2, microbatches=3)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{OFFERED}.branches.branches_side_by_side", stop)
    with pytest.raises(KeyboardInterrupt):
        tf.find_strategy(batch_size=3, pipeline="auto")


def test_where_nothing_fits_the_error_says_which_space_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tf.init(devices=1, cluster="2x8-v100")
    perceptron()
    monkeypatch.setattr(f"{OFFERED}.microbatches.microbatch_counts", Failing(KeyError("why")))
    with pytest.raises(InfeasibleError, match=r"search failed: microbatches \(KeyError: 'why'\)"):
        tf.find_strategy(batch_size=4096, memory_limit_bytes=60 * 2**20)


def _trained(plan: Any, fetched: Any, fed: Any) -> Any:
    tf.build_execution_graph(plan=plan)
    return [tf.run(fetched, fed)[:2] for _ in range(2)]


def test_a_plan_that_no_dry_run_has_refused_gives_way_to_the_next_one_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A dry run near the limit finds the same error; later starts keep the plan that runs."""
    monkeypatch.setenv("TENSOROPT_PLANS", str(tmp_path))
    program, refused = Executor.program, list[Any]()

    def emitted(executor: Executor, *others: Any) -> Any:
        if executor._processes.pipeline.stages[0].configurations in refused:
            raise ValueError("no kernel")
        return program(executor, *others)

    def planned(**options: Any) -> Any:
        tf.shutdown()
        tf.reset_default_graph()
        tf.init(devices=2, cluster="2x8-v100")
        perceptron()
        return tf.find_strategy(batch_size=512, pipeline=False, **options)

    monkeypatch.setattr(Executor, "program", emitted)
    plan = planned()
    assert plan.peak_is_estimated
    refused.append(plan.configurations)
    near = planned(memory_limit_bytes=int(1.12 * plan.memory_bytes))
    assert not near.peak_is_estimated
    assert any("ValueError: no kernel" in note for note in near.notes)
    assert planned() == plan  # kept, and refused when the job starts
    capsys.readouterr()
    tf.build_execution_graph(plan=plan)
    found = current().plan
    assert found is not None
    assert found.configurations == near.configurations != plan.configurations
    assert "left out: ValueError: no kernel" in capsys.readouterr().err
    assert planned() == found


def test_a_plan_that_cannot_be_emitted_gives_way_to_a_simpler_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched, fed = towers(4, False)
    plan = tf.find_strategy(batch_size=3, pipeline="auto")
    assert plan.stages
    expected = _trained(plan, fetched, fed)
    tried: list[Any] = []

    def failing(job: Any, script: Any, planned: Any, *others: Any) -> Any:
        tried.append(planned)
        if planned.stages:
            raise ValueError("no kernel")
        return plan_executor(job, script, planned, *others)

    monkeypatch.setattr(f"{BUILD}.plan_executor", failing)
    with pytest.raises(ValueError, match="no kernel"):  # the script's own choice
        tf.build_execution_graph(plan=plan)
    assert (current().plan, current().executor) == (None, None)
    with monkeypatch.context() as patched:
        searched = tf.find_strategy(batch_size=3, pipeline="auto")
        patched.setattr("tensoropt.planner.plans_instead.plans_instead", Failing(KeyError("why")))
        with pytest.raises(ValueError, match="no kernel"):
            tf.build_execution_graph(plan=searched)
        assert "no further plan in its place: KeyError: 'why'" in capsys.readouterr().err
        assert (current().plan, current().executor) == (None, None)
    again = tf.find_strategy(batch_size=3, pipeline="auto")
    capsys.readouterr()
    found = _trained(again, fetched, fed)
    assert tried[-2:] == [again, current().plan]
    assert "left out: ValueError: no kernel" in capsys.readouterr().err
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
