"""The three options, what a plan promises, and plans as files."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from reproduction.baselines.brute_force import brute_force
from tensoropt.errors import InfeasibleError, OptionError, PlanError
from tensoropt.frontend.inputs.shapes import fed_shapes, note_examples
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning import find_strategy
from tensoropt.frontend.planning.training_step import imported_step
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import problem_of, search_frontier

Regression = tuple[Any, Any, Any, Any]


def tiny() -> Any:
    """A step with so few operators that every strategy can be tried."""
    values = tf.placeholder(tf.float32, [512, 64], name="values")
    weights = tf.get_variable("weights", [64, 128], initializer=tf.ones_initializer())
    return tf.nn.tanh(tf.matmul(values, weights), name="output")


def by_enumeration(fetches: list[Any], devices: int) -> list[tuple[int, int]]:
    """Sums of every strategy that no other beats, by trying them all. The search has the same."""
    script = tf.get_default_graph()
    roots = [fetch.op.name for fetch in fetches]
    fed, batched = fed_shapes(script, None, None)
    graph = imported_step(script, roots, fed)
    request = Request(graph, current().cluster_at, devices, tuple(roots), fed, batched)
    frontier = brute_force(problem_of(request, devices).problem)
    assert search_frontier(request, devices)[1].points == frontier.points
    return frontier.points


@pytest.mark.parametrize("devices", [2, 4])
def test_the_frontier_is_that_of_all_strategies(devices: int) -> None:
    tf.init(devices=devices, cluster="2x8-v100")
    output = tiny()
    plan = tf.find_strategy(fetches=[output])
    points = by_enumeration([output], devices)
    assert set(plan.frontier) <= set(points)  # those whose peaks no other beats
    assert plan.frontier[-1][1] == points[-1][1]
    assert plan.exact
    assert plan.devices == devices
    assert plan.time_nanoseconds == min(time for _, time in plan.frontier)


def perceptron() -> None:
    """A training step whose frontier has many points."""
    values = tf.placeholder(tf.float32, [None, 64], name="values")
    for layer in range(2):
        weights = tf.get_variable(f"weights{layer}", [values.shape[-1], 512])
        values = tf.nn.relu(tf.matmul(values, weights))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(values))


@pytest.mark.usefixtures("sums_alone")
def test_mini_time_is_the_fastest_that_fits() -> None:
    tf.init(devices=4, cluster="2x8-v100")
    perceptron()
    alone: Any = {"batch_size": 480, "pipeline": False, "microbatches": 1, "save_memory": False}
    free = tf.find_strategy("mini_time", **alone)
    points = sorted(free.frontier)
    assert len(points) > 2
    assert [time for _, time in points] == sorted((time for _, time in points), reverse=True)
    for number, (memory, time) in enumerate(points):
        limit = int(memory * free.cluster.safety_factor) + 1
        plan = tf.find_strategy("mini_time", memory_limit_bytes=limit, **alone)
        assert plan.memory_limit_bytes is not None
        fitting = [t for m, t in points if m <= plan.memory_limit_bytes]
        assert plan.executed_nanoseconds == min(fitting) == time
        assert plan.memory_bytes == memory <= limit / free.cluster.safety_factor
        if number:  # a tighter limit gave a slower, smaller plan
            assert memory > points[number - 1][0]
            assert time < points[number - 1][1]
    smallest, fastest = (
        tf.find_strategy(memory_limit_bytes=int(points[end][0] * 1.1) + 1, **alone)
        for end in (0, -1)
    )
    assert smallest.configurations != fastest.configurations


@pytest.mark.usefixtures("sums_alone")
def test_mini_parallelism_is_the_fewest_that_fit(regression: Regression) -> None:
    tf.init(devices=8)
    least = {
        devices: min(
            point.memory_bytes
            for point in tf.find_strategy(
                "profiling", batch_size=64, parallelism=[devices], memory_limit_bytes=1
            )
        )
        for devices in (1, 2, 4)
    }
    assert least[1] > least[2] > least[4]
    for devices, memory in least.items():
        limit = int(memory * 1.1) + 1
        alone: Any = {"pipeline": False, "microbatches": 1, "save_memory": False}
        plan = tf.find_strategy(
            "mini_parallelism", batch_size=64, memory_limit_bytes=limit, **alone
        )
        assert plan.devices == devices
        assert plan.option == "mini_parallelism"
        assert plan.memory_bytes <= limit


def test_a_plan_on_fewer_devices_runs(regression: Regression) -> None:
    features, targets, loss, step = regression
    tf.init(devices=4)
    plan = tf.find_strategy("mini_parallelism", batch_size=8)
    assert plan.devices == 1
    tf.build_execution_graph(plan=plan)
    feed = {features: np.ones((8, 4)), targets: np.ones(8)}
    assert tf.run([loss, step], feed)[0] == pytest.approx(31.0**2)
    assert tf.summary()["ranks"] == 1
    assert tf.size() == 4  # another graph may have more of the virtual ranks


def test_profiling_has_a_point_per_parallelism(
    regression: Regression, capsys: pytest.CaptureFixture[str]
) -> None:
    tf.init(devices=6)
    profile = tf.find_strategy("profiling", batch_size=48)
    assert [point.devices for point in profile] == [1, 2, 4, 6]
    lines = capsys.readouterr().out.splitlines()
    header = ["devices", "time", "(ms)", "speedup", "memory", "(MiB)", "samples/s"]
    assert lines[0].split() == [*header, "network", "plan", "predicted"]
    assert [line.split()[0] for line in lines[2:6]] == ["1", "2", "4", "6"]
    for point in profile:
        tf.shutdown()
        tf.init(devices=point.devices)
        plan = tf.find_strategy(batch_size=48)
        assert point.time_seconds == plan.predicted_step_seconds
        assert point.memory_bytes == plan.memory_bytes
        assert point.fits


def test_a_plan_of_least_cost_meets_its_deadline_and_runs(
    regression: Regression, capsys: pytest.CaptureFixture[str]
) -> None:
    features, targets, loss, step = regression
    tf.init(devices=4)
    one, two = tf.find_strategy(
        "profiling",
        batch_size=8,
        parallelism=[2, 1],
        memory_limits_bytes=[2**30],
        device_hour_cost=1.5,
    )
    assert (one.devices, two.devices) == (1, 2)
    assert one.time_seconds is not None
    assert one.million_samples_cost == pytest.approx(one.time_seconds / 8 * 1e6 / 3600 * 1.5)
    assert "cost of 1M samples" in capsys.readouterr().out
    options: Any = {"batch_size": 8, "parallelism": (1, 2, 64), "device_hour_cost": 1.5}
    plan = tf.find_strategy("mini_cost", samples=16, deadline_seconds=60, **options)
    assert (plan.devices, plan.option) == (1, "mini_cost")
    assert str(one) in capsys.readouterr().err
    with pytest.raises(InfeasibleError, match=r"takes at most 5e-10 s\. Got .* on 1 device"):
        tf.find_strategy("mini_cost", samples=9, deadline_seconds=1e-9, **options)
    tf.build_execution_graph(plan=plan)
    feed = {features: np.ones((8, 4)), targets: np.ones(8)}
    assert tf.run([loss, step], feed)[0] == pytest.approx(31.0**2)
    assert tf.summary()["ranks"] == 1


@pytest.mark.usefixtures("sums_alone")
def test_profiling_says_what_does_not_fit(
    regression: Regression, capsys: pytest.CaptureFixture[str]
) -> None:
    tf.init(devices=4)
    one, four = tf.find_strategy("profiling", batch_size=64, parallelism=[4, 1])
    assert (one.devices, four.devices) == (1, 4)
    limit = int(four.memory_bytes * 1.1) + 1
    capsys.readouterr()
    one, four = tf.find_strategy(
        "profiling",
        batch_size=64,
        parallelism=(1, 4),
        memory_limit_bytes=limit,
        pipeline=False,
        microbatches=1,
        save_memory=False,
    )
    assert not one.fits
    assert four.fits
    assert one.memory_bytes > limit / 1.1
    assert "does not fit" in capsys.readouterr().out.splitlines()[2]


def test_a_plan_comes_back_from_its_file_and_runs(regression: Regression, tmp_path: Path) -> None:
    features, targets, loss, step = regression
    feed = {features: np.ones((8, 4)), targets: np.ones(8)}
    tf.init(devices=4)
    plan = tf.find_strategy(batch_size=8)
    file = tmp_path / "plan.json"
    plan.save(file)
    loaded = tf.Plan.load(file)
    assert loaded == plan
    assert tf.Plan.load(str(file)).to_json() == plan.to_json()
    tf.build_execution_graph(plan=plan)
    tf.run(step, feed)
    value = tf.run(loss, feed)
    tf.build_execution_graph(plan=loaded)
    tf.run(step, feed)
    assert tf.run(loss, feed) == value


def test_the_same_script_finds_the_same_plan(regression: Regression) -> None:
    tf.init(devices=4)
    assert tf.find_strategy(batch_size=64) == tf.find_strategy(batch_size=64)


def test_the_batch_dimension() -> None:
    """It is a placeholder's first dimension if that is unknown, or equals the batch size."""
    tf.init(devices=2)
    batched = tf.placeholder(tf.float32, [None, 4], name="batched")
    fixed = tf.placeholder(tf.float32, [8, 4], name="fixed")
    other = tf.placeholder(tf.float32, [6], name="other")
    scalar = tf.placeholder(tf.float32, [], name="scalar")
    inner = tf.placeholder(tf.float32, [3, None], name="inner")
    total = tf.add_n([tf.reduce_sum(x) for x in (batched, fixed, other, scalar, inner)])
    plan = tf.find_strategy(fetches=[total], batch_size=8, shapes={inner: [3, 8]})
    assert plan.batch_placeholders == ("batched", "fixed")
    expected = {"batched": (8, 4), "fixed": (8, 4), "other": (6,), "scalar": (), "inner": (3, 8)}
    assert plan.shapes == expected
    tf.build_execution_graph(plan=plan)
    feed = {x: np.ones(expected[x.op.name]) for x in (batched, fixed, other, scalar, inner)}
    assert tf.run(total, feed) == 32 + 32 + 6 + 1 + 24


