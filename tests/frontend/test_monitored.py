"""Monitored sessions, hooks, savers and summaries: TensorFlow's own, on TensorOpt's sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.frontend.job.job import current
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tests.oracles.equality import draw, random_prices

pytestmark = pytest.mark.usefixtures("graph")
plain = tensorflow.compat.v1
BATCH = 8


def regression(resource: bool = True) -> tuple[Any, Any, Any]:
    """Placeholder, loss and training operator of a linear model."""
    x = tf.placeholder(tf.float32, [None, 8], name="x")
    with tf.variable_scope("", use_resource=resource):
        weights = tf.get_variable("weights", [8, 4], initializer=tf.ones_initializer())
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)))
        train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, step)
    return x, loss, train


def batch(step: int = 0) -> Any:
    return np.random.default_rng(step).normal(size=(BATCH, 8)).astype(np.float32)


def plain_losses(steps: int) -> list[float]:
    with plain.Graph().as_default(), plain.Session() as session:
        x, loss, train = regression()
        session.run(plain.global_variables_initializer())
        return [session.run([loss, train], {x: batch(n)})[0] for n in range(steps)]


def train_monitored(session: Any, x: Any, loss: Any, train: Any) -> list[float]:
    found: list[float] = []
    while not session.should_stop():
        found.append(session.run([loss, train], {x: batch(len(found))})[0])
    return found


def test_a_monitored_session_trains_until_a_hook_stops_it() -> None:
    x, loss, train = regression()
    hooks = [
        tf.train.StopAtStepHook(last_step=4),
        tf.train.NanTensorHook(loss),
        tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=2),
        tf.train.StepCounterHook(every_n_steps=2, output_dir="unused", summary_writer=_Nothing()),
    ]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        found = train_monitored(session, x, loss, train)
    assert found == pytest.approx(plain_losses(4), rel=1e-5)
    assert current().plan is not None


class _Nothing:
    def add_summary(self, *_args: object) -> None:
        return


def test_a_monitored_session_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    truth = plain_losses(5)
    done = 0
    for last in (3, 5):
        with plain.Graph().as_default():
            x, loss, train = regression()
            tf.summary.scalar("loss", loss)
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path),
                save_checkpoint_steps=2,
                save_summaries_steps=1,
                hooks=[tf.train.StopAtStepHook(last_step=last)],
            ) as session:
                while not session.should_stop():
                    found = session.run([loss, train], {x: batch(done)})[0]
                    assert found == pytest.approx(truth[done], rel=1e-5)
                    done += 1
        assert done == last
        tf.shutdown()
        tf.init(devices=4)
    assert (tmp_path / "checkpoint").exists()
    assert list(tmp_path.glob("events*"))


def test_a_singular_monitored_session() -> None:
    x, loss, train = regression()
    with tf.train.SingularMonitoredSession(hooks=[tf.train.StopAtStepHook(num_steps=2)]) as session:
        assert train_monitored(session, x, loss, train) == pytest.approx(plain_losses(2), rel=1e-5)


def test_nan_stops_a_monitored_session() -> None:
    x, loss, train = regression()
    hook = tf.train.NanTensorHook(loss)
    with (
        pytest.raises(tf.train.NanLossDuringTrainingError),
        tf.train.MonitoredTrainingSession(hooks=[hook]) as session,
    ):
        session.run(train, {x: np.full([BATCH, 8], np.nan)})


def test_summaries_are_plain_tensorflows(tmp_path: Path) -> None:
    x, loss, train = regression()
    tf.summary.scalar("loss", loss)
    tf.summary.histogram("weights", tf.global_variables()[0])
    merged = tf.summary.merge_all()
    with tf.Session() as session, tf.summary.FileWriter(str(tmp_path), session.graph) as writer:
        session.run(tf.global_variables_initializer())
        for step in range(2):
            writer.add_summary(session.run([merged, train], {x: batch(step)})[0], step)
    (file,) = tmp_path.iterdir()
    losses = [
        value.simple_value
        for event in plain.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.tag == "loss"
    ]
    assert losses == pytest.approx(plain_losses(2), rel=1e-5)


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_plain_tensorflow_reads_a_checkpoint(tmp_path: Path, resource: bool) -> None:
    x, _, train = regression(resource)
    saver = tf.train.Saver(max_to_keep=1)
    names = [variable.name for variable in tf.global_variables()]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(2):
            session.run(train, {x: batch(step)})
            path = saver.save(session, str(tmp_path / "model"), global_step=step)
        values = dict(zip(names, session.run(tf.global_variables()), strict=True))
    assert tf.train.latest_checkpoint(str(tmp_path)) == path
    with plain.Graph().as_default(), plain.Session() as session:
        regression(resource)
        plain.train.Saver().restore(session, path)
        for variable in plain.global_variables():
            np.testing.assert_array_equal(session.run(variable), values[variable.name])


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_a_checkpoint_restores_into_any_layout(tmp_path: Path, resource: bool) -> None:
    """Checkpoints of plain TensorFlow are read and written under random strategies, and read."""
    graph = plain.get_default_graph()
    x, _, train = regression(resource)
    saver = tf.train.Saver()
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        session.run(train, {x: batch()})
        path = saver.save(session, str(tmp_path / "plain"))
        elements = [graph.as_graph_element(v, allow_operation=False) for v in tf.global_variables()]
        names = [element.name for element in elements]
        truth = session.run(names)
        session.run(train, {x: batch(1)})
        trained = session.run(names)
    fed = {"x": batch(1)}
    filename = saver.saver_def.filename_tensor_name.removesuffix(":0")
    mesh = Mesh.of(4)
    logical = import_graph(graph, [train.name], {"x": (BATCH, 8)})
    choices = strategy_choices(logical, mesh, frozenset({"x"}))
    split = 0
    for number in range(2):
        price = random_prices(number)

        def steps(
            shape: Any, dtype: str, source: Layout, target: Layout, price: Any = price
        ) -> tuple[ReshardStep, ...]:
            if source == target:
                return ()
            return plan_reshard(mesh, tuple(shape), tf.as_dtype(dtype).size, source, target, price)

        drawn = draw(logical, choices, mesh, np.random.default_rng(number))
        planned = configurations_of(choices, drawn.numbers)
        split += any(planned["weights"].splits)
        pipeline = Pipeline.of_mesh(SingleProcessWorld(mesh), planned, steps)
        options = StepOptions(frozenset({"x"}), 1)
        executor = Executor(graph, pipeline, options, Agreement(None))
        executor.run([], [saver.saver_def.restore_op_name], {filename: np.array(path, object)})
        for value, name in zip(truth, names, strict=True):
            np.testing.assert_array_equal(executor.run([name], [], {})[name], value)
        executor.run([], [train.name], fed)
        for name, value in zip(names, trained, strict=True):
            np.testing.assert_allclose(executor.run([name], [], {})[name], value, rtol=1e-5)
        again = np.array(str(tmp_path / f"again{number}"), object)
        executor.run([saver.saver_def.save_tensor_name], [], {filename: again})
        read = plain.train.load_checkpoint(str(again))
        np.testing.assert_allclose(read.get_tensor("weights"), trained[0], rtol=1e-5)

        moved = executor.variables.values()
        executor.variables.assign({name: 2 * value for name, value in moved.items()})
        for name, value in executor.variables.values().items():
            np.testing.assert_array_equal(value, 2 * moved[name])
        executor.close()
    assert split
