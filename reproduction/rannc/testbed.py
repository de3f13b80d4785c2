"""The RaNNC paper's test bed and models (section IV-A), and the phases on them; nothing runs."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

import tensoropt as tf
from benchmarks.search.bert import bert
from examples.models import Model, parameter_count, wide_resnet
from reproduction.baselines import integer_program
from reproduction.entry import Script
from reproduction.rannc.searches.without_blocks import SummedProfile
from tensoropt.arrays import Int64Array
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.from_tensorflow.backward_reads import backward_reads
from tensoropt.graph.operator import Graph
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.atomic import Atoms, atomic_components
from tensoropt.pipeline.blocks.partition import Blocks, partition
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.pipeline.stages.frontier import pipeline_frontier
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem

__all__ = ["MACHINES", "Phases", "Step", "layers_of", "script_of", "step_of", "testbed"]

BATCH = 256
LENGTH, VOCABULARY, HEAD = 512, 30720, 64
MACHINES = 4
_ALPA_AXES = 2
_BLOCK_EXAMPLES = 1  # examples of the microbatch with which blocks have to fit a device


def testbed(nvlink_gb_per_second: float, memory_gb: float) -> Cluster:
    """Four machines of eight V100; the paper's have 32 GB.

    Two devices are joined with 25 or 50 GB/s, and each machine has one InfiniBand card of 100 Gb/s.
    All else is as in `2x8-v100`.
    """
    known = load_cluster("2x8-v100")
    between, within = known.levels
    levels = (
        replace(between, count=MACHINES, bandwidth_bytes_per_second=12.5e9),
        replace(within, bandwidth_bytes_per_second=nvlink_gb_per_second * 1e9),
    )
    device = replace(known.device, name="V100-SXM2-32GB", memory_bytes=round(memory_gb * 2**30))
    return replace(known, name="4x8-v100-32gb", levels=levels, device=device)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of Adam.

    Attributes:
        graph: the imported graph.
        batched: placeholders of the batch.
        reads: the tensors that the backward pass reads.
        batch: number of examples.
        parameters: number of parameters.
        seconds: CPU seconds of building and importing the graph.
    """

    graph: Graph
    batched: frozenset[str]
    reads: BackwardReads
    batch: int
    parameters: int
    seconds: float


def step_of(model: str) -> Step:
    """The step of a model by its name, in float32.

    ``24x1024`` is a BERT with 24 layers of that width, sequences of 512, heads of 64 and a batch of
    256. ``resnet152x8`` is a ResNet with a batch of 512.
    """
    begun, batch = time.process_time(), _batch(model)
    graph, batched, reads, parameters = _imported(partial(_built, model), batch)
    gc.collect()  # the script's graph has cycles, whose collection would count in a phase
    return Step(graph, batched, reads, batch, parameters, time.process_time() - begun)


def script_of(model: str, nvlink: float, search_seconds: float, memory_gb: float = 32.0) -> Script:
    """The script that trains a model on the test bed; see `step_of`."""
    cluster = testbed(nvlink, memory_gb)
    assert cluster.devices is not None, "the test bed has all its levels"

    def train() -> Any:
        return tf.train.AdamOptimizer(1e-4).minimize(_built(model).loss)

    return Script(train, _batch(model), cluster.devices, cluster, search_seconds)


def _batch(model: str) -> int:
    return 512 if model.startswith("resnet") else BATCH