def test_what_one_step_runs() -> None:
    """A step runs the optimizers' operators, or the named fetches, or operators without readers."""
    tf.init(devices=2)
    values = tf.placeholder(tf.float32, [8, 4], name="values")
    weights = tf.get_variable("weights", [4, 4])
    loss = tf.reduce_sum(tf.matmul(values, weights), name="loss")
    assert tf.find_strategy().roots == ("loss",)
    assert tf.find_strategy(fetches=["MatMul:0"]).roots == ("MatMul",)
    step = tf.GradientDescentOptimizer().minimize(loss)
    assert tf.find_strategy().roots == (step.name,)
    assert tf.find_strategy(fetches=[loss, step, loss]).roots == ("loss", step.name)


def _regression(batch: int | None = None) -> tuple[Any, Any]:
    fed = tf.placeholder(tf.float32, [batch, 512], name="fed")
    values = fed
    for layer in range(3):
        values = tf.tanh(tf.matmul(values, tf.get_variable(f"weights{layer}", [512, 512])))
    return fed, tf.reduce_mean(tf.square(values))


def test_a_plan_that_splits_nothing_says_why() -> None:
    tf.init(devices=2, cluster="2x8-v100")
    tf.train.GradientDescentOptimizer(0.1).minimize(_regression()[1])
    plan = tf.find_strategy(batch_size=1, algorithm="data_parallel")
    (note,) = [note for note in plan.notes if "are split" in note]
    assert "a batch of 1 cannot be split over 2 devices; take a batch of at least 2" in note
    for batch in (4095, 4096):
        plan = tf.find_strategy(batch_size=batch)
        assert not any("are split" in note for note in plan.notes)
    plan = tf.find_strategy(batch_size=2)
    assert any("more splits are predicted to be slower" in note for note in plan.notes)
    alone = "ms on one device, the fastest number of devices here: run with mpirun -np 1"
    assert str(plan).endswith(alone)


