"""Stages that are split by frontier tracking, against the whole problem and replicated stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tensoropt as tf
from benchmarks.search.bert import bert
from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models.parts import Model, variable
from tensoropt.arrays import Int64Array
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.atomic import atomic_components
from tensoropt.pipeline.blocks.partition import partition
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.split.costs import SampleCosts
from tensoropt.pipeline.split.profile import Search, SplitProfile
from tensoropt.pipeline.split.repeats import repeats
from tensoropt.pipeline.split.sample import Sample
from tensoropt.pipeline.split.strategies import PricedStrategies
from tensoropt.pipeline.stages.frontier import pipeline_frontier
from tensoropt.pipeline.stages.pipeline import PipelineProblem
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import FRUGAL, PLAIN, Space
from tensoropt.problem.from_graph import graph_problem
from tensoropt.problem.model import Problem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.find import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier

BATCH = 32


def _penalised() -> Model:
    """A sum of squares, with a penalty on its gradient by what is fed."""
    fed = tf.placeholder(tf.float32, [None, 16], name="fed")
    loss = tf.reduce_mean(tf.square(tf.matmul(fed, variable("weights", [16, 8], tf.float32))))
    slope = tf.gradients(loss, fed)[0]
    return Model({"fed": fed}, loss + tf.reduce_sum(tf.square(slope)), loss)


class Case:
    """A small BERT on two machines of eight, as four blocks."""

    def __init__(self, layers: int, build: Callable[[], Model] | None = None) -> None:
        self.step: TrainingStep = gradient_descent_step(
            build or (lambda: bert(layers, 32, 2, 64, 16, 512)), BATCH
        )
        self.cluster = load_cluster("2x8-v100")
        cost, _ = self.priced(16)
        atoms = atomic_components(self.step.graph, self.step.batch_placeholders)
        self.costs = AtomCosts(atoms, self.step.batch_placeholders, self.step.reads, cost)
        self.block: Int64Array = partition(self.costs.dag(4), 2**30, 4).of
        self.links = Links.of(self.cluster)
        self.replicated = ReplicatedProfile(self.costs, self.block, cost, self.links)

    def priced(self, devices: int) -> tuple[ClusterCostModel, Mesh]:
        mesh = self.cluster.mesh(devices)
        return ClusterCostModel(self.cluster, mesh, "execution"), mesh

    def split(self, search: Search | None = None, replicas: bool = True) -> SplitProfile:
        return SplitProfile(
            self.costs,
            self.step.reads,
            self.step.batch_placeholders,
            self.block,
            self.priced,
            self.links,
            16,
            self.replicated,
            search,
            replicas=replicas,
        )


@pytest.fixture(scope="module")
def case() -> Case:
    return Case(layers=2)


@pytest.fixture(scope="module")
def deep() -> Case:
    return Case(layers=6)


def _by_data_parallelism(_: Problem, annotated: AnnotatedGraph) -> Frontier:
    return data_parallel.solve(graph_problem(annotated))


@pytest.mark.parametrize("space", [PLAIN, FRUGAL])
def test_the_stage_of_the_whole_step_is_searched_as_the_step_is(case: Case, space: Space) -> None:
    cost, mesh = case.priced(2)
    batched = case.step.batch_placeholders
    sample = Sample.of(case.costs, case.step.reads)
    assert sample.repeats.count == 0
    stage = SampleCosts(sample, BATCH, cost, mesh, batched, space).problem(1, 1)
    graph, reads = case.step.graph, case.step.reads
    choosing = [atom.operator for atom in case.costs.atoms.atoms]
    whole = graph_problem(
        AnnotatedGraph.of(graph, mesh, cost, batched, reads, space, choosing=choosing)
    ).problem
    generator = np.random.default_rng(1)
    counts = [node.configurations for node in whole.nodes]
    strategies = generator.integers(0, counts, (50, len(counts)))
    assert (np.array(stage.costs(strategies)) == whole.costs(strategies)).all()
    ours, theirs = (frontier_tracking(each, epsilon=0.05) for each in (stage, whole))
    assert ours.memory.tolist() == theirs.memory.tolist()
    assert ours.time.tolist() == theirs.time.tolist()


def test_replicated_configurations_cost_what_replicated_stages_do(deep: Case) -> None:
    split = deep.split(_by_data_parallelism)
    for first, last, devices, microbatch, copies in (
        (0, 3, 2, 8, 1),
        (0, 3, 8, 16, 2),
        (1, 2, 4, 8, 2),
        (0, 0, 4, 32, 1),
        (2, 3, 16, 32, 1),
    ):
        found = split(first, last, devices, microbatch, copies)
        assert found is not None
        expected, *others = found.values
        assert len(others) == 1
        # Times are rounded to whole nanoseconds in other places.
        assert others[0].tolist() == pytest.approx(expected.tolist(), abs=2)


def test_what_is_kept_changes_no_forward_pass(case: Case) -> None:
    """Strategies that keep all tensors take the same time in both spaces."""
    cost, mesh = case.priced(4)
    sample = Sample.of(case.costs, case.step.reads)
    plain, frugal = (
        SampleCosts(sample, 8, cost, mesh, case.step.batch_placeholders, space)
        for space in (PLAIN, FRUGAL)
    )
    counts = np.array([len(group.options) for group in plain.annotated.choices])
    ways = np.array([len(group.options.kept) for group in frugal.annotated.choices])
    assert set(ways.tolist()) > {1, 3}
    generator = np.random.default_rng(2)
    keeping_all = generator.integers(0, counts, (30, len(counts)))
    less = keeping_all + counts * generator.integers(0, ways, (30, len(counts)))
    expected, same, found = (
        PricedStrategies(sample, costs, cost, strategies).passes
        for costs, strategies in ((plain, keeping_all), (frugal, keeping_all), (frugal, less))
    )
    again = np.zeros(30, np.int64)
    for name, passes in expected.items():
        assert (same[name][:2] == passes[:2]).all()
        assert (found[name][0] == passes[0]).all()
        again += found[name][1] - passes[1]
    assert again.min() > 0


def test_weights_are_moved_once_a_step(case: Case) -> None:
    """Storing them in pieces changes no pass of a microbatch, and nothing that each of them keeps;
    sums of whole gradients take memory where there are several."""
    cost, mesh = case.priced(4)
    sample = Sample.of(case.costs, case.step.reads)
    costs = SampleCosts(sample, 8, cost, mesh, case.step.batch_placeholders)
    (replicated,) = data_parallel.solve(graph_problem(costs.annotated)).strategies
    pieces = replicated.copy()
    for node, group in enumerate(costs.annotated.choices):
        if sample.graph[group.leader].is_variable:
            pieces[node] = len(group.options) - 1
    both = PricedStrategies(sample, costs, cost, np.stack([replicated, pieces]).astype(np.int64))
    for passes in both.passes.values():
        assert (passes[:, 0] == passes[:, 1]).all()
    states = [state for _, state in both.states()]
    late, fixed, summed = (
        sum(getattr(state, name) for state in states) for name in ("late", "fixed", "summed")
    )
    assert late[0] < late[1]
    assert fixed[0] > fixed[1]
    assert summed[0] == 0 < summed[1]


def test_components_may_be_gradients() -> None:
    case = Case(1, _penalised)
    last = int(case.block.max())
    found = case.split(_by_data_parallelism)(0, last, 2, 8, 1)
    assert found is not None
    replicated, split = found.values
    assert split[3:5].sum() == replicated[3:5].sum()  # memory, of which a gradient is saved


def test_of_layers_that_repeat_the_second_stands_for_all_between(deep: Case, case: Case) -> None:
    six, two = deep, case
    found = repeats(six.costs)
    assert found.count >= 4
    sample = Sample.of(six.costs, six.step.reads)
    assert len(sample.graph) < len(six.step.graph)
    counted = sum(sample.times(name) for name in sample.graph.operators)
    assert counted == len(six.step.graph)
    for name, other in sample.stand_in.items():
        assert six.step.graph[name].type == six.step.graph[other].type
    cost, mesh = six.priced(2)
    batched = six.step.batch_placeholders
    problem = SampleCosts(sample, 8, cost, mesh, batched).problem(1, 1)
    smaller = SampleCosts(Sample.of(two.costs, two.step.reads), 8, cost, mesh, batched)
    assert len(problem.nodes) < 2 * len(smaller.problem(1, 1).nodes)


def test_pipelines_of_split_stages_dominate_those_of_replicated_ones(case: Case) -> None:
    plain = PipelineProblem(4, case.replicated, case.links, 1, 8, 2**40)
    known = pipeline_frontier(plain, ("1f1b",))
    problem = replace(plain, profile=case.split())
    split = pipeline_frontier(problem, ("1f1b",), sizes=(1, 4), epsilon=0.01, known=known)
    for each in known:
        assert any(one.memory <= each.memory and one.time <= each.time for one in split)
    assert split[0].memory < known[0].memory
    assert any(stage.point > 0 for each in split for stage in each.stages)


def test_a_frontier_within_epsilon_of_the_exact_one(case: Case) -> None:
    problem = PipelineProblem(4, case.replicated, case.links, 2, BATCH, 2**40)
    exact, near = (pipeline_frontier(problem, epsilon=each) for each in (0.0, 0.1))
    for each in exact:
        assert any(one.memory <= 1.1 * each.memory and one.time <= 1.1 * each.time for one in near)
