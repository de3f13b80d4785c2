"""Random strategies against plain TensorFlow on one device: losses and updated variables.

A strategy is drawn uniformly from the configurations of each group of operators; it need not lie on
a frontier. The copies that are kept for the backward pass may be drawn as well. The prices of
resharding are random, too, so that many sequences of collectives occur.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tensoropt
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.world import SingleProcessWorld, World
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph
from tensoropt.parallel.buckets import BucketSizes
from tensoropt.parallel.choices.choices import Choices, configurations_of, strategy_choices
from tensoropt.parallel.configuration import KEPT, Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.rewritten.application import Rewrite
from tests.oracles.equality.kinds import split_kinds

__all__ = [
    "Drawn",
    "Script",
    "Trained",
    "choices_of",
    "draw",
    "draw_kept",
    "executor_of",
    "planned_of",
    "random_prices",
    "train_parallel",
    "train_plain",
    "worst_error",
]

tensoropt.enable_graph_mode()  # scripts use TensorFlow's graph API

Array = npt.NDArray[Any]
Price = Callable[[str, tuple[int, ...], int], int]


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A training script's graph and its data.

    Attributes:
        graph: the graph, with gradients recorded.
        train: name of the training operator.
        loss: name of the loss tensor.
        feeds: for each step the value of each placeholder operator.
    """

    graph: tf.Graph
    train: str
    loss: str
    feeds: tuple[dict[str, Array], ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each placeholder at the first step."""
        return {name: tuple(value.shape) for name, value in self.feeds[0].items()}

    @property
    def variables(self) -> list[str]:
        """The names of the tensors that read the variables, including slots."""
        with self.graph.as_default():
            values = tf.compat.v1.global_variables()
            elements = [self.graph.as_graph_element(v, allow_operation=False) for v in values]
        return [element.name for element in elements]

    def imported(self) -> Graph:
        """One training step as a logical graph."""
        return _imported(self)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The result of a training: the loss of each step and the final variables."""

    losses: Array
    variables: dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A strategy drawn at random.

    Attributes:
        numbers: an option number for each group.
        kinds: the kinds of splits in the strategy, from `KINDS`.
    """

    numbers: tuple[int, ...]
    kinds: frozenset[str]

    @property
    def reduces(self) -> bool:
        """Whether some operator reduces over a split index."""
        return "reduction" in self.kinds

    @property
    def redundant(self) -> bool:
        """Whether some operator does not split its work over all devices although it could."""
        return "redundant" in self.kinds


@functools.lru_cache(maxsize=16)
def _imported(script: Script) -> Graph:
    return import_graph(script.graph, [script.train], script.shapes)


@functools.lru_cache(maxsize=16)
def choices_of(
    script: Script, mesh: Mesh, batch_placeholders: frozenset[str]
) -> tuple[Choices, ...]:
    """The options of a strategy for one training step."""
    return strategy_choices(script.imported(), mesh, batch_placeholders)


def train_plain(script: Script) -> Trained:
    """Train with plain TensorFlow on one device."""
    with script.graph.as_default(), tf.compat.v1.Session(graph=script.graph) as session:
        session.run([variable.initializer for variable in tf.compat.v1.global_variables()])
        losses = []
        for values in script.feeds:
            feed = {f"{name}:0": value for name, value in values.items()}
            losses.append(session.run([script.loss, script.train], feed)[0])
        names = script.variables
        return Trained(np.array(losses), dict(zip(names, session.run(names), strict=True)))


def draw(
    graph: Graph, choices: Sequence[Choices], mesh: Mesh, random: np.random.Generator
) -> Drawn:
    """A strategy, uniform over each group's options."""
    numbers = tuple(int(random.integers(len(group.options))) for group in choices)
    return Drawn(numbers, split_kinds(graph, configurations_of(choices, numbers), mesh))


def draw_kept(
    choices: Sequence[Choices], share: float, random: np.random.Generator
) -> dict[str, str]:
    """Draw the kept copies, from `KEPT`, for a share of the groups; the other groups keep all
    copies."""
    drawn: dict[str, str] = {}
    for group in choices:
        kept = str(random.choice(KEPT)) if random.random() < share else KEPT[0]
        drawn |= dict.fromkeys(group.members, kept)
    return drawn


def random_prices(seed: int) -> Price:
    """Prices of collectives that follow no rule; the same collective always has the same price."""

    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return 1 + zlib.crc32(repr((seed, kind, axes, bytes_)).encode()) % 1000

    return price


def planner(mesh: Mesh, price: Price) -> PlanSteps:
    """A function that finds the cheapest collectives between two layouts by the given prices."""

    def plan_steps(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        if source == target:
            return ()
        itemsize = TensorSpec((), dtype).itemsize
        return plan_reshard(mesh, tuple(shape), itemsize, source, target, price)

    return plan_steps


def executor_of(
    graph: tf.Graph,
    mesh: Mesh,
    planned: Mapping[str, Configuration],
    price: Price,
    batch_placeholders: frozenset[str] = frozenset(),
    world: World | None = None,
    agreement: Agreement | None = None,
    seed: int = 1,
    buckets: BucketSizes | None = None,
    batch_norm: BatchNorm = "global",
    microbatches: int = 1,
    rewrites: Sequence[Rewrite] = (),
) -> Executor:
    """An executor of a script's graph with these configurations. By default all ranks are in this
    process."""
    world = world or SingleProcessWorld(mesh)
    pipeline = Pipeline.of_mesh(world, planned, planner(mesh, price), microbatches)
    options = StepOptions(
        batch_placeholders, seed, batch_norm=batch_norm, rewrites=tuple(rewrites), buckets=buckets
    )
    return Executor(graph, pipeline, options, agreement or Agreement(None))


def planned_of(
    script: Script,
    mesh: Mesh,
    numbers: Sequence[int],
    batch_placeholders: frozenset[str],
    kept: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Configuration]:
    """The configuration of every operator, with the kept copies of its outputs."""
    chosen = configurations_of(choices_of(script, mesh, batch_placeholders), numbers)
    return {
        name: replace(configuration, kept=kept.get(name, configuration.kept))
        for name, configuration in chosen.items()
    }


def train_parallel(
    script: Script,
    mesh: Mesh,
    numbers: Sequence[int],
    price: Price,
    batch_placeholders: frozenset[str],
    world: World | None = None,
    agreement: Agreement | None = None,
    seed: int = 1,
    kept: Mapping[str, str] = MappingProxyType({}),
    buckets: BucketSizes | None = None,
    batch_norm: BatchNorm = "global",
    microbatches: int = 1,
) -> Trained:
    """Train under one strategy. By default one process has all ranks, and all copies are kept."""
    planned = planned_of(script, mesh, numbers, batch_placeholders, kept)
    executor = executor_of(
        script.graph,
        mesh,
        planned,
        price,
        batch_placeholders,
        world,
        agreement,
        seed,
        buckets,
        batch_norm,
        microbatches,
    )
    losses = []
    for values in script.feeds:
        losses.append(executor.run([script.loss], [script.train], values)[script.loss])
    variables = executor.run(script.variables, [], {})
    executor.close()
    return Trained(np.array(losses), variables)


def worst_error(found: Trained, truth: Trained) -> float:
    """The largest max|a-b| / max|b| of the losses and all variables."""
    pairs = [(found.losses, truth.losses)]
    pairs += [(found.variables[name], truth.variables[name]) for name in truth.variables]
    worst = 0.0
    for value, right in pairs:
        if value.shape != right.shape or not np.all(np.isfinite(value)):
            return float("inf")
        scale = float(np.max(np.abs(right))) if right.size else 0.0
        difference = float(np.max(np.abs(value - right))) if right.size else 0.0
        worst = max(worst, difference / scale if scale else difference)
    return worst
