"""The costs of stages whose operators frontier tracking splits over the devices of the stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.parallel.choices.pins import MeshPins, Pins
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.block_users import BlockUsers
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.profile import AddingGradients, ReplicatedProfile
from tensoropt.pipeline.sent import sent, sent_columns
from tensoropt.pipeline.split.costs import SampleCosts
from tensoropt.pipeline.split.sample import Sample
from tensoropt.pipeline.split.stage_ranges import StageRanges
from tensoropt.pipeline.split.strategies import PricedStrategies
from tensoropt.pipeline.stages.pipeline import Stage
from tensoropt.pipeline.stages.points import COLUMNS, StagePoints
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PLAIN, Space
from tensoropt.problem.from_graph import simplest
from tensoropt.problem.model import Problem
from tensoropt.search.find import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.reduce import reduce_points

__all__ = ["Search", "SplitProfile", "tracked"]

Search = Callable[[Problem, AnnotatedGraph], Frontier]
"""Returns the frontier of a problem of a graph."""

EPSILON = 0.05  # the most that a search's frontier may be away from the exact one
_MEMORIES = 12  # strategies that are taken from a search's frontier, at evenly spaced memories
_APART = 1.1  # the least factor between the memories of two points of a stage


class SplitProfile:
    """The profile of stages whose operators are split over the devices of the stage.

    For each number of devices and of examples, one problem is searched: that of the sample of the
    whole step (`Sample`). Its strategies are those of every stage. A stage of several machines is a
    replica, on each machine, of a stage of one machine. The point of the replicated profile is
    among the points of every stage.

    A tensor that another stage makes arrives in the layout of its producer, in one message for each
    tensor and device.

    Args:
        costs: the costs of the components.
        reads: the tensors that the backward pass reads.
        batched: the placeholders of the batch.
        block: int64[atoms], the block of each component; blocks are in topological order.
        priced: returns the cost model and the mesh of a number of devices of a machine.
        links: the links between stages and among replicas.
        devices: the number of devices of all machines.
        replicated: the profile of the same blocks, replicated.
        search: finds the frontier of a problem; by default `tracked`.
        points: the most points of a stage that recompute, and the most that do not, besides the
            replicated one.
        replicas: whether a stage also has the point of the replicated profile, which allows numbers
            of examples that the machines do not divide. If False, each point is a strategy (see
            `strategy`), and machines and copies divide the examples.
        known: strategies that replace searches, by the devices of a machine and the examples;
            int64[S, nodes], as `strategies_for` returns them.
        space: which configurations are searched.
        plain: the profile of stages that keep all tensors for the backward pass, if ``space`` lets
            stages keep fewer. Its strategies are added to every stage.
        pins: dimensions that are divided by hand; none by default.
        counts: returns the groups of each level for a number of devices of a machine, for pins.

    Attributes:
        block: int64[atoms], the block of each component.
        sample: the sample of the step, whose strategies are searched.
        replicated: the profile of the same blocks, replicated.
    """

    def __init__(
        self,
        costs: AtomCosts,
        reads: BackwardReads,
        batched: frozenset[str],
        block: Int64Array,
        priced: Callable[[int], tuple[CostModel, Mesh]],
        links: Links,
        devices: int,
        replicated: ReplicatedProfile,
        search: Search | None = None,
        points: int = 6,
        replicas: bool = True,
        known: Mapping[tuple[int, int], Int64Array] | None = None,
        space: Space = PLAIN,
        plain: SplitProfile | None = None,
        pins: Pins = Pins(),  # noqa: B008
        counts: Callable[[int], tuple[int, ...]] | None = None,
    ) -> None:
        self._costs, self._batched, self._links = costs, batched, links
        self.block, self._blocks = block, int(block.max()) + 1
        self._priced, self.replicated = priced, replicated
        self._devices, self._search, self._points = devices, search or tracked, points
        self._replicas, self._known = replicas, dict(known or {})
        self._space, self._plain = space, plain
        self._keeps_less = space.reuse or space.recompute
        self._pins, self._counts = pins, counts
        self.sample = Sample.of(costs, reads, pins.of_operator)
        self._like: SplitProfile | None = None
        self._searches: dict[tuple[int, int], tuple[SampleCosts, Int64Array]] = {}
        self._strategies_priced: dict[tuple[int, int], PricedStrategies] = {}
        self._set_blocks()

    def of_blocks(self, block: Int64Array, replicated: ReplicatedProfile) -> SplitProfile:
        """Return the profile of other blocks of the step. It shares the searches of this one.

        Args:
            block: int64[atoms], the block of each component.
            replicated: the profile of the same blocks, replicated.
        """
        other = copy(self)
        other.block, other._blocks = block, int(block.max()) + 1
        other.replicated = replicated
        other._set_blocks()
        return other

    def priced_by(
        self, priced: Callable[[int], tuple[CostModel, Mesh]], replicated: ReplicatedProfile
    ) -> SplitProfile:
        """Return the profile of this one's strategies by other cost models.

        Args:
            priced: see the class.
            replicated: the profile of the same blocks, replicated, by these cost models.
        """
        other = copy(self)
        other._priced, other.replicated, other._like = priced, replicated, self
        other._searches, other._strategies_priced = {}, {}
        other._set_blocks()
        return other

    def _set_blocks(self) -> None:
        """Set everything that depends on the blocks."""
        self._sent = sent(self._costs, self.block)
        self._ranges: dict[tuple[int, int], StageRanges] = {}
        self._stages: dict[tuple[int, int, int], Int64Array] = {}
        self._adding = AddingGradients(self._priced(1)[0])
        self._users = BlockUsers.of(self._costs.atoms, self.block)

    def __call__(
        self, first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        """Return the points of a stage; see `tensoropt.pipeline.stages.points.Profile`."""
        replicated = self.replicated(first, last, devices, microbatch, copies)
        if not self._replicas:
            if not self._divides(devices, microbatch, copies):
                return None
            is_searched = self._is_searched(min(devices, self._links.machine))
            replicated = None if is_searched else replicated
        if not self._has_search(devices, microbatch, copies):
            return replicated
        values = self._values(devices, microbatch, copies)[first, last]
        split = values[self._chosen(values, devices, microbatch, copies)]
        points = [split] if replicated is None else [replicated.values, split]
        return StagePoints(np.concatenate(points))

    def price(self, devices: int, microbatch: int, copies: int) -> None:
        """Search and price the strategies of all stages with these devices, which takes seconds.

        A call of the profile does the same for stages that have not been priced.
        """
        if self._has_search(devices, microbatch, copies):
            self._values(devices, microbatch, copies)

    def _has_search(self, devices: int, microbatch: int, copies: int) -> bool:
        """Whether stages with these devices have strategies of a search."""
        machine = self._links.machine
        group, groups = min(devices, machine), -(-devices // machine)
        if not self._is_searched(group) or group * groups != devices or microbatch < groups:
            return False
        return (
            machine % group == 0 if self._replicas else self._divides(devices, microbatch, copies)
        )

    def _divides(self, devices: int, microbatch: int, copies: int) -> bool:
        """Whether copies and machines divide the examples, in a profile without replicas."""
        examples, groups = self._costs.growth.examples, -(-devices // self._links.machine)
        return examples % (microbatch * copies) == 0 and microbatch % groups == 0

    def part(
        self, stage: tuple[int, int], part: tuple[int, int], devices: int, microbatch: int
    ) -> StagePoints:
        """Return the costs of some of a stage's blocks, under each point of the stage.

        Args:
            stage: the first and the last block of the stage.
            part: the first and the last of the blocks to price.
            devices: the devices of the stage.
            microbatch: the examples of a microbatch.
        """
        if not self._is_searched(min(devices, self._links.machine)):
            points = self.replicated(*part, devices, microbatch, 1)
            assert points is not None, "the stage runs on these devices"
            return points
        values = self._values(devices, microbatch, 1)
        return StagePoints(values[part][self._chosen(values[stage], devices, microbatch, 1)])

    def strategy(
        self, stage: Stage, microbatch: int, copies: int = 1
    ) -> tuple[SampleCosts, Int64Array]:
        """Return the strategy of a stage's point, in a profile without replicas.

        Returns:
            The costs of the sample for a microbatch on the stage's devices of one machine, and
            int64[nodes], the number of each node's configuration.
        """
        assert not self._replicas, "a replicated point has no strategy"
        searched = self.searched_for(stage, microbatch)
        if searched is None:
            priced, strategies = self._on_one_device(microbatch // stage.devices)
            return priced, strategies[0]
        values = self._values(stage.devices, microbatch, copies)[stage.first, stage.last]
        chosen = self._chosen(values, stage.devices, microbatch, copies)
        priced, strategies = self._searched(*searched)
        return priced, strategies[chosen[stage.point]]

    def _on_one_device(self, examples: int) -> tuple[SampleCosts, Int64Array]:
        """Return the costs and the only strategy of a device. They are made once."""
        key = 1, examples
        if key not in self._searches:
            cost, mesh = self._priced(1)
            priced = SampleCosts(self.sample, examples, cost, mesh, self._batched)
            self._searches[key] = priced, np.zeros((1, len(priced.annotated.choices)), np.int64)
        return self._searches[key]

    def searched_for(self, stage: Stage, microbatch: int) -> tuple[int, int] | None:
        """Return the devices of a machine and the examples of a stage's search.

        The result is None if the stage needs no search.
        """
        group = min(stage.devices, self._links.machine)
        groups = -(-stage.devices // group)
        return (group, -(-microbatch // groups)) if self._is_searched(group) else None

    def _is_searched(self, group: int) -> bool:
        """Whether stages with ``group`` devices of a machine have different strategies.

        A single device has a single strategy, unless operators may keep fewer tensors.
        """
        return group > 1 or self._keeps_less

    def strategies_for(self, searched: tuple[int, int]) -> Int64Array:
        """Return int64[S, nodes]: the strategies of a search, given as by `searched_for`."""
        return self._searched(*searched)[1]

    def _values(self, devices: int, microbatch: int, copies: int) -> Int64Array:
        """Return `_all_stages` for a number of devices. It is computed once."""
        key = devices, microbatch, copies
        if key not in self._stages:
            group = min(devices, self._links.machine)
            self._stages[key] = self._all_stages(group, devices // group, microbatch, copies)
        return self._stages[key]

    def _chosen(self, values: Int64Array, devices: int, microbatch: int, copies: int) -> Int64Array:
        """Return the numbers of the strategies that become points of a stage.

        They are the best with and the best without recomputation, if all stages of the pipeline
        have the same number of devices.

        Args:
            values: int64[S, 14], `StagePoints.values` of the stage under all strategies.
            devices: the devices of the stage.
            microbatch: the examples of a microbatch.
            copies: the copies of the pipeline.
        """
        microbatches = max(1, self._costs.growth.examples // copies // microbatch)
        held = max(1, min(microbatches, self._devices // copies // devices))
        column = {name: values[:, number] for number, name in enumerate(COLUMNS)}
        time = (column["forward"] + column["backward"]) * microbatches + column["once"]
        chosen: list[int] = []
        for recompute in (False, True):
            in_flight = column["inputs"] if recompute else column["saved"]
            memory = column["fixed"] + held * in_flight + (column["saved"] if recompute else 0)
            step_time = time + (column["forward"] * microbatches if recompute else 0)
            best = reduce_points(memory, step_time)[::-1]
            chosen += _apart(best, memory[best], _APART)[: self._points]
            if self._keeps_less:  # the memories have a wider range: take points from all of it
                apart = (memory[best[0]] / max(1, memory[best[-1]])) ** (1 / self._points)
                chosen += _apart(best, memory[best], max(_APART, apart))
        return np.array(sorted(set(chosen)), dtype=np.int64)

    def _all_stages(self, group: int, groups: int, microbatch: int, copies: int) -> Int64Array:
        """Return int64[blocks, blocks, S, 14]: `StagePoints.values` of all stages.

        Args:
            group: the devices of a stage on each machine.
            groups: the number of machines, or of replicas, of a stage.
            microbatch: the examples of a microbatch.
            copies: the copies of the pipeline.
        """
        costs, links = self._costs, self._links
        examples = -(-microbatch // groups)
        if (group, examples) not in self._ranges:
            priced = self._priced_strategies(group, examples)
            count = len(self._searched(group, examples)[1])
            self._ranges[group, examples] = StageRanges.of(
                costs, self.sample, self.block, self._users, priced, count
            )
        ranges = self._ranges[group, examples]
        backward, fixed = ranges.backward, ranges.fixed
        if microbatch * copies < costs.growth.examples:
            backward = backward + self._adding(ranges.gradient + ranges.summed)
            fixed = fixed + ranges.summed + ranges.adding
        once = ranges.late.copy()
        for members, bytes_ in ranges.sums.items():
            shared = ranges.shared[members]
            once += links.sums_nanoseconds(bytes_ - shared, members, groups * copies)
            once += links.sums_nanoseconds(shared, members, 2 * groups * copies)
        bytes_ = -(-costs.part(self._sent[..., 0], self._sent[..., 1], examples) // group)
        columns_sent = (
            np.broadcast_to(amounts[..., None], ranges.forward.shape)
            for amounts in sent_columns(bytes_, self._sent[..., 2])
        )
        columns = (
            ranges.forward,
            backward,
            once,
            fixed,
            ranges.saved + ranges.inputs,
            ranges.inputs,
            *columns_sent,
        )
        return np.stack(columns, axis=-1)

    def _searched(self, group: int, examples: int) -> tuple[SampleCosts, Int64Array]:
        """Return the costs and the strategies of a search. It is made once."""
        key = group, examples
        if key not in self._searches:
            cost, mesh = self._priced(group)
            pins = self._pins_on(mesh)
            priced = SampleCosts(
                self.sample, examples, cost, mesh, self._batched, self._space, pins
            )
            like = self._like
            strategies = self._known.get(key) if like is None else like.strategies_for(key)
            if strategies is None:
                strategies = self._strategies(priced, group, examples)
                if self._plain is not None:
                    # Configurations that keep all tensors have the same numbers in both spaces.
                    strategies = np.concatenate([self._plain.strategies_for(key), strategies])
            self._searches[key] = priced, strategies
        return self._searches[key]

    def _pins_on(self, mesh: Mesh) -> MeshPins | None:
        if self._counts is None or not self._pins.of_operator:
            return None
        return self._pins.on(mesh, self._counts(mesh.size))

    def _strategies(self, priced: SampleCosts, group: int, examples: int) -> Int64Array:
        """Return int64[S, nodes]: the strategies that a search finds."""
        microbatches = max(1, self._costs.growth.examples // examples)
        # Half of the microbatches in flight in the first of equal stages.
        held = max(1, min(microbatches, self._devices // group // 2))
        problem = priced.problem(microbatches, held)
        strategies = _few(self._search(problem, priced.annotated)).tolist()
        choices = priced.annotated.choices
        return np.array([simplest(problem, choices, each) for each in strategies], np.int64)

    def _priced_strategies(self, group: int, examples: int) -> PricedStrategies:
        """Return the strategies of a search with the costs of their operators, priced once."""
        key = group, examples
        if key not in self._strategies_priced:
            priced, strategies = self._searched(group, examples)
            cost, _ = self._priced(group)
            self._strategies_priced[key] = PricedStrategies(self.sample, priced, cost, strategies)
        return self._strategies_priced[key]


def _apart(places: Int64Array, memory: Int64Array, factor: float) -> list[int]:
    """Return the first place, and further ones whose memory is smaller by at least a factor.

    Args:
        places: the places to choose from.
        memory: int64[places], their memories, which descend.
        factor: between the memories of two chosen places.
    """
    smallest, chosen = np.inf, []
    for place, size in zip(places.tolist(), memory.tolist(), strict=True):
        if size * factor < smallest:
            chosen.append(place)
            smallest = size
    return chosen


def tracked(problem: Problem, _: AnnotatedGraph) -> Frontier:
    """Return the frontier of a problem within `EPSILON`, by frontier tracking."""
    return frontier_tracking(problem, epsilon=EPSILON)


def _few(frontier: Frontier) -> Int32Array:
    """Return the fastest strategies within `_MEMORIES` evenly spaced limits of memory."""
    memory = np.linspace(frontier.memory[0], frontier.memory[-1], _MEMORIES)
    chosen = np.unique(np.searchsorted(frontier.memory, memory, side="right") - 1)
    strategies: Int32Array = frontier.strategies[chosen]
    return strategies
