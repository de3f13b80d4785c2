"""Errors of planning, building and running: each states the rule, the value and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensoropt as tf
from tensoropt import errors

Regression = tuple[Any, Any, Any, Any]
Fails = Callable[[type[Exception], str, str, str, Callable[[], Any]], None]
FEATURES = np.ones((8, 4), np.float32)
TARGETS = np.ones(8, np.float32)


@pytest.fixture
def built(regression: Regression) -> Regression:
    """The regression, ready to run on four virtual ranks."""
    tf.init(devices=4)
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=8))
    return regression


# Finding a strategy


@pytest.mark.parametrize(
    ("option", "remedy"),
    [("minitime", "Did you mean 'mini_time'?"), ("fastest", "Give one of these.")],
)
def test_unknown_option(option: str, remedy: str, fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.OptionError,
        "mini_time, mini_parallelism, mini_cost, profiling",
        repr(option),
        remedy,
        lambda: tf.find_strategy(option=option),
    )


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        ({"memory_limit_bytes": 0}, "0"),
        ({"memory_limit_bytes": -(2**30)}, "-1073741824"),
        ({"option": "profiling", "parallelism": [4, 0]}, "0"),
        ({"option": "profiling", "memory_limits_bytes": [2**30, 0]}, "0"),
    ],
)
def test_counts_below_one(arguments: dict[str, Any], got: str, fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.OptionError,
        f"{list(arguments)[-1]} takes whole numbers from 1",
        got,
        "or leave it out",
        lambda: tf.find_strategy(batch_size=8, **arguments),
    )


COST: dict[str, Any] = {"option": "mini_cost"}


@pytest.mark.parametrize(
    ("arguments", "rule", "got", "remedy"),
    [
        ({"parallelism": [1]}, "parallelism is for 'profiling' and 'mini_cost'", "(1,)", "leave"),
        (
            {"memory_limits_bytes": [8], **COST},
            "memory_limits_bytes is for 'profiling'",
            "(8,)",
            "leave",
        ),
        ({"device_hour_cost": 2.0}, "device_hour_cost is for", "2.0", "leave"),
        ({"device_hour_cost": 0, **COST}, "device_hour_cost is a number above 0", "0", "correct"),
        ({"max_step_seconds": "1", **COST}, "max_step_seconds is a number", "'1'", "correct"),
        ({"samples": 8, **COST}, "a deadline is a number of samples", "=None", "give both"),
        ({"parallelism": [], **COST}, "parallelism takes at least one", "none", "give some"),
        ({"parallelism": [3], **COST}, "at most the job's 2 devices", "[3]", "more ranks"),
        (
            {"samples": 8, "deadline_seconds": 1, "max_step_seconds": 1, **COST},
            "a step has one deadline",
            "max_step_seconds=1",
            "leave",
        ),
        (
            {"option": "profiling", "memory_limits_bytes": [8], "memory_limit_bytes": 8},
            "a search has one memory limit",
            "(8,)",
            "leave",
        ),
    ],
)
def test_arguments_about_a_budget(
    arguments: dict[str, Any],
    rule: str,
    got: str,
    remedy: str,
    regression: Regression,
    fails: Fails,
) -> None:
    tf.init(devices=2)
    call = partial(tf.find_strategy, batch_size=8, **arguments)
    fails(errors.OptionError, rule, got, remedy, call)


def test_samples_of_a_step_that_is_fed_no_batch(fails: Fails) -> None:
    tf.init(devices=2)
    weights = tf.get_variable("weights", [4])
    tf.GradientDescentOptimizer(1e-3).minimize(tf.reduce_sum(weights))
    call = partial(tf.find_strategy, "mini_cost", samples=8, deadline_seconds=1)
    fails(errors.OptionError, "samples are counted by the batch", "none", "max_step_seconds", call)


def test_unknown_batch_without_batch_size(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.GraphError,
        "known shapes",
        "'features', 'targets'",
        "find_strategy(batch_size=...)",
        tf.find_strategy,
    )


def test_a_shape_that_contradicts_its_placeholder(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.OptionError,
        "a shape fits its placeholder",
        "[8, 5] for 'features'",
        "correct batch_size or shapes",
        lambda: tf.find_strategy(shapes={regression[0]: [8, 5], regression[1]: [8]}),
    )


def test_a_step_that_is_not_in_the_graph(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.FetchError,
        "the script's graph",
        "'train'",
        "operators 'operator'",
        lambda: tf.find_strategy(fetches=["train"], batch_size=8),
    )


@pytest.mark.usefixtures("sums_alone")
def test_memory_limit_below_the_frontier(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    free = tf.find_strategy(batch_size=64)
    counts = (1, 2, 4, 8)
    alone: Any = {"pipeline": False, "microbatches": 1, "save_memory": False}
    nothing = tf.find_strategy("profiling", batch_size=64, parallelism=counts, memory_limit_bytes=1)
    least = {point.devices: point.memory_bytes for point in nothing}
    assert min(memory for memory, _ in free.frontier) == least[2]
    assert least[1] > least[2] > least[4] > least[8]
    limit = int(least[4] * free.cluster.safety_factor) + 1  # what four devices take, not three
    fails(
        errors.InfeasibleError,
        "at most the memory limit of a device",
        f"a least memory of {least[2]:,} bytes",
        "Use 4 devices, the fewest that would fit, or raise the limit to ",
        lambda: tf.find_strategy(batch_size=64, memory_limit_bytes=limit, **alone),
    )
    with pytest.raises(errors.InfeasibleError) as caught:
        tf.find_strategy(batch_size=64, memory_limit_bytes=limit, **alone)
    enough = int(str(caught.value).rsplit("to ", 1)[1].split()[0].replace(",", ""))
    assert (
        tf.find_strategy(batch_size=64, memory_limit_bytes=enough, **alone).memory_bytes == least[2]
    )
    with pytest.raises(errors.InfeasibleError):
        tf.find_strategy(batch_size=64, memory_limit_bytes=enough - 2, **alone)
    with pytest.raises(errors.InfeasibleError, match="No number of devices up to 64 would fit"):
        tf.find_strategy("mini_parallelism", batch_size=64, memory_limit_bytes=10)


def test_no_operator_that_can_be_split(capsys: pytest.CaptureFixture[str]) -> None:
    tf.init(devices=2)
    values = tf.placeholder(tf.float32, [1], name="values")
    different = tf.unique(values * 2.0)[0]
    total = tf.reduce_sum(different) + 0.0 * tf.cast(tf.shape(different)[0], tf.float32)
    plan = tf.find_strategy(fetches=[total])
    assert not any("Shape" in note for note in plan.notes)  # no loss, as it is but a number
    assert any("no operator of this graph can be split" in note for note in plan.notes)
    assert any("type Unique have no description" in note for note in plan.notes)
    summary = tf.summary.merge([tf.summary.histogram("values", values)])  # text is never split
    notes = tf.find_strategy(fetches=[total, summary]).notes
    assert notes[:-1] == plan.notes[:-1]
    for said in (notes, plan.notes):  # of another number of operators
        assert "a batch of 1 cannot be split over 2 devices" in said[-1]
    assert "tensoropt: no operator of this graph can be split" in capsys.readouterr().err
    tf.build_execution_graph(plan=plan)
    assert tf.run(total, {values: np.array([3])}) == 6


@pytest.mark.parametrize("devices", [1, 2])
def test_the_cost_of_a_loop_is_unknown(devices: int) -> None:
    tf.init(devices=devices)
    values = tf.placeholder(tf.float32, [4, 4], name="values")
    whole = tf.reduce_sum(values)
    assert not any("unknown" in note for note in tf.find_strategy(fetches=[whole]).notes)
    repeated = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v @ v), [0, values])[1]
    chosen = tf.cond(whole > 0, lambda: repeated, lambda: -repeated)
    (note,) = [note for note in tf.find_strategy(fetches=[chosen]).notes if "cost of" in note]
    assert note.startswith("the cost of 1 StatelessIf, 1 StatelessWhile is unknown: ")


# Building


def test_unknown_engine(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    plan = tf.find_strategy(batch_size=8)
    fails(
        errors.OptionError,
        "an engine is one of tensorflow",
        "'tensorflwo'",
        "Did you mean 'tensorflow'?",
        lambda: tf.build_execution_graph(engine="tensorflwo", plan=plan),
    )
    with pytest.raises(errors.OptionError, match=r"one of tensorflow\. Got Plan") as raised:
        tf.build_execution_graph(plan)  # type: ignore[arg-type]
    assert len(str(raised.value)) < 200


def test_a_graph_without_operators(fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.GraphError,
        "TensorFlow's default graph",
        "a graph without operators",
        "graph.as_default()",
        lambda: tf.find_strategy(batch_size=8),
    )


def test_no_plan(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    profile = tf.find_strategy("profiling", batch_size=8)
    for plan, name in ((None, "NoneType"), (profile, "ParallelismProfile")):
        fails(
            errors.OptionError,
            "built for a plan",
            name,
            "find_strategy(option='mini_time')",
            partial(tf.build_execution_graph, plan=plan),
        )


def test_a_plan_for_another_graph(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    plan = tf.find_strategy(batch_size=8)
    tf.reset_default_graph()
    tf.placeholder(tf.float32, [8])
    other = (errors.PlanError, "the graph it was made for", "a plan whose graph differs")
    fails(*other, "call find_strategy again", lambda: tf.build_execution_graph(plan=plan))
    tf.reset_default_graph()
    features = tf.placeholder(tf.float32, [None, 4], name="features")
    weights = tf.get_variable("weights", [4, 8])
    tf.GradientDescentOptimizer().minimize(tf.reduce_sum(tf.matmul(features, weights)))
    fails(*other, "call find_strategy again", lambda: tf.build_execution_graph(plan=plan))


def test_a_plan_for_another_number_of_devices(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    plan = tf.find_strategy(batch_size=8)
    tf.shutdown()
    tf.init(devices=4)
    fails(
        errors.PlanError,
        "the number of devices it was made for",
        "a plan for 2 devices in a job of 4",
        "start it with 2 ranks",
        lambda: tf.build_execution_graph(plan=plan),
    )


# Running


def test_run_before_the_execution_graph(regression: Regression, fails: Fails) -> None:
    tf.init(devices=2)
    fails(
        errors.StateError,
        "once its execution graph is built",
        "run before that",
        "build_execution_graph(engine='tensorflow', plan=plan)",
        lambda: tf.run(regression[2]),
    )


def test_feeds_that_do_not_fit(built: Regression, fails: Fails) -> None:
    features, targets, loss, _ = built
    fails(
        errors.FeedError,
        "has its placeholder's shape",
        "[8, 5] for 'features', declared as [None, 4]",
        "feed the whole global batch in that shape",
        lambda: tf.run(loss, {features: np.ones((8, 5)), targets: TARGETS}),
    )
    fails(
        errors.FeedError,
        "converts to its placeholder's type",
        "list for 'features' (float32)",
        "Convert it first",
        lambda: tf.run(loss, {features: [["a", "b", "c", "d"]], targets: TARGETS}),
    )
    fails(
        errors.FeedError,
        "every placeholder that a fetch needs is fed",
        "no value for 'targets'",
        "add it to feed_dict",
        lambda: tf.run(loss, {features: FEATURES}),
    )
    fails(
        errors.FeedError,
        "a fed tensor is in the script's graph",
        "'freatures:0': The name",
        "or its name, 'operator:0'",
        lambda: tf.run(loss, {"freatures:0": FEATURES, targets: TARGETS}),
    )
    fails(
        errors.GraphError,
        "the shapes of fed tensors fit together",
        "'features': [6, 4], 'targets': [8]",
        "the same number of examples",
        lambda: tf.run(loss, {features: FEATURES[:6], targets: TARGETS}),
    )
    fails(
        errors.FeedError,
        "a fed value is known",
        "the tensor 'targets:0' for 'features:0'",
        "run it first",
        lambda: tf.run(loss, {features: targets, targets: TARGETS}),
    )


def test_fetches_that_are_not_in_the_graph(built: Regression, fails: Fails) -> None:
    features, targets, _, _ = built
    with tf.Graph().as_default():
        stranger = tf.constant(1.0)
    for fetch in (stranger, "nothing:0", "loss:7", "nothing", 3.5):
        fails(
            errors.FetchError,
            "of the script's graph",
            "",
            "Tensors are named 'operator:0'",
            partial(tf.run, fetch, {features: FEATURES, targets: TARGETS}),
        )


def test_an_error_leaves_the_job_usable(built: Regression) -> None:
    features, targets, loss, _ = built
    with pytest.raises(errors.FeedError):
        tf.run(loss, {features: FEATURES})
    assert tf.run(loss, {features: FEATURES, targets: TARGETS}) == pytest.approx(31.0**2)
