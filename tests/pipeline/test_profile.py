"""What RaNNC's profile says of a stage, against the sets of operators and tensors that it is of."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from benchmarks.search.bert import bert
from benchmarks.training_step import gradient_descent_step
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.atomic import atomic_components
from tensoropt.pipeline.blocks.partition import partition
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.stages.points import StagePoints
from tests.pipeline.lookups import looked_up

BATCH = 32


class Case:
    """A small BERT on two machines of eight, as six blocks."""

    def __init__(self, layers: int = 2) -> None:
        step = gradient_descent_step(lambda: bert(layers, 32, 2, 64, 16, 512), BATCH)
        cluster = load_cluster("2x8-v100")
        self.cost = ClusterCostModel(cluster, cluster.mesh(16), "execution")
        self.atoms = atomic_components(step.graph, step.batch_placeholders)
        self.costs = AtomCosts(self.atoms, step.batch_placeholders, step.reads, self.cost)
        self.blocks = partition(self.costs.dag(4), 2**30, 6)
        self.links = Links.of(cluster)
        self.profile = ReplicatedProfile(self.costs, self.blocks.of, self.cost, self.links)

    def points(self, first: int, last: int, devices: int = 2, examples: int = 8) -> StagePoints:
        found = self.profile(first, last, devices, examples, 1)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


@pytest.mark.parametrize(("first", "last"), [(0, 5), (0, 0), (1, 3), (3, 5), (5, 5)])
def test_a_stage_costs_what_is_in_it_once(case: Case, first: int, last: int) -> None:
    atoms, costs, examples = case.atoms, case.costs, 4
    block = case.blocks.of
    inside = [n for n in range(len(atoms)) if first <= block[n] <= last]
    members = [atoms.atoms[n] for n in inside]
    constants = {name for atom in members for name in atom.constants}
    forward = sum(costs.operator_time(atom.operator, examples).forward for atom in members)
    forward += sum(costs.operator_time(name, examples).forward for name in constants)
    points = case.points(first, last)
    assert points.column("forward")[0] == forward
    received = {
        tensor
        for maker, reader, tensor in atoms.edges
        if block[maker] < first <= block[reader] <= last and tensor is not None
    }
    inputs = sum(costs.growth.tensor_bytes(tensor, examples) for tensor in received)
    assert points.column("inputs")[0] == inputs
    assert points.column("saved")[0] == sum(costs.saved_at(examples)[inside]) + inputs
    states = {name for name, state in atoms.states.items() if set(state.atoms) & set(inside)}
    held = sum(sum(costs.state_bytes(name)) for name in states)
    held += sum(map(costs.constant_bytes, constants))
    assert points.column("fixed")[0] == held + costs.at(examples)[2][inside].max()


def test_boundaries_pass_values_on_and_gradients_back(case: Case) -> None:
    def crossing(points: StagePoints, *names: str) -> int:
        return sum(int(points.column(name)[0]) for name in names)

    for boundary in range(1, 6):
        values, gradients = case.points(boundary - 1, boundary - 1), case.points(boundary, boundary)
        block = case.blocks.of
        passing = {
            tensor
            for maker, reader, tensor in case.atoms.edges
            if block[maker] < boundary <= block[reader] and tensor is not None
        }
        bytes_ = sum(case.costs.growth.tensor_bytes(tensor, 4) for tensor in passing)
        assert crossing(values, "sent", "passed") == bytes_
        assert crossing(values, "sent_tensors", "passed_tensors") == len(passing)
        assert 0 < crossing(gradients, "received", "returned") <= bytes_
        assert 0 < crossing(gradients, "received_tensors", "returned_tensors") <= len(passing)
    assert case.points(0, 0).column("received")[0] == case.points(5, 5).column("sent")[0] == 0


def test_a_tensor_is_sent_once_to_each_stage_that_reads_it(case: Case) -> None:
    passed = 0
    for cut in combinations(range(1, 6), 3):
        stage = np.searchsorted(cut, case.blocks.of, side="right")
        ends = {
            (tensor, int(stage[maker]), int(stage[reader]))
            for maker, reader, tensor in case.atoms.edges
            if tensor is not None and stage[maker] != stage[reader]
        }
        stages = [case.points(first, last - 1) for first, last in pairwise((0, *cut, 6))]
        assert sum(each.column("sent_tensors")[0] for each in stages) == len(ends)
        bytes_ = sum(case.costs.growth.tensor_bytes(tensor, 4) for tensor, _, _ in ends)
        assert sum(each.column("sent")[0] for each in stages) == bytes_
        passed += sum(each.column("passed_tensors")[0] for each in stages)
    assert passed


def test_each_tensor_is_a_message(case: Case) -> None:
    links, start = case.links, case.links.message_seconds + case.links.across.latency_seconds
    one, four = (links.send_nanoseconds(2**20, 2, True, tensors) for tensors in (1, 4))
    assert four - one == pytest.approx(3e9 * start, abs=1)
    assert links.send_nanoseconds(0, 2, True, 0) == 0
    sizes, devices, tensors = np.array([[0, 1, 2**20], [3, 1, 16], [0, 1, 4]])
    for across in (False, True):
        times = links.sends_nanoseconds(sizes, devices, across, tensors)
        columns = zip(sizes.tolist(), devices.tolist(), tensors.tolist(), strict=True)
        assert times.tolist() == [
            links.send_nanoseconds(size, users, across, messages)
            for size, users, messages in columns
        ]


def test_a_tied_table_is_held_by_both_stages_and_summed_over_both(case: Case) -> None:
    transient = case.costs.at(4)[2]
    sums = case.links.allreduce_nanoseconds
    table, gradient = case.costs.state_bytes("bert/words")
    for first, last in ((0, 2), (3, 5)):
        held = 0
        for state in case.atoms.states.values():
            if any(first <= case.blocks.of[atom] <= last for atom in state.atoms):
                held += sum(case.costs.state_bytes(state.variables[0]))
        inside = (first <= case.blocks.of) & (case.blocks.of <= last)
        points = case.points(first, last)
        constants = points.column("fixed")[0] - held - transient[inside].max()
        assert held > table + gradient
        assert 0 <= constants < 100
        # Plain gradient descent: every state is a variable and its gradient.
        once = points.column("once")[0] - case.profile._updates[first, last]
        assert once == sums(held // 2 - gradient, 2, 1) + sums(gradient, 2, 2)


def test_replicas_share_a_microbatch(case: Case) -> None:
    assert case.profile(0, 1, 8, 4, 1) is None  # an example each
    nine, sixteen = case.points(0, 1, 8, 9), case.points(0, 1, 8, 16)
    assert nine.column("forward")[0] == sixteen.column("forward")[0]  # two for one


def test_replicas_gather_the_slices_of_a_sparse_gradient(case: Case) -> None:
    step = gradient_descent_step(looked_up, BATCH)
    atoms = atomic_components(step.graph, step.batch_placeholders)
    costs = AtomCosts(atoms, step.batch_placeholders, step.reads, case.cost)
    assert costs.state_bytes("table")[1] == 4 * 8 * 4
    summed = (BATCH * 8 * 4 + BATCH * 4) // 2  # rows and their numbers; a gather, not a sum
    assert costs.summed_bytes("table") == summed
    assert costs.summed_bytes("weights") == costs.state_bytes("weights")[1] == 8 * 8 * 4
    profile = ReplicatedProfile(costs, np.zeros(len(atoms), np.int64), case.cost, case.links)
    once = [profile(0, 0, devices, BATCH, 1).column("once")[0] for devices in (1, 8)]
    sums = case.links.sums_nanoseconds(np.array(summed + 8 * 8 * 4), 8, 1)
    assert once[1] - once[0] == sums
