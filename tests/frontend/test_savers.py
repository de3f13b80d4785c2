"""Savers on TensorOpt's sessions: checkpoints in slices, for any layout, whole at all times."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.execution.agreement.work_beside import Work
from tensoropt.execution.checkpoints import files as checkpoint_files
from tensoropt.execution.checkpoints import slices as checkpoint_slices
from tensoropt.execution.runtime.executor import Executor
from tensoropt.frontend.job.job import current
from tensoropt.frontend.session import meta_graphs
from tensoropt.frontend.session.saver_operators import restored_by, saved_by
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, random_prices

pytestmark = pytest.mark.usefixtures("graph")
plain = tensorflow.compat.v1


def model() -> Any:
    """A training operator of variables of all kinds, and Adam's slots of them."""
    product = tf.constant(0.0)
    for resource in (False, True):
        with tf.variable_scope(f"resource{resource}", use_resource=resource):
            product += tf.reduce_sum(tf.square(tf.get_variable("weights", [48, 24])))
            halves = tf.fixed_size_partitioner(2)
            parts = tf.get_variable("parts", [96, 24], partitioner=halves)
            product += tf.reduce_sum(tf.square(parts))
    odd = tf.get_variable("odd", [24, 17], tf.float64)
    product += tf.cast(tf.reduce_sum(tf.square(odd)), tf.float32)
    tf.get_variable("empty", [0, 24], initializer=tf.zeros_initializer(), trainable=False)
    tf.get_variable("text", initializer=tf.constant([["a"] * 24, ["bc"] * 24]), trainable=False)
    tf.get_variable("whole", [8, 24], tf.uint16, tf.ones_initializer(), trainable=False)
    step = tf.train.get_or_create_global_step()
    return tf.train.AdamOptimizer(0.1).minimize(product, step)


def drawn(devices: int, random: np.random.Generator) -> Executor:
    """An executor under whose strategy every variable is split at random."""
    graph, mesh = plain.get_default_graph(), Mesh.of(devices)
    planned = {}
    for variable in tf.global_variables():
        shape = variable.shape.as_list()
        splits: list[tuple[int, ...]] = [()] * len(shape)
        for axis in random.permutation(len(mesh.axes)):
            dim = int(random.integers(-1, len(shape))) if variable.dtype != tf.string else -1
            wider = tuple(sorted([*splits[dim], int(axis)])) if dim >= 0 else ()
            if dim >= 0 and shape[dim] % mesh.pieces(wider) == 0:
                splits[dim] = wider
        planned[variable.op.name] = Configuration(tuple(splits))
    return executor_of(graph, mesh, planned, random_prices(0))