def _built(model: str) -> Model:
    depth, width = map(int, model.removeprefix("resnet").split("x"))
    if model.startswith("resnet"):
        return wide_resnet(depth, width)
    return bert(depth, width, width // HEAD, 4 * width, LENGTH, VOCABULARY)


def _imported(
    build: Callable[[], Model], batch: int
) -> tuple[Graph, frozenset[str], BackwardReads, int]:
    script = tf.Graph()
    with script.as_default():
        train = tf.train.AdamOptimizer(1e-4).minimize(build().loss)
        parameters = parameter_count()
        fed, batched = fed_shapes(script, batch, None)
        graph = import_graph(script, training_roots(script, [train]), fed)
        reads = backward_reads(script, graph)
    kept = batched & {operator.name for operator in graph}
    return graph, kept, reads, parameters


def layers_of(atoms: Atoms) -> Int64Array:
    """int64[atoms]: the layer of each component of a BERT. Components before the first layer
    belong to the first, those after the last to the last."""
    found = np.zeros(len(atoms), dtype=np.int64)
    names = [re.search(r"/layer(\d+)/", atom.operator) for atom in atoms.atoms]
    last = max(int(name[1]) for name in names if name)
    after = False
    for place, name in enumerate(names):
        after |= name is not None and int(name[1]) == last
        found[place] = int(name[1]) - 1 if name else (last - 1 if after else 0)
    return found


class Phases:
    """The three phases for a step, each timed in CPU seconds, because other processes may use the
    machine.

    Attributes:
        seconds: CPU seconds of each phase.
        blocks: the blocks.
        problem: the problem of the blocks.
    """

    def __init__(self, step: Step, cluster: Cluster) -> None:
        self._cluster, self._batch, self._step = cluster, step.batch, step
        self._cost = ClusterCostModel(cluster, cluster.mesh(cluster.devices or 1), "execution")
        self.links = Links.of(cluster)
        self.seconds: dict[str, float] = {}
        begun = time.process_time()
        self.atoms = atomic_components(step.graph, step.batched)
        self._lap("atomic", begun)
        begun = time.process_time()
        self.costs = AtomCosts(self.atoms, step.batched, step.reads, self._cost)
        self._dag = self.costs.dag(_BLOCK_EXAMPLES)
        self._lap("costs", begun)
        begun = time.process_time()
        self.blocks: Blocks = partition(self._dag, self.memory_limit)
        self._lap("blocks", begun)
        self.longest_atom = float(self._dag.time.max() / self.blocks.time.mean())
        self.problem = self.grouped(self.blocks.of)

    @property
    def memory_limit(self) -> int:
        return int(self._cluster.device.memory_bytes / self._cluster.safety_factor)

    def grouped(self, group: Int64Array) -> PipelineProblem:
        """The problem whose blocks are groups of components."""
        begun = time.process_time()
        profile = ReplicatedProfile(self.costs, group, self._cost, self.links)
        self._lap("profile", begun)
        return self._problem(int(group.max()) + 1, profile)

    def summed(self) -> PipelineProblem:
        """The problem without blocks."""
        return self._problem(len(self.atoms), SummedProfile(self.costs, self.links))

    def coarsened(self, blocks: int) -> PipelineProblem:
        """The problem with another number of blocks."""
        return self.grouped(partition(self._dag, self.memory_limit, blocks).of)

    def data_parallel(self) -> Pipeline:
        """The fastest pipeline of one stage on all devices that keeps the tensors of its
        backward pass and accumulates gradients."""
        whole = self.grouped(np.zeros(len(self.atoms), dtype=np.int64))
        return pipeline_frontier(whole, ("1f1b",), (False,), (whole.devices,))[-1]

    def one_machine(self, batch: int) -> PipelineProblem:
        """The problem of the same blocks on one machine."""
        return replace(self.problem, machines=1, batch=batch)

    def in_integer_programs(self) -> PipelineProblem:
        """The problem of the same blocks whose stages an integer program splits, as Alpa does.

        The devices of a stage in a machine are a mesh of two axes, as Alpa's are, and a stage of
        several machines has a replica on each.
        """
        replicated = self.problem.profile
        assert isinstance(replicated, ReplicatedProfile), "the problem has its own profile"

        def priced(devices: int) -> tuple[ClusterCostModel, Mesh]:
            mesh = self._cluster.mesh(devices)
            if len(mesh.axes) > _ALPA_AXES:
                last = prod(mesh.axes[_ALPA_AXES - 1 :])
                mesh = Mesh((*mesh.axes[: _ALPA_AXES - 1], last))
            return ClusterCostModel(self._cluster, mesh, "execution"), mesh

        profile = SplitProfile(
            *(self.costs, self._step.reads, self._step.batched, self.blocks.of, priced),
            *(self.links, self.problem.devices, replicated),
            search=lambda problem, _: integer_program.solve(problem),
            replicas=False,
        )
        return replace(self.problem, profile=profile)

    def _problem(self, blocks: int, profile: ReplicatedProfile | SummedProfile) -> PipelineProblem:
        return PipelineProblem(
            blocks, profile, self.links, MACHINES, self._batch, self.memory_limit
        )

    def _lap(self, phase: str, begun: float) -> None:
        self.seconds[phase] = time.process_time() - begun
