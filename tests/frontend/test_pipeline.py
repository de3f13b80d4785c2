"""``find_strategy(pipeline=...)``: plans have stages, runs follow them, what cannot be says so."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from tensoropt.cli.main import main
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import GraphError, InfeasibleError, OptionError
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.plans.from_pipeline import plan_for_pipeline
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.transformations.staged.stage_graph import TRANSFER, StagedStep
from tensoropt.transformations.staged.staged import staged
from tests.proofs import proof

BATCH, WIDTH, WORDS = 16, 64, 32
FED = {
    "examples:0": np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32),
    "words:0": np.random.default_rng(1).integers(WORDS, size=BATCH).astype(np.int32),
}


def built(batch_norm: bool = False) -> tuple[Any, Any, Any]:
    """Loss, scores and training operator of a perceptron whose last layer has the first's table."""
    values = tf.placeholder(tf.float32, [None, WIDTH], name="examples")
    words = tf.placeholder(tf.int32, [None], name="words")
    make = tf.glorot_uniform_initializer
    table = tf.get_variable("table", [WORDS, WIDTH], initializer=make(seed=9))
    values += tf.matmul(tf.one_hot(words, WORDS), table)
    for layer in range(4):
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH], initializer=make(seed=layer))
        values = tf.tanh(tf.matmul(values, weights))
        if batch_norm:
            mean, variance = tf.nn.moments(values, [0])
            values = tf.nn.batch_normalization(values, mean, variance, None, None, 1e-3)
    scores = tf.matmul(values, table, transpose_b=True)
    # Of three dimensions, whose shapes the loss compares.
    labels, logits = tf.expand_dims(words, 1), tf.expand_dims(scores, 1)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(each, name="loss")
    return loss, scores, tf.train.MomentumOptimizer(0.5, 0.9).minimize(loss)


def steps(plan: tf.Plan, loss: Any, scores: Any, train: Any) -> list[Any]:
    tf.build_execution_graph(plan=plan)
    return [tf.run([loss, scores, train], FED)[:2] for _ in range(2)]


def test_a_plan_of_stages_trains_as_one_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tf.init(devices=4, cluster="2x8-v100")
    script = built()
    every = [tf.find_strategy(batch_size=BATCH, pipeline=n, microbatches=4) for n in (2, 3)]
    for count, plan in zip((2, 3), every, strict=True):
        assert (len(plan.stages), plan.microbatches, plan.devices) == (count, 4, 4)
        assert str(plan).startswith(f"plan mini_time on 4 devices: {count} stages, ")
        busiest = max(stage.busy_nanoseconds(4) for stage in plan.stages)
        assert busiest <= plan.executed_nanoseconds <= plan.time_nanoseconds
        assert 0 < plan.bubble < 1
        assert plan.peak_bytes == max(stage.peak_bytes or 0 for stage in plan.stages) > 0
    capsys.readouterr()
    plan = every[0]
    plan.save(tmp_path / "plan.json")
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    shown = capsys.readouterr().out
    assert "4 microbatches a step, 1F1B: a stage goes back with a microbatch" in shown
    assert f"devices wait {100 * plan.bubble:.0f} % of the step (the bubble)" in shown
    found = steps(tf.Plan.load(tmp_path / "plan.json"), *script)
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=BATCH, microbatches=4))
    limit = int(1.1 * plan.memory_bytes)
    frugal = tf.find_strategy(
        "mini_parallelism",
        batch_size=BATCH,
        pipeline=2,
        memory_limit_bytes=limit,
    )
    assert frugal.memory_bytes <= plan.memory_bytes
    assert frugal.microbatches in (2, 4, 8, 16)  # as few devices, by as many parts as that takes
    with pytest.raises(InfeasibleError, match=r"Got a least memory of .*\(2 stages, 16 mic"):
        tf.find_strategy(batch_size=BATCH, pipeline=2, memory_limit_bytes=limit // 9)
    times = tf.find_strategy("profiling", batch_size=BATCH, pipeline=2, microbatches=4)
    assert [point.devices for point in times.points] == [2, 4]
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=1)
    script = built()
    for own, truth in zip(found, steps(tf.find_strategy(batch_size=BATCH), *script), strict=True):
        np.testing.assert_allclose(own[0], truth[0], rtol=1e-5)
        np.testing.assert_allclose(own[1], truth[1], rtol=1e-4, atol=1e-6)


