"""``find_strategy(validate=k)``: what is measured, what is adopted, and that no trace is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt import errors
from tensoropt.cost.cluster import load_cluster
from tensoropt.frontend.inputs.sample_batch import sample_batch
from tensoropt.frontend.job.job import current
from tensoropt.frontend.measuring import trial_run
from tensoropt.frontend.planning import candidate_measurement

plain = tensorflow.compat.v1
Regression = tuple[Any, Any, Any, Any]
BATCH = 16
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(4 * BATCH, 8)).astype(np.float32)
LABELS = RANDOM.integers(4, size=4 * BATCH).astype(np.int64)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make measurements short, since their figures need not be exact here."""
    monkeypatch.setattr(candidate_measurement, "_SECONDS", 0.0)


def classifier(features: Any, labels: Any) -> tuple[Any, Any]:
    """Loss and training operator of two layers with dropout; the frontier has several points."""
    hidden = tf.get_variable(
        "hidden", [8, 32], initializer=tf.random_normal_initializer(stddev=0.1, seed=1)
    )
    values = tf.nn.dropout(tf.nn.relu(tf.matmul(features, hidden)), rate=0.2, seed=2)
    weights = tf.get_variable("weights", [32, 4], initializer=tf.ones_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.matmul(values, weights))
    return loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def placeholders() -> tuple[Any, Any]:
    return (
        tf.placeholder(tf.float32, [None, 8], name="features"),
        tf.placeholder(tf.int64, [None], name="labels"),
    )


def pipeline() -> Any:
    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(BATCH, drop_remainder=True)
    return tf.data.make_one_shot_iterator(data.repeat()).get_next()


def test_the_fastest_that_was_measured_is_adopted(capsys: pytest.CaptureFixture[str]) -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    plan = tf.find_strategy(batch_size=BATCH, validate=2)
    found = plan.validation
    assert found is not None
    assert found.asked == 2
    first, second, *rest = found.trials
    assert first.name.startswith("frontier point 1 of ")
    assert second.name.startswith("frontier point 2 of ")
    assert first.time_nanoseconds < second.time_nanoseconds
    assert sum("data parallelism" in trial.name for trial in found.trials) == 1
    assert [trial.name for trial in rest] in ([], ["data parallelism"])
    times = [trial.measured_seconds for trial in found.trials]
    assert all(times)
    assert times[found.adopted] == min(t for t in times if t is not None)
    assert all(trial.steps == 5 for trial in found.trials)
    assert plan.executed_nanoseconds == found.trials[found.adopted].time_nanoseconds
    said = capsys.readouterr().err
    assert "tensoropt: frontier point 1 of " in said
    assert f"tensoropt: {found.verdict}" in said
    assert tf.Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    tf.build_execution_graph(plan=plan)
    summary: Any = tf.summary()["validation"]
    assert summary["adopted"] == found.trials[found.adopted].name
    assert (summary["overruled"], summary["comparisons"]) == (
        found.overruled,
        found.comparisons,
    )


def test_pipelines_are_measured_beside_what_has_no_stages() -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    plan = tf.find_strategy(batch_size=BATCH, pipeline=2, validate=2)
    found = plan.validation
    assert found is not None
    first, second, rival = found.trials
    assert ", 2 stages, " in first.name
    assert ", 2 stages, " in second.name
    assert rival.name == "data parallelism"
    assert all(trial.measured_seconds for trial in found.trials)
    assert bool(plan.stages) == (found.adopted < 2)


def trained(session: Any, loss: Any, step: Any) -> list[Any]:
    """Losses of a few steps, and the variables with their optimizer's slots."""
    losses = [session.run([loss, step])[0] for _ in range(3)]
    return [*losses, *session.run(tf.global_variables())]