def test_a_checkpoint_goes_from_any_layout_to_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values stay equal, bit for bit, from plain TensorFlow through 4, 1, ... 4 ranks and back."""
    monkeypatch.setattr(checkpoint_slices, "_SLICE_BYTES", 512)
    train = model()
    saver = tf.train.Saver()
    names = [plain.get_default_graph().as_graph_element(v).name for v in tf.global_variables()]
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        session.run(train)
        truth = dict(zip(names, session.run(names), strict=True))
        path = saver.save(session, str(tmp_path / "plain"))
    graph, saver_def = plain.get_default_graph(), saver.saver_def
    saved = saved_by(graph, saver_def.save_tensor_name)
    restored = restored_by(graph, saver_def.restore_op_name, saver_def.filename_tensor_name)
    assert saved is not None
    assert restored is not None
    assert len(restored) == len(names)
    assert list(saved.others) == ["text", "whole"]  # of which TensorFlow has no slices
    random = np.random.default_rng(0)
    for number, devices in enumerate((4, 1, 2, 3, 8, 4)):
        executor = drawn(devices, random)
        executor.variables.restore(restored, path)
        for name, value in executor.run(names, [], {}).items():
            np.testing.assert_array_equal(value, truth[name], err_msg=name)
        path = str(tmp_path / f"number{number}")
        text = executor.run(list(saved.others.values()), [], {})
        executor.save(saved.variables, dict(zip(saved.others, text.values(), strict=True)), path)
        executor.close()
    kept = {name for name, _ in plain.train.list_variables(str(tmp_path / "plain"))}
    assert {name for name, _ in plain.train.list_variables(path)} == kept
    with plain.Session() as session:
        saver.restore(session, path)
        for name, value in zip(names, session.run(names), strict=True):
            np.testing.assert_array_equal(value, truth[name], err_msg=name)


WAYS: dict[str, Callable[[Any], Any]] = {
    "renamed": lambda v: tf.train.Saver({"other": v}),
    "sharded": lambda _: tf.train.Saver(sharded=True),
    "of the older format": lambda _: tf.train.Saver(write_version=tf.train.SaverDef.V1),
    "that reshapes": lambda v: tf.train.Saver([v], reshape=True),
    "of another's operators": lambda _: tf.train.Saver(saver_def=tf.train.Saver().saver_def),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_saver_that_is_built_otherwise(way: str, tmp_path: Path) -> None:
    """A script with a table, which is saved beside variables."""
    with plain.Graph().as_default() as graph:
        table = plain.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, default_value=0.0, empty_key=-1, deleted_key=-2
        )
        weights = tf.get_variable("weights", initializer=np.arange(16.0).reshape(4, 4))
        grown = tf.assign(weights, 2 * weights).op
        found = table.lookup(tf.constant([3], tf.int64))
        saver = WAYS[way](weights)
        truth = np.arange(0.0, 32.0, 2.0).reshape(4, 4)
        with tf.Session(graph=graph) as session:
            session.run(weights.initializer)
            session.run([grown, found])
            path = saver.save(session, str(tmp_path / "model"), global_step=3)
            session.run(grown)
            saver.restore(session, path)
            np.testing.assert_array_equal(session.run(weights), truth)
        names = {name for name, _ in plain.train.list_variables(path)}
        assert names >= {"other" if way == "renamed" else "weights"}
        with plain.Session() as session:
            saver.restore(session, path)
            np.testing.assert_array_equal(session.run(weights), truth)


class _Killed(BaseException):
    """Ends a save as a kill does: nothing of ours gets to run any more."""


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Kills a save before one of its changes of files; holds the number of changes until then."""
    left: list[int] = []

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            if left:
                left[0] -= 1
                if left[0] < 0:
                    raise _Killed
            return change(*args, **kwargs)

        return counting

    changes = [(checkpoint_files.gfile, name) for name in ("mkdir", "remove", "rename", "rmtree")]
    for module, name in [*changes, (checkpoint_files, "sync")]:
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    return left


@pytest.mark.parametrize("is_beside", [False, True], ids=["at once", "beside"])
@pytest.mark.parametrize("is_numbered", [False, True], ids=["overwritten", "numbered"])
@pytest.mark.parametrize("shape", [[], [8]], ids=["scalar", "vector"])
def test_a_save_that_is_killed_leaves_the_checkpoint_before(
    is_beside: bool, is_numbered: bool, shape: list[int], tmp_path: Path, kills: list[int]
) -> None:
    """A save is killed before each change of files; plain TensorFlow loads the checkpoint."""
    tf.init(save_beside=is_beside)
    values = tf.get_variable("values", shape, initializer=tf.zeros_initializer())
    grown = tf.assign_add(values, tf.ones(shape))
    saver = tf.train.Saver(max_to_keep=2)
    found: list[int] = []
    with tf.Session() as session:

        def save(step: int) -> None:
            session.run(grown)
            saver.save(session, str(tmp_path / "model"), step if is_numbered else None)
            current().beside.wait()

        session.run(values.initializer)
        for change in itertools.count():
            save(2 * change + 1)
            kills[:] = [change]
            with contextlib.suppress(_Killed):
                save(2 * change + 2)
            is_over = kills != [-1]
            kills.clear()
            path = tf.train.latest_checkpoint(str(tmp_path))
            loaded = plain.train.load_checkpoint(path).get_tensor("values")
            assert (loaded == loaded.max()).all()
            found.append(int(loaded.max()) - 2 * change - 1)
            if is_over:
                break
        save(step := 2 * change + 3)
    assert set(found) == {0, 1}
    assert found == sorted(found)
    left = {path.name for path in tmp_path.iterdir()}
    name = f"model-{step}" if is_numbered else "model"
    assert {f"{name}.index", f"{name}.meta", "checkpoint"} <= left
    assert not any(each.endswith(".saving") for each in left)
    data = [each for each in left if each.startswith(f"{name}.data")]
    assert {each[-5:] for each in data} == {f"{len(data):05}"}


