"""What one rank would run, emitted without the others, and the memory that it would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
import tensoropt.execution.runtime.dry_run as dry_run_module
from tensoropt.cost.peak.device_program import DeviceProgram
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep, dry_run, dry_run_stage
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline, StageRanks, StageWorlds
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tests.oracles.equality import Script, choices_of, draw, planned_of, random_prices
from tests.oracles.equality.scripts import mlp
from tests.oracles.equality.stage_scripts import tied
from tests.oracles.equality.stages import batch_of, draw_pipeline
from tests.proofs import proof

MESH = Mesh((2,))
FLOAT = 4


def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
    return 1 + bytes_


@pytest.mark.parametrize("native", [True, False])
def test_a_step_is_described_as_one_rank_runs_it(native: bool) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as script:
        x = v1.placeholder(tf.float32, [8, 32], name="x")
        w = v1.get_variable("w", [32, 64], use_resource=True)
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, w, name="product")), name="loss")
        train = tensoropt.train.MomentumOptimizer(0.1, 0.9).minimize(loss).name
    planned = {"product": Configuration(((0,), (), ()))}
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    step = ScriptStep(
        script, [train], {"x": (8, 32)}, StepOptions(frozenset({"x"}), 1, config), native=native
    )
    program = dry_run(step, MESH, planned, ReshardSteps(MESH, price))
    by_name = {kernel.name: kernel for kernel in program.kernels}
    assert by_name["x"].outputs[0].shape == (4, 32)
    assert by_name["product"].outputs[0].shape == (4, 64)
    moved = [kernel for kernel in program.kernels if kernel.steps]
    assert moved, "the product's gradients are added up over the ranks"
    kind = "CollectivesMove" if native else "PyFunc"
    assert all(kernel.type == kind for kernel in moved)
    weights = 2 * 32 * 64 * FLOAT  # and what momentum keeps
    fed = 4 * 32 * FLOAT
    found = program_peak(program)
    assert weights + fed <= found.resident_bytes <= weights * 3 // 2 + fed + 1024
    # The gradient by w: this rank's, and the sum, which an operator writes over it.
    gradients = (1 if native else 2) * 32 * 64 * FLOAT
    assert gradients <= found.bytes - found.resident_bytes < gradients + 32 * 64 * FLOAT


@pytest.mark.parametrize("splits", [((0,), (), ()), ((), (0,), ())])
def test_constants_of_first_values_count_as_a_rank_has_them(
    splits: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal constants count once, and large ones count the shards that are read."""
    v1 = tf.compat.v1
    large = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    with tf.Graph().as_default() as script:
        x = v1.placeholder(tf.float32, [8, 128], name="x")
        w = v1.get_variable("w", initializer=large, use_resource=True)
        biases = [
            v1.get_variable(name, initializer=tf.ones([64]), use_resource=True) for name in "ab"
        ]
        y = tf.tanh(tf.matmul(x, w, name="product") + biases[0] * biases[1])
        train = tensoropt.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(y)).name
    step = ScriptStep(script, [train], {"x": (8, 128)}, StepOptions(frozenset({"x"}), 1))
    counted = dry_run_module._kept_bytes
    emitted = []

    def both(executor: Executor, initializers: Sequence[str]) -> int:
        first = executor.program((), initializers, {})
        emitted.append(dry_run_module._constant_bytes(first.operations))
        return counted(executor, initializers)

    monkeypatch.setattr(dry_run_module, "_kept_bytes", both)
    planned = {"product": Configuration(splits)}
    found = dry_run(step, MESH, planned, ReshardSteps(MESH, price)).kept_bytes
    read = large.nbytes // (2 if any(splits[1]) else 1)
    assert found >= 2 * read  # the weights', and the zeros of their momentum
    assert 0 <= emitted[0] - found <= 512


def test_a_stage_without_variables_keeps_no_constants() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as script:
        x = v1.placeholder(tf.float32, [8, 32], name="x")
        w = v1.get_variable("w", [32, 64], use_resource=True)
        product = tf.matmul(x, w, name="product")
        loss = tf.reduce_sum(tf.tanh(product, name="tanh"), name="loss")
        train = tensoropt.train.GradientDescentOptimizer(0.1).minimize(loss).name
    step = ScriptStep(script, [train], {"x": (8, 32)}, StepOptions(frozenset({"x"}), 1))
    stage_of = {"w": 0, "product": 0, "tanh": 1, "loss": 1}

    def pipeline(worlds: StageWorlds) -> Pipeline:
        stages = [StageRanks(world, {}, ReshardSteps(MESH, price)) for world in worlds.stages]
        return Pipeline(tuple(stages), stage_of, 2, "1f1b", worlds.everyone)

    first, last = (dry_run_stage(step, [Mesh.of(1)] * 2, stage, pipeline) for stage in (0, 1))
    assert first.kept_bytes > 0
    assert last.kept_bytes == 0


SCRIPTS: dict[str, Callable[[], Script]] = {
    "mlp": partial(mlp, tf.float32, 1, 48, (48, 192, 192, 48), dropout=0.2),
    "tied": partial(tied, tf.float32, steps=1),  # slices of a table are joined
}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("mlp", 8),  # its first stage has no weights, so it waits for nothing
        ("tied", 1),
        *(proof(name, seed) for name in SCRIPTS for seed in (0, 2, 3, 4)),
    ],
)
def test_few_microbatches_take_the_memory_of_all(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, random = SCRIPTS[name](), np.random.default_rng(seed)
    batch = batch_of(script)
    step = ScriptStep(
        script.graph,
        [script.train, script.loss.split(":")[0]],
        script.shapes,
        StepOptions(batch, 1),
        microbatches=8,
        native=bool(seed % 2),
    )
    numbers = draw(script.imported(), choices_of(script, MESH, batch), MESH, random).numbers
    planned = planned_of(script, MESH, numbers, batch)
    drawn = draw_pipeline(script, random, [1, 2], microbatches=step.microbatches, schedule="1f1b")

    def pipeline(worlds: StageWorlds) -> Pipeline:
        pairs = zip(drawn.stages, worlds.stages, strict=True)
        stages = tuple(replace(stage, world=world) for stage, world in pairs)
        return replace(drawn, stages=stages, everyone=worlds.everyone)

    def programs() -> list[DeviceProgram]:
        meshes = [stage.world.mesh for stage in drawn.stages]
        whole = dry_run(step, MESH, planned, ReshardSteps(MESH, random_prices(1)))
        return [whole, *(dry_run_stage(step, meshes, stage, pipeline) for stage in (0, 1))]

    few = programs()
    assert any(program.repeated for program in few)
    monkeypatch.setattr(dry_run_module, "until_it_repeats", lambda *_: step.microbatches)
    for emitted, truth in zip(few, programs(), strict=True):
        error = program_peak(emitted).bytes - program_peak(truth).bytes
        assert abs(error) <= 1024 + 0.01 * program_peak(truth).bytes