def test_a_run_is_as_if_nothing_had_been_measured() -> None:
    """Variables that have values, dropout's draws and the data pipeline go on as they would."""
    tf.init(devices=2)
    with plain.Graph().as_default(), plain.Session() as session:
        loss, step = classifier(*pipeline())
        session.run(plain.global_variables_initializer())
        session.run(plain.global_variables()[0].assign_add(np.full([8, 32], 0.1)))
        truth = trained(session, loss, step)
    loss, step = classifier(*pipeline())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.global_variables()[0].assign_add(np.full([8, 32], 0.1)))
        plan = tf.find_strategy(validate=2, fetches=[loss, step])
        assert plan.validation is not None
        assert plan.validation.comparisons > 0
        tf.build_execution_graph(plan=plan)
        found = trained(session, loss, step)
    for value, right in zip(found, truth, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-5, atol=1e-6)


def test_a_cost_model_that_mispredicts_is_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network of which nothing is known but that it is useless, every device computes all."""
    values = load_cluster("this-machine").to_json()
    for level in values["levels"]:
        level["bandwidth_bytes_per_second"] = 1e3
    file = tmp_path / "useless-network.json"
    file.write_text(json.dumps(values))
    tf.init(devices=2, cluster=file)
    hidden = tf.placeholder(tf.float32, [512, 256])
    for layer in range(3):
        hidden = tf.nn.relu(tf.matmul(hidden, tf.get_variable(f"weights{layer}", [256, 256])))
    tf.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(hidden))
    step = trial_run.TrialRun.step

    def figures(self: trial_run.TrialRun) -> tuple[float, float]:
        step(self)
        return 0.001 if self.plan.algorithm == "data_parallel" else 0.002, 0.0

    monkeypatch.setattr(trial_run.TrialRun, "step", figures)
    plan = tf.find_strategy(validate=1)
    assert plan.validation is not None
    predicted, data_parallelism = plan.validation.trials
    assert (predicted.measured_seconds, data_parallelism.measured_seconds) == (0.002, 0.001)
    assert predicted.time_nanoseconds < data_parallelism.time_nanoseconds / 2
    assert plan.validation.adopted == 1
    assert (plan.validation.overruled, plan.validation.comparisons) == (1, 1)
    assert plan.algorithm == "data_parallel"


class Greedy:
    """Says of the first candidates' steps that they take more than there is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, candidates: int) -> None:
        self.left = candidates
        monkeypatch.setattr(trial_run, "allocated_bytes", lambda: 0)
        monkeypatch.setattr(trial_run.Meter, "peak_bytes", lambda meter: self.peak_bytes())

    def peak_bytes(self) -> int:
        self.left -= 1
        return 2**60 if self.left >= 0 else 2**20


def test_what_exceeds_the_memory_falls_to_the_next_point(monkeypatch: pytest.MonkeyPatch) -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    Greedy(monkeypatch, 1)
    plan = tf.find_strategy(batch_size=BATCH, validate=1)
    assert plan.validation is not None
    first, second, *_ = plan.validation.trials
    assert "its steps took 1,099,511,627,776.0 MiB of the" in first.dropped
    assert (first.measured_seconds, first.measured_peak_bytes) == (None, 2**60)
    assert second.name.startswith("frontier point 2 of ")
    assert (second.dropped, second.measured_peak_bytes) == ("", 2**20)
    assert plan.validation.adopted > 0


def test_when_nothing_fits(monkeypatch: pytest.MonkeyPatch, regression: Regression) -> None:
    tf.init(devices=2)
    Greedy(monkeypatch, 100)
    with pytest.raises(errors.InfeasibleError, match=r"Got none that does: frontier point 1"):
        tf.find_strategy(batch_size=8, validate=1)


def test_memory_that_runs_out_drops_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    run, calls = trial_run.TrialRun._run, []

    def first_fails(self: trial_run.TrialRun) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise tf.errors.ResourceExhaustedError(None, None, "no room for 3 tensors")
        run(self)

    monkeypatch.setattr(trial_run.TrialRun, "_run", first_fails)
    plan = tf.find_strategy(batch_size=BATCH, validate=1)
    assert plan.validation is not None
    assert plan.validation.trials[0].dropped == (
        "memory ran out on rank 0: ResourceExhaustedError: no room for 3 tensors"
    )
    assert plan.validation.adopted > 0