def test_a_batch_size_that_nothing_is_fed_by_is_refused(fails: Any) -> None:
    tf.init(devices=2)
    tf.train.GradientDescentOptimizer(0.1).minimize(_regression(64)[1])
    fails(
        OptionError,
        "is the first dimension of what the script feeds",
        "128, where the script has 'fed' of [64, 512]",
        "leave the batch size out",
        lambda: tf.find_strategy(batch_size=128),
    )


def test_the_batch_size_is_that_of_inputs_that_count_examples(fails: Any) -> None:
    """In a step of `parallelize`, which feeds variables, too."""
    tf.init(devices=2)
    weights = tf.placeholder(tf.float32, [128], name="weights")
    loss = _regression(64)[1] + tf.reduce_sum(weights)
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    note_examples(tf.get_default_graph(), ["fed"])
    fails(
        OptionError,
        "is the first dimension of what the script feeds",
        "128, where the script has 'fed' of [64, 512];",
        "leave the batch size out",
        lambda: tf.find_strategy(batch_size=128),
    )


def test_a_plan_before_the_optimizer_says_so_and_trains_nothing() -> None:
    tf.init(devices=2)
    fed, loss = _regression(8)
    plan = tf.find_strategy()
    assert any("plans no training" in note for note in plan.notes)
    tf.build_execution_graph(plan=plan)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    fed_values = {fed: np.ones((8, 512), np.float32)}
    assert np.isfinite(tf.run(loss, fed_values))
    with pytest.raises(PlanError, match="call find_strategy and build_execution_graph after"):
        tf.run(train, fed_values)
    plan = tf.find_strategy()
    assert not any("plans no training" in note for note in plan.notes)
    tf.build_execution_graph(plan=plan)
    tf.run(train, fed_values)


def test_the_declared_options_are_its_arguments() -> None:
    declared = [option.name for option in fields(PlanningOptions)]
    assert list(inspect.signature(tf.find_strategy).parameters) == declared
    assert ["option", *find_strategy._Keywords.__annotations__] == declared
    assert all(f" {name}: " in tf.find_strategy.__doc__ for name in declared)
