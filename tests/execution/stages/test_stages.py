"""Random pipelines of two to four stages are the step of the whole batch on one device."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.errors import GraphError
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.stages.stage_ranks import Pipeline, StageRanks, stages_in_one_process
from tensoropt.execution.stages.stage_strategies import StageStrategies
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import SHARED
from tensoropt.transformations.staged.stage_graph import TRANSFER
from tensoropt.transformations.staged.staged import staged
from tests.oracles.equality import Script, Trained, mlp, train_plain, worst_error
from tests.oracles.equality.stage_scripts import tied, towers
from tests.oracles.equality.stages import batch_of, draw_pipeline, staged_executor, train_pipeline
from tests.proofs import proof

tensoropt.enable_graph_mode()

v1 = tf.compat.v1


@functools.cache
def built(name: str) -> tuple[Script, Trained]:
    made = {"tied": tied, "towers": towers, "mlp": lambda: mlp(tf.float64, 2, dropout=0.25)}
    script = made[name]()
    return script, train_plain(script)


@pytest.mark.parametrize(
    ("name", "seed"), [("mlp", 1), ("tied", 2), proof("mlp", 2), proof("tied", 1)]
)
def test_random_pipelines(name: str, seed: int) -> None:
    script, truth = built(name)
    drawn = draw_pipeline(script, np.random.default_rng(seed))
    assert worst_error(train_pipeline(script, drawn), truth) <= 1e-10


@pytest.mark.parametrize(("seed", "sizes"), [proof(0, (1, 1)), (1, (2, 1)), (7, (1, 1, 1))])
def test_random_branches_side_by_side(seed: int, sizes: tuple[int, ...]) -> None:
    """Gradients of what joins the branches come first; a weight, and a loss, are on both sides."""
    script, truth = built("towers")
    random = np.random.default_rng(seed)
    drawn = draw_pipeline(script, random, sizes, microbatches=1, schedule="side_by_side")
    assert worst_error(train_pipeline(script, drawn), truth) <= 1e-10
    cut = cut_along_batch(script.imported(), batch_of(script), 1)
    own = [name for name in cut.indices if drawn.stage_of.get(name, SHARED) != SHARED]
    stages = {name: drawn.stage_of[name] for name in own}
    step = staged(cut, stages, [script.train], "side_by_side")
    assert any("/beside/" in name for name in step.graph.operators)


def test_received_tensors_lie_as_their_readers_want_them() -> None:
    """A tied weight, its gradient and gradients of activations are split as they are read."""
    with tf.Graph().as_default() as script:
        x = v1.placeholder(tf.float32, [8, 32], name="x")
        w = v1.get_variable("w", [32, 32], use_resource=True)
        values = tf.tanh(tf.matmul(x, w, name="first"), name="values")
        loss = tf.reduce_sum(tf.matmul(values, w, transpose_b=True, name="second"), name="loss")
        train = tensoropt.train.GradientDescentOptimizer(0.1).minimize(loss).name
    planned = (
        {"w": ((), (0,)), "first": ((0,), (), ()), "values": ((0,), ())},
        {"second": ((), (0,), ())},
    )
    worlds = stages_in_one_process([Mesh((2,))] * 2)
    stages = [
        StageRanks(
            world,
            {name: Configuration(splits) for name, splits in configurations.items()},
            lambda *_: (),
        )
        for world, configurations in zip(worlds.stages, planned, strict=True)
    ]
    stage_of = {"w": 0, "first": 0, "values": 0, "second": 1, "loss": 1}
    divided = StageStrategies(Pipeline(tuple(stages), stage_of, 2), frozenset({"x"})).divide(
        import_graph(script, [train], {"x": (8, 32)}), [train]
    )
    strategies, stage_of_operator = divided.strategies, divided.step.stage_of
    arriving = {
        (stage, operator.inputs[0].operator.rsplit("/", 1)[-1]): output.forward.dims
        for operator in divided.step.graph
        if operator.type == TRANSFER
        for stage in (stage_of_operator[operator.name],)
        for output in (strategies[stage].output_slot(TensorName(operator.name, 0)),)
    }
    assert arriving == {
        (1, "ReadVariableOp"): ((0,), ()),  # as the product reads it
        (1, "values"): ((), ()),
        (0, "values_0"): ((0,), ()),  # the gradient, as the values are made
        (0, "ReadVariableOp"): ((), (0,)),  # the sum of gradients, as the variable is stored
    }


def test_fetches_values_and_checkpoints_of_all_stages(tmp_path: Path) -> None:
    """Fetches are those of one device, and another pipeline goes on from a checkpoint."""
    script, _ = built("tied")
    first, second = script.feeds
    fetched = ["scores:0", "global_norm/global_norm:0", script.loss]
    with script.graph.as_default(), v1.Session(graph=script.graph) as session:
        session.run(v1.global_variables_initializer())
        fed, then = ({"tokens:0": values["tokens"]} for values in (first, second))
        truth = [session.run([fetched[0], "fixed:0"], fed)]
        truth.append(session.run([*fetched, script.train], fed)[:-1])
        saved = dict(zip(script.variables, session.run(script.variables), strict=True))
        truth.append(session.run([script.loss, script.train], then)[:-1])
        variables = v1.global_variables()
        named = {tensor: v.handle.op.name for tensor, v in zip(saved, variables, strict=True)}
    one, other = (
        staged_executor(script, draw_pipeline(script, np.random.default_rng(seed)))
        for seed in (1, 2)
    )
    draws = Draws()
    found = [list(one.run([fetched[0], "fixed:0"], [], first, draws).values())]
    found.append(list(one.run(fetched, [script.train], first, draws).values()))
    one.variables.check_replicas()
    values = one.variables.values()
    assert values.keys() == set(named.values())
    for tensor, name in named.items():
        np.testing.assert_allclose(values[name], saved[tensor], rtol=1e-10, atol=1e-12)
    tensors = [
        SavedTensor(f"saved/{name}", name, x.dtype.name, x.shape, x.shape, (0,) * x.ndim)
        for name, x in values.items()
    ]
    one.save(tensors, {}, str(tmp_path / "saved"))
    read = tf.train.load_checkpoint(str(tmp_path / "saved"))
    other.variables.assign({name: np.ones_like(x) for name, x in values.items()})
    assert all(np.all(x == 1) for x in other.variables.values().values())
    other.variables.restore(tensors, str(tmp_path / "saved"))
    for name, x in other.variables.values().items():
        np.testing.assert_array_equal(x, values[name])
        np.testing.assert_array_equal(x, read.get_tensor(f"saved/{name}"))
    found.append(list(other.run([script.loss], [script.train], second, draws).values()))
    for given, right in zip(found, truth, strict=True):
        for x, y in zip(given, right, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    with pytest.raises(GraphError, match="fed no batch"):
        one.run([], [script.graph.get_operation_by_name("decay").name], {})