def test_a_stage_computes_again_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tf.init(devices=2)
    values = tf.placeholder(tf.float32, [512, WIDTH], name="examples")
    random = np.random.default_rng(0)
    for layer in range(6):
        make = tf.constant_initializer(random.normal(size=(WIDTH, WIDTH)) / 8)
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH], initializer=make)
        values = tf.tanh(tf.sin(tf.sigmoid(tf.matmul(values, weights))))
    loss = tf.reduce_mean(tf.square(values - 0.5))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    fed = {"examples:0": random.normal(size=(512, WIDTH)).astype(np.float32)}
    options: Any = {"pipeline": 2, "microbatches": 2, "schedule": "gpipe"}
    plans = [tf.find_strategy(**options)]
    assert not any(stage.recompute for stage in plans[0].stages)
    limit = int(1.3 * plans[0].frontier[0][0])
    for save_memory in (False, None):
        options["save_memory"] = save_memory
        plans.append(tf.find_strategy(memory_limit_bytes=limit, **options))
    assert {plan.schedule for plan in plans} == {"gpipe"}
    assert any(stage.recompute for stage in plans[1].stages)
    assert not any(operator.kept != "both" for operator in plans[1].operators)
    assert {operator.kept for operator in plans[2].operators} == {"both", "recomputed"}
    assert plans[2].looked_at == "searched: stages, stages with less kept"
    assert plans[2].time_nanoseconds < plans[1].time_nanoseconds
    assert (plans[2].peak_bytes or 0) <= limit
    assert plans[1].memory_bytes < plans[0].memory_bytes
    assert (plans[1].peak_bytes or 0) < (plans[0].peak_bytes or 0)
    assert plans[1].time_nanoseconds > plans[0].time_nanoseconds
    plans[1].save(tmp_path / "plan.json")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    shown = capsys.readouterr().out
    assert "the rest recomputed, in stages 0" in shown
    assert "2 microbatches a step, GPipe: all microbatches go forward before" in shown
    plans[1] = tf.Plan.load(tmp_path / "plan.json")
    losses = []
    for plan in plans:
        tf.build_execution_graph(plan=plan)
        losses.append([float(tf.run([loss, train], fed)[0]) for _ in range(2)])
        tf.run(tf.global_variables_initializer())
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert losses[2] == pytest.approx(losses[0], rel=1e-6)