def test_a_step_that_fails_drops_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    make, made = trial_run.plan_executor, []

    def first_fails(*arguments: Any) -> Any:
        made.append(arguments)
        if len(made) == 1:
            raise ValueError("no kernel")
        return make(*arguments)

    monkeypatch.setattr(trial_run, "plan_executor", first_fails)
    plan = tf.find_strategy(batch_size=BATCH, validate=1)
    assert plan.validation is not None
    first, *others = plan.validation.trials
    assert first.dropped == "its step failed on rank 0: ValueError: no kernel"
    assert [trial.name for trial in others] == ["data parallelism"]
    assert plan.validation.adopted == 1
    assert plan.validation.remarks == ()


def test_candidates_that_do_not_fit_together_take_turns() -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    most = tf.find_strategy(batch_size=BATCH).memory_bytes
    plan = tf.find_strategy(batch_size=BATCH, validate=2, memory_limit_bytes=int(most * 1.2))
    assert plan.validation is not None
    assert plan.validation.comparisons > 0
    assert "one after another" in plan.validation.remarks[-1]


def test_fewer_points_than_asked_for(regression: Regression) -> None:
    tf.init(devices=2)
    points = len(tf.find_strategy(batch_size=8).frontier)
    plan = tf.find_strategy(batch_size=8, validate=points + 3)
    assert plan.validation is not None
    frontier = [t for t in plan.validation.trials if t.name.startswith("frontier point")]
    assert len(frontier) == points
    (remark,) = plan.validation.remarks
    assert remark.startswith(f"{points + 3} points of the frontier were to be measured, but ")
    tf.shutdown()
    tf.init(devices=1)
    alone = tf.find_strategy(batch_size=8, validate=3).validation
    assert alone is not None
    assert (len(alone.trials), alone.comparisons) == (1, 0)
    assert alone.remarks == ("there is one strategy to choose from: nothing was measured",)


@pytest.mark.usefixtures("sums_alone")
def test_data_parallelism_that_does_not_fit_is_not_measured() -> None:
    tf.init(devices=2)
    classifier(*placeholders())
    most = tf.find_strategy(batch_size=BATCH, algorithm="data_parallel").memory_bytes
    plan = tf.find_strategy(batch_size=BATCH, validate=1, memory_limit_bytes=most)
    assert plan.validation is not None
    assert [trial.name[:14] for trial in plan.validation.trials] == ["frontier point"]
    assert plan.validation.remarks[0].startswith("data parallelism was not measured: it is pred")


@pytest.mark.usefixtures("sums_alone")
def test_mini_parallelism_measures_on_the_fewest_devices() -> None:
    tf.init(devices=4)
    classifier(*placeholders())
    least = tf.find_strategy("profiling", batch_size=BATCH, parallelism=[2], memory_limit_bytes=1)
    limit = int(next(iter(least)).memory_bytes * 1.2)
    plan = tf.find_strategy(
        "mini_parallelism",
        batch_size=BATCH,
        memory_limit_bytes=limit,
        validate=1,
        microbatches=1,
        save_memory=False,
    )
    assert (plan.devices, plan.option) == (2, "mini_parallelism")
    assert plan.validation is not None


@pytest.mark.parametrize(
    ("arguments", "got", "remedy"),
    [
        ({"validate": -1}, "Got -1", "0 to measure nothing"),
        ({"validate": True}, "Got True", "a number such as 3"),
        ({"validate": 2.5}, "Got 2.5", "a number such as 3"),
        ({"validate": 2, "option": "profiling"}, "adopts none. Got validate=2", "leave one of"),
        (
            {"validate": 2, "algorithm": "tofu"},
            "Got validate=2 with algorithm='tofu'",
            "leave one of the two out",
        ),
        (
            {"validate": 1, "batch_size": 4, "feed": 8},
            "Got [8, 4] for 'features' in feed_dict, but [4, 4]",
            "pass a batch of that size",
        ),
    ],
)
def test_what_cannot_be_measured(
    regression: Regression, arguments: dict[str, Any], got: str, remedy: str
) -> None:
    tf.init(devices=2)
    if "feed" in arguments:
        rows = arguments.pop("feed")
        arguments["feed_dict"] = {regression[0]: np.ones((rows, 4))}
    else:
        arguments.setdefault("batch_size", 8)
    with pytest.raises(errors.OptionError) as raised:
        tf.find_strategy(**arguments)
    assert got in str(raised.value)
    assert remedy in str(raised.value)


