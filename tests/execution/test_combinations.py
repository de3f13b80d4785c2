"""Plans that combine spaces are the step of the whole batch on one device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from collectives import Group
from collectives.transport.in_process import InProcessTransport
from tensoropt.errors import GraphError, OptionError
from tensoropt.execution.runtime.script_part import part_of_script
from tensoropt.execution.stages.stage_ranks import mpi_stages
from tensoropt.frontend.job.job import current, shutdown
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.plans.from_pipeline import plan_for_pipeline
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.rewritten.application import Rewrite, rewritten
from tensoropt.transformations.staged.assignment import assign_forward
from tensoropt.transformations.staged.staged import staged
from tests.oracles.equality import Script
from tests.oracles.equality.combination_scripts import mixing
from tests.oracles.equality.combinations import BARS, drawn, error_of, script_of_case
from tests.oracles.equality.rewrite_scripts import experts
from tests.oracles.equality.rewrites import draw_rewrites
from tests.oracles.equality.stage_scripts import towers
from tests.oracles.equality.stages import batch_of

tensoropt.enable_graph_mode()

v1 = tf.compat.v1
GUIDE = Path(__file__).parent.parent.parent / "docs" / "combining.md"


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    shutdown()
    yield
    shutdown()


@pytest.mark.parametrize("number", [3, 5, 8, 32])
def test_random_combinations(number: int) -> None:
    """Between them: substitutions, microbatches, stages, branches, copies, recomputation, less that
    is kept, and batch normalisation over the whole batch in stages."""
    plan = drawn(number).plan
    tensoropt.init(devices=plan.devices)
    assert error_of(number, plan) <= BARS["float64"]


def test_a_rewritten_step_is_searched_and_run_in_stages() -> None:
    """The plan has the script's digest, the substitutions, and peaks of what its ranks run."""
    script = script_of_case(0)
    tensoropt.init(devices=2)
    with script.graph.as_default():
        request = step_request(
            current(), PlanningOptions(batch_size=24, fetches=[script.train], pipeline=False)
        )
    random, refused = np.random.default_rng(0), True
    while refused:  # substitutions that concatenate batches cannot be cut along the batch
        rewrites = draw_rewrites(script, random).rewrites
        graph = rewritten(request.graph, rewrites, request.roots)
        refused = bool(cut_along_batch(graph, request.batch_placeholders, 2).refusals)
    own = request.of_rewritten(rewrites, graph)
    search = PipelineSearch(own, 2, (2, 2), (2,))
    point = search.frontier[0]
    plan = plan_for_pipeline(own, search, point, "mini_time")
    assert (plan.rewrites, plan.graph_digest) == (rewrites, request.graph.digest())
    assert plan.peak_bytes, plan.notes
    assert error_of(0, plan) <= BARS["float64"]


def test_what_gradients_read_of_new_operators_is_known() -> None:
    """Operators whose outputs a plan does not keep run again in the backward pass."""
    script = experts(tf.float64)
    merged = _drawn(script, "matmuls of one input merged")
    part = part_of_script(script.graph, [script.train], script.shapes, merged, "global")
    new = {operator.name for operator in part.graph if operator.type == "MatMul"}
    new -= {operation.name for operation in script.graph.get_operations()}
    assert new
    assert new <= part.reads().inputs.keys()


def _drawn(script: Script, name: str) -> tuple[Rewrite, ...]:
    """Random substitutions, with one of a name among them."""
    random = np.random.default_rng(0)
    while True:
        rewrites = draw_rewrites(script, random).rewrites
        if any(each.substitution == name for each in rewrites):
            return rewrites


def _mixes() -> None:
    script = mixing(tf.float32)
    cut_along_batch(script.imported(), batch_of(script), 2).check()


def _joins_one_weight() -> None:
    script = towers()
    rewrites = _drawn(script, "matmuls of one weight merged")
    graph = rewritten(script.imported(), rewrites, [script.train])
    assert not cut_along_batch(graph, batch_of(script), 1).refusals
    cut_along_batch(graph, batch_of(script), 2).check()


def _looks_up_in_two_stages() -> None:
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, 2], name="tokens")
        table = v1.get_variable("table", [8, 4], tf.float64, v1.ones_initializer())
        first = tf.tanh(tf.gather(table, tokens[:, 0]))
        loss = tf.reduce_mean(first * tf.gather(table, tokens[:, 1]))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = ({"tokens": np.zeros((4, 2), np.int32)},)
    _stage(Script(graph, train.name, loss.name, feeds), "Tanh")


def _sends_text() -> None:
    graph = tf.Graph()
    with graph.as_default():
        given = v1.placeholder(tf.float64, [None, 4], name="given")
        text = tf.strings.as_string(given, name="text")
        weights = v1.get_variable("weights", [4, 4], tf.float64, v1.ones_initializer())
        read = tf.strings.to_number(text, tf.float64)
        loss = tf.reduce_mean(tf.matmul(read, weights))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    _stage(Script(graph, train.name, loss.name, ({"given": np.ones((4, 4))},)), "text")


def _stage(script: Script, last_of_first: str) -> None:
    """Two stages, of which the first one ends with an operator."""
    cut = cut_along_batch(script.imported(), batch_of(script), 1)
    names = list(cut.indices)
    ends = names.index(last_of_first)
    planned = {name: int(place > ends) for place, name in enumerate(names)}
    staged(cut, assign_forward(cut, planned, 1), [script.train])


def _by_horovod() -> None:
    mpi_stages([Mesh.of(1), Mesh.of(1)], Group(InProcessTransport((0, 1), 0)), "horovod")


EXCLUDED: dict[tuple[str, str], Callable[[], None]] = {
    ("several microbatches", "operators that mix the examples of a batch"): _mixes,
    ("several microbatches", "a substitution that joins examples"): _joins_one_weight,
    ("stages, branches", "a table with a sparse gradient that two stages look up"): (
        _looks_up_in_two_stages
    ),
    ("stages, branches", "text, and tensors of unknown shape, between stages"): _sends_text,
    ("stages, branches", '`init(transport="horovod")`'): _by_horovod,
}


def test_the_table_of_what_excludes_each_other_is_true() -> None:
    text = GUIDE.read_text()
    section = text.partition("## What goes together")[2].partition("\n#")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    assert {(one.strip(), other.strip()) for one, other in rows[1:]} == set(EXCLUDED)
    for refuses in EXCLUDED.values():
        with pytest.raises((GraphError, OptionError)):
            refuses()