def test_a_stage_divides_its_batch_and_stores_weights_in_pieces() -> None:
    def script() -> tuple[Any, Any]:
        tf.set_random_seed(1)
        values = tf.placeholder(tf.float32, [512, 256], name="x")
        for layer in range(4):
            make = tf.glorot_uniform_initializer(seed=layer)
            weights = tf.get_variable(f"w{layer}", [256, 256], initializer=make)
            values = tf.tanh(tf.matmul(values, weights))
        loss = tf.reduce_mean(tf.square(values - 0.1))
        return loss, tf.train.AdamOptimizer(0.01).minimize(loss)

    tf.init(devices=4, cluster="2x8-v100")
    fetched = script()
    request = replace(
        step_request(current(), PlanningOptions(batch_size=512, pipeline=False)), stage_peak=None
    )
    search = PipelineSearch(request, 4, (2, 2), (4,))
    for pipeline in search.frontier:
        plan = plan_for_pipeline(request, search, pipeline, "mini_time")
        found = {operator.name: operator.splits for operator in plan.operators}
        if found["MatMul"][0] and not found["MatMul"][2] and found["w0"] != ((), ()):
            break
    else:
        pytest.fail("no stage stores weights in pieces and divides its batch")
    fed = {"x:0": np.random.default_rng(0).normal(size=(512, 256)).astype(np.float32)}
    losses = []
    for devices in (4, 1):
        if devices == 1:
            tf.shutdown()
            tf.reset_default_graph()
            tf.init(devices=1)
            fetched = script()
            plan = tf.find_strategy(batch_size=512)
        tf.build_execution_graph(plan=plan)
        losses.append([float(tf.run(list(fetched), fed)[0]) for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("machines", "copies", "axes"),
    [(2, 2, {(2,)}), (3, 1, {(2,), (2, 2)})],  # each machine has both stages; a stage has two
)
def test_stages_and_copies_over_machines_train_as_one_device(
    machines: int,
    copies: int,
    axes: set[tuple[int, ...]],
    tmp_path: Path,
) -> None:
    values = load_cluster("2x8-v100").to_json()
    for level, count in zip(values["levels"], (machines, 2), strict=True):
        level["count"] = count
    (tmp_path / "cluster.json").write_text(json.dumps(values))
    tf.init(devices=2 * machines, cluster=str(tmp_path / "cluster.json"))
    built()
    plan = tf.find_strategy(batch_size=BATCH, pipeline=2, microbatches=2)
    plan.save(tmp_path / "plan.json")
    plan = tf.Plan.load(tmp_path / "plan.json")
    assert (plan.copies, {stage.mesh_axes for stage in plan.stages}) == (copies, axes)
    devices = [plan.devices_of_stage(number) for number in range(2)]
    assert devices == [(0, 2), (1, 3)] or sum(devices, ()) == tuple(range(6))
    found = []
    for each in (plan, None):
        tf.shutdown()
        tf.reset_default_graph()
        tf.init(devices=2 * machines if each else 1, cluster=str(tmp_path / "cluster.json"))
        script = built()
        each = each or tf.find_strategy(batch_size=BATCH, pipeline=False)
        found.append(steps(each, *script))
    for own, truth in zip(*found, strict=True):
        np.testing.assert_allclose(own[0], truth[0], rtol=1e-5)
        np.testing.assert_allclose(own[1], truth[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "rule", "got", "remedy", "options"),
    [
        (OptionError, "whole number of stages", "'two'", "give a number", {"pipeline": "two"}),
        (OptionError, "whole number of stages", "True", "give a number", {"pipeline": True}),
        (
            OptionError,
            "different microbatches",
            "microbatches=1",
            "at least 2",
            {"pipeline": 2, "microbatches": 1},
        ),
        (
            OptionError,
            "at least one device",
            "pipeline=5 on 4 devices",
            "at most 4 stages",
            {"pipeline": 5},
        ),
        (
            GraphError,
            "divides into microbatches",
            "3 microbatches",
            "multiple of 3",
            {"pipeline": 2, "microbatches": 3},
        ),
        (
            OptionError,
            "stages are searched by algorithm='ft'",
            "algorithm='tofu' with pipeline=2",
            "leave one of the two out",
            {"pipeline": 2, "algorithm": "tofu"},
        ),
        (
            OptionError,
            "a schedule",
            "'interleaved'",
            "Give one of these",
            {"pipeline": 2, "schedule": "interleaved"},
        ),
        (
            OptionError,
            "order in which microbatches pass the stages",
            "schedule='gpipe' with pipeline=False",
            "pipeline='auto'",
            {"pipeline": False, "schedule": "gpipe"},
        ),
    ],
)
def test_what_is_no_pipeline(
    fails: Any, kind: type[Exception], rule: str, got: str, remedy: str, options: Any
) -> None:
    tf.init(devices=4)
    built()
    fails(kind, rule, got, remedy, lambda: tf.find_strategy(batch_size=BATCH, **options))


def test_prices_have_a_message_for_each_tensor_that_stages_send_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tf.init(devices=3, cluster="2x8-v100")
    values = early = tf.tanh(tf.placeholder(tf.float32, [BATCH, WIDTH], name="examples") * 0.5)
    for layer in range(4):  # each reads the first values, too
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH])
        early = early if layer else tf.matmul(early, weights)
        values = tf.tanh(tf.matmul(values, weights) + early)
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(values)))
    found: list[tuple[PipelineSearch, Pipeline]] = []
    steps: list[StagedStep] = []

    def noted(request: Any, search: Any, pipeline: Any, *others: Any) -> tf.Plan:
        found.append((search, pipeline))
        return plan_for_pipeline(request, search, pipeline, *others)

    def built_step(*arguments: Any) -> StagedStep:
        steps.append(staged(*arguments))
        return steps[-1]

    monkeypatch.setattr("tensoropt.planner.offers.pipelines.plan_for_pipeline", noted)
    monkeypatch.setattr("tensoropt.planner.searches.pipeline_search.staged", built_step)
    tf.find_strategy(pipeline=3, microbatches=4, save_memory=False, rewrite=False)
    (search, pipeline), step = found[-1], steps[-1]
    sent = [op for op in step.graph if op.type == TRANSFER and "/microbatch_0/" in op.name]
    ends = [(step.stage_of[op.inputs[0].operator], step.stage_of[op.name]) for op in sent]
    assert (0, 2) in ends  # beyond the next stage
    priced = np.zeros(2, dtype=np.int64)
    for stage in pipeline.stages:
        points = search.profile(stage.first, stage.last, stage.devices, BATCH // 4, 1)
        assert points is not None
        priced += [points.column(f"{name}_tensors")[stage.point] for name in ("sent", "received")]
    assert priced.tolist() == [
        sum(here < there for here, there in ends),
        sum(here > there for here, there in ends),
    ]


def test_what_mixes_examples_is_named(fails: Any) -> None:
    tf.init(devices=2)
    built(batch_norm=True)
    rule, remedy = "no operator of its losses mixes examples", "microbatches and pipeline out"
    fails(
        GraphError,
        rule,
        "(SquaredDifference) combines examples with",
        remedy,
        lambda: tf.find_strategy(batch_size=BATCH, pipeline=2),
    )


def perceptron(batch_norm: bool = False) -> None:
    values = tf.placeholder(tf.float32, [None, 512])
    for layer in range(6):
        weights = tf.get_variable(f"weights{layer}", [512, 512])
        values = tf.tanh(tf.matmul(values, weights))
        if batch_norm:
            values -= tf.reduce_mean(values, axis=0)
    tf.train.AdamOptimizer().minimize(tf.reduce_mean(tf.square(values)))


def undominated(points: Sequence[tuple[int, int]]) -> bool:
    return all(a < c and b > d for (a, b), (c, d) in itertools.pairwise(points))


@pytest.mark.parametrize(
    ("devices", "batch", "limit", "stages", "microbatches"),
    [
        (4, 64, None, False, False),  # by bounds nothing is faster
        (1, 4096, 60 * 2**20, False, True),
        proof(4, 4096, 14 * 2**20, False, True),
    ],
)
def test_what_auto_plans(
    devices: int, batch: int, limit: int | None, stages: bool, microbatches: bool
) -> None:
    tf.init(devices=devices, cluster="2x8-v100")
    perceptron()
    options: Any = {"batch_size": batch, "memory_limit_bytes": limit}
    plan = tf.find_strategy(pipeline=None if stages else "auto", **options)
    assert bool(plan.stages) == stages
    assert (plan.microbatches > 1) == microbatches
    assert undominated(plan.points)
    alone: Any = {"pipeline": False, "microbatches": 1, "save_memory": False, "rewrite": False}
    if limit is None:
        others = tf.find_strategy(**options), tf.find_strategy(**alone, **options)
        assert all(replace(each, looked_at=plan.looked_at) == plan for each in others)
        return
    assert plan.memory_bytes <= limit / 1.1
    with pytest.raises(InfeasibleError):
        tf.find_strategy(**alone, **options)
    if stages:
        return
    if devices > 1:  # plans of several devices take dry runs of seconds
        return
    unasked = tf.find_strategy(**options)
    assert unasked.time_nanoseconds == pytest.approx(plan.time_nanoseconds, rel=0.02)
    faster = tf.find_strategy(pipeline="auto", batch_size=batch, memory_limit_bytes=2 * limit)
    assert faster.time_nanoseconds < plan.time_nanoseconds
    point = tf.find_strategy("profiling", pipeline="auto", parallelism=[devices], **options)
    assert point.points[0].time_seconds == pytest.approx(plan.time_nanoseconds / 1e9, rel=0.1)


@pytest.mark.parametrize("pipeline", [None, proof("auto")])
def test_where_nothing_fits_the_look_ends_with_a_proof_or_with_its_seconds(pipeline: Any) -> None:
    tf.init(devices=4, cluster="2x8-v100")
    perceptron()
    options: Any = {"batch_size": 4096, "pipeline": pipeline}
    proof = (
        r"None of the batch at once fits the memory: .* alone\. Not searched: stages, because "
        "variables and their gradients alone do not fit"
    )
    with pytest.raises(InfeasibleError, match=proof):
        tf.find_strategy(memory_limit_bytes=6 * 2**20, **options)
    ended = "Not searched: stages, because search_seconds were over; allow more"
    with pytest.raises(InfeasibleError, match=ended):
        tf.find_strategy(memory_limit_bytes=14 * 2**20, search_seconds=1e-9, **options)


def test_auto_names_what_excludes_stages() -> None:
    tf.init(devices=4, cluster="2x8-v100")
    perceptron(batch_norm=True)
    named = r"Not searched: stages, because .* 'Tanh_1' \(Tanh\) computes something other"
    with pytest.raises(InfeasibleError, match=named):
        tf.find_strategy(batch_size=4096, pipeline="auto", memory_limit_bytes=2**23)
    with pytest.raises(InfeasibleError) as unasked:
        tf.find_strategy(batch_size=4096, memory_limit_bytes=2**23)
    assert "Tanh" not in str(unasked.value)


def test_more_stages_than_operators(fails: Any) -> None:
    tf.init(devices=8, cluster="2x8-v100")
    fed = tf.placeholder(tf.float32, [None, 4])
    weights = tf.get_variable("weights", [4, 4])
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.matmul(fed, weights)))
    fails(
        GraphError,
        "has at least one operator",
        "8 stages of 2 operators",
        "fewer stages",
        lambda: tf.find_strategy(batch_size=BATCH, pipeline=8),
    )