def test_the_graph_beside_checkpoints_is_exported_again_only_if_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: list[Any] = []
    export = meta_graphs._export
    monkeypatch.setattr(
        meta_graphs, "_export", lambda *a, **k: exports.append(a) or export(*a, **k)
    )
    values = tf.get_variable("values", [3], initializer=tf.zeros_initializer())
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(values.initializer)
        for number, count in ((0, 1), (1, 1), (2, 2), (3, 3)):
            if number == 2:
                tf.identity(values, "added")
            if number == 3:
                tf.add_to_collection("kept", values)
            saver.save(session, str(tmp_path / "model"), number)
            assert len(exports) == count
    graphs = [(tmp_path / f"model-{number}.meta").read_bytes() for number in range(4)]
    assert graphs[0] == graphs[1]
    truth = saver.export_meta_graph(strip_default_attrs=False)
    assert plain.MetaGraphDef.FromString(graphs[3]) == truth
    assert not list(tmp_path.glob("*.written"))


def test_steps_go_on_beside_a_save_and_its_error_comes_at_a_later_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint has the values of the call, and whoever reads it waits for it."""
    tf.init(save_beside=True)
    values = tf.get_variable("values", [300], initializer=tf.zeros_initializer())
    text = tf.get_variable("text", initializer=tf.constant(["a", "bc"]), trainable=False)
    grown = tf.assign_add(values, tf.ones([300]))
    saver = tf.train.Saver([values, text], max_to_keep=1)
    goes_on = threading.Event()
    publish = checkpoint_files.publish

    def publish_later(prefix: str) -> None:
        goes_on.wait(10)  # seconds
        if "broken" in prefix:
            raise OSError(28, "No space left on device")
        publish(prefix)

    monkeypatch.setattr(checkpoint_files, "publish", publish_later)
    with tf.Session() as session:
        session.run([values.initializer, text.initializer])
        path = saver.save(session, str(tmp_path / "model"), global_step=7)
        for _ in range(3):
            session.run(grown)
        assert not (tmp_path / "model-7.index").exists()
        assert not (tmp_path / "checkpoint").exists()
        goes_on.set()
        assert plain.train.latest_checkpoint(str(tmp_path)) == path
        assert not plain.train.load_checkpoint(path).get_tensor("values").any()
        assert saver.save(session, str(tmp_path / "broken")) == str(tmp_path / "broken")
        with pytest.raises(tf.errors.ResourceExhaustedError, match="No space left"):
            all(session.run(grown) is not None for _ in itertools.count())
        assert saver.last_checkpoints == [path]
        before = session.run(values)
        saver.restore(session, saver.save(session, str(tmp_path / "model")))
        np.testing.assert_array_equal(session.run(values), before)


def test_a_job_ends_after_a_save_beside_its_steps_that_failed() -> None:
    values = tf.get_variable("values", [3], initializer=tf.ones_initializer())
    with tf.Session() as session:
        session.run(values.initializer)

        def full(_has_failed: threading.Event) -> None:
            raise OSError(28, "No space left on device")

        job = current()
        job.beside.start(job.agreement, Work("a save", full, lambda _: None))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="No space left"):
            tf.shutdown()
    assert not tf.is_initialized()


def test_what_fails_is_tensorflows_error_and_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tf.get_variable("values", [8], initializer=tf.ones_initializer())
    tf.get_variable("more", [8])
    saver = tf.train.Saver([values])
    with tf.Session() as session:
        path = saver.save(session, str(tmp_path / "model"))

        def full(_prefix: str) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(checkpoint_files, "publish", full)
            with pytest.raises(tf.errors.ResourceExhaustedError, match=r"Got .*No space left.* on"):
                saver.save(session, str(tmp_path / "model"))
        assert not list(tmp_path.glob("*.saving"))
        saver.restore(session, path)
        with pytest.raises(ValueError, match="Parent directory"):
            saver.save(session, str(tmp_path / "not" / "there" / "model"))
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            saver.restore(session, str(tmp_path / "none"))
        with pytest.raises(tf.errors.NotFoundError, match="Key more not found"):
            tf.train.Saver().restore(session, path)
    with plain.Graph().as_default(), tf.Session() as session:
        tf.get_variable("values", [4])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"float32\[4\], but float32\[8\]"):
            tf.train.Saver().restore(session, path)
