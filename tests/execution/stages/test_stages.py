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
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import SHARED
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