def test_a_step_that_a_made_up_batch_breaks_takes_a_real_one() -> None:
    tf.init(devices=2)
    features, labels = placeholders()
    with tf.control_dependencies([tf.debugging.assert_greater(features, 5.0)]):
        classifier(tf.identity(features), labels)
    with pytest.raises(errors.OptionError, match=r"InvalidArgumentError.*feed_dict=") as raised:
        tf.find_strategy(batch_size=BATCH, validate=1)
    assert "on rank 0" in str(raised.value)
    feed = {features: np.full((BATCH, 8), 6.0), labels: LABELS[:BATCH]}
    plan = tf.find_strategy(validate=1, feed_dict=feed)
    assert plan.shapes == {"features": (BATCH, 8), "labels": (BATCH,)}
    assert plan.batch_placeholders == ("features", "labels")
    assert plan.validation is not None
    assert plan.validation.trials[0].measured_seconds


def test_a_made_up_batch_has_row_numbers_and_labels_that_exist() -> None:
    words = tf.placeholder(tf.int32, [4, 3], name="words")
    labels = tf.placeholder(tf.int64, [400], name="labels")
    marks = tf.placeholder(tf.int32, [400], name="marks")
    flags = tf.placeholder(tf.bool, [400], name="flags")
    texts = tf.placeholder(tf.string, [2], name="texts")
    halves = tf.placeholder(tf.float16, [400], name="halves")
    counts = tf.placeholder(tf.int32, [400], name="counts")
    table = tf.get_variable("table", [7, 2])
    tf.nn.embedding_lookup(table, tf.reshape(words, [-1]))
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.zeros([400, 5]))
    tf.one_hot(tf.cast(marks, tf.int64), 3)
    named = {"words": 7, "labels": 5, "marks": 3, "counts": 2}
    tensors = (words, labels, marks, flags, texts, halves, counts)
    shapes = {tensor.op.name: tuple(tensor.shape.as_list()) for tensor in tensors}
    batch = sample_batch(tf.get_default_graph(), shapes)
    for tensor in tensors:
        value = batch[tensor.op.name]
        assert value.shape == shapes[tensor.op.name]
        assert value.dtype == tensor.dtype.as_numpy_dtype
    for name, bound in named.items():
        assert batch[name].min() >= 0
        assert batch[name].max() < bound
    assert set(batch["labels"]) == set(range(5))
    assert set(batch["texts"]) == {b""}
    assert 0 <= batch["halves"].min() <= batch["halves"].max() <= 1
    again = sample_batch(tf.get_default_graph(), shapes)
    for name, value in batch.items():
        np.testing.assert_array_equal(value, again[name])


def test_nothing_is_measured_in_a_dry_run() -> None:
    from tensoropt.frontend.job.dry_run import DryRun
    from tensoropt.frontend.job.job import in_dry_run

    with in_dry_run(DryRun(devices=4)):
        tf.init()
        classifier(*placeholders())
        plan = tf.find_strategy(batch_size=BATCH, validate=2)
        assert current().executor is None
    assert plan.validation is None
    assert plan.notes[-1].startswith("validate=2 is for when the script runs")


def test_a_trial_asks_for_memory_when_the_sessions_threads_are_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    session, count = plain.Session, trial_run.allocated_bytes

    def opened(*arguments: Any, **options: Any) -> Any:
        asked.append("session")
        return session(*arguments, **options)

    def counted() -> int | None:
        asked.append("memory")
        return count()

    monkeypatch.setattr(plain, "Session", opened)
    monkeypatch.setattr(trial_run, "allocated_bytes", counted)
    tf.init(devices=2)
    classifier(*placeholders())
    tf.find_strategy(batch_size=BATCH, validate=1)
    assert asked[0] == "session"
    assert "memory" in asked
