"""What a stage costs that frontier tracking splits over its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.ranges import held_alone, held_by, range_most, range_sums
from tensoropt.pipeline.sent import sent
from tensoropt.pipeline.split.costs import SampleCosts
from tensoropt.pipeline.split.sample import Sample
from tensoropt.pipeline.split.strategies import PricedState, PricedStrategies
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
"""Finds strategies of a problem of a graph."""

EPSILON = 0.05
_MEMORIES = 12  # of a search's frontier, of which strategies are taken
_APART = 1.1  # points of a stage differ by so much in memory


@dataclass(frozen=True, slots=True, eq=False)
class _Ranges:
    """All stages under each strategy, int64[blocks, blocks, S] by first and last block.

    Attributes:
        forward, backward, saved, inputs, fixed, late: as `StagePoints.of` has them; ``fixed`` with
            workspace, ``late`` without sums of gradients.
        gradient: bytes of gradients on a device.
        summed: more bytes where gradients of several microbatches are summed.
        sums, shared: bytes of gradients that several devices add up, by how many; ``shared`` is
            what other stages hold, too.
    """

    forward: Int64Array
    backward: Int64Array
    saved: Int64Array
    inputs: Int64Array
    fixed: Int64Array
    late: Int64Array
    gradient: Int64Array
    summed: Int64Array
    sums: Mapping[int, Int64Array]
    shared: Mapping[int, Int64Array]


class SplitProfile:
    """The profile of blocks that frontier tracking splits over the devices of their stage.

    For each number of devices and of examples one problem is searched, of the whole step with few
    of the layers that repeat (`Sample`), and its strategies are those of all stages: blocks, and
    layers, that are alike are solved once. A stage of several machines is as many replicas of a
    stage of one, each with its share of the examples. The points of the replicated profile are
    among those of every stage.

    What crosses a boundary arrives in the layout that its producer gives it, in one message for
    each tensor and device.

    Args:
        costs: of the components.
        reads: what the backward pass reads.
        batched: placeholders of the batch.
        block: int64[atoms], the block of each, blocks in topological order.
        priced: the prices and the mesh of a number of devices of a machine.
        links: between stages and among replicas.
        devices: of all machines.
        replicated: the profile of the same blocks.
        search: of one problem.
        points: at most so many of a stage, besides the replicated one.
        replicas: whether a stage of several devices has the replicated profile's point, too, whose
            examples need not divide; without, each of its points is a strategy (`strategy`), and
            stages of several machines, and copies, have examples that divide.
        known: strategies that stand for searches, int64[S, nodes] as `strategies_for` has them, by
            the devices of a machine and the examples.
        space: what is searched.
        plain: the profile of stages that keep all for the backward pass, where these may keep less:
            a stage has its strategies, too.

    Attributes:
        sample: of the step, for which strategies are searched.
        replicated: the profile of the same blocks.
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
    ) -> None:
        self._costs, self._batched, self._links = costs, batched, links
        self._block, self._blocks = block, int(block.max()) + 1
        self._priced, self.replicated = priced, replicated
        self._devices, self._search, self._points = devices, search or tracked, points
        self._replicas, self._known = replicas, dict(known or {})
        self._space, self._plain = space, plain
        self._keeps_less = space.reuse or space.recompute
        self.sample = Sample.of(costs, reads)
        self._found: dict[tuple[int, int], tuple[SampleCosts, Int64Array]] = {}
        self._strategies_priced: dict[tuple[int, int], PricedStrategies] = {}
        self._of_blocks()

    def of_blocks(self, block: Int64Array, replicated: ReplicatedProfile) -> SplitProfile:
        """The profile of other blocks of the step, with the same searches.

        Args:
            block: int64[atoms], as the profile's.
            replicated: the profile of the same blocks.
        """
        other = copy(self)
        other._block, other._blocks = block, int(block.max()) + 1
        other.replicated = replicated
        other._of_blocks()
        return other

    def _of_blocks(self) -> None:
        """Begin with the blocks."""
        self._sent = sent(self._costs, self._block)
        self._ranges: dict[tuple[int, int], _Ranges] = {}
        self._stages: dict[tuple[int, int, int], Int64Array] = {}
        self._accumulating: dict[int, int] = {}
        self._received()

    def __call__(
        self, first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        """See `tensoropt.pipeline.stages.points.Profile`."""
        whole = self.replicated(first, last, devices, microbatch, copies)
        machine = self._links.machine
        group, groups = min(devices, machine), -(-devices // machine)
        searched = self._is_searched(group) and group * groups == devices and microbatch >= groups
        if self._replicas:
            searched = searched and machine % group == 0
        else:
            examples = self._costs.growth.examples
            if examples % (microbatch * copies) or microbatch % groups:
                return None
            whole = None if self._is_searched(group) else whole
        if not searched:
            return whole
        values = self._values(devices, microbatch, copies)[first, last]
        chosen = self._chosen(values, devices, microbatch, copies)
        found = [values[chosen]] if whole is None else [whole.values, values[chosen]]
        return StagePoints(np.concatenate(found))

    def part(
        self, stage: tuple[int, int], part: tuple[int, int], devices: int, microbatch: int
    ) -> StagePoints:
        """What some of a stage's blocks cost under each of its points.

        Args:
            stage: its first and last block.
            part: the first and last of them.
            devices, microbatch: of the stage, which runs so.
        """
        if not self._is_searched(min(devices, self._links.machine)):
            found = self.replicated(*part, devices, microbatch, 1)
            assert found is not None, "the stage runs so"
            return found
        values = self._values(devices, microbatch, 1)
        return StagePoints(values[part][self._chosen(values[stage], devices, microbatch, 1)])

    def strategy(
        self, stage: Stage, microbatch: int, copies: int = 1
    ) -> tuple[SampleCosts, Int64Array]:
        """What the point of a stage is, in a profile without replicas.

        Returns:
            The costs of the sample for a microbatch on the devices that the stage has of a machine,
            and int64[nodes], the number of each node's configuration.
        """
        assert not self._replicas, "points may be replicated"
        searched = self.searched_for(stage, microbatch)
        if searched is None:
            cost, mesh = self._priced(1)
            examples = microbatch // stage.devices
            priced = SampleCosts(self.sample, examples, cost, mesh, self._batched)
            return priced, np.zeros(len(priced.annotated.choices), np.int64)
        values = self._values(stage.devices, microbatch, copies)[stage.first, stage.last]
        chosen = self._chosen(values, stage.devices, microbatch, copies)
        priced, every = self._searched(*searched)
        return priced, every[chosen[stage.point]]

    def searched_for(self, stage: Stage, microbatch: int) -> tuple[int, int] | None:
        """The devices of a machine and the examples of a stage's search; None where nothing is
        searched."""
        group = min(stage.devices, self._links.machine)
        groups = -(-stage.devices // group)
        return (group, -(-microbatch // groups)) if self._is_searched(group) else None

    def _is_searched(self, group: int) -> bool:
        """Whether stages of so many devices of a machine differ: one device splits nothing."""
        return group > 1 or self._keeps_less

    def strategies_for(self, searched: tuple[int, int]) -> Int64Array:
        """int64[S, nodes]: the strategies of a search, by `searched_for`."""
        return self._searched(*searched)[1]

    def _values(self, devices: int, microbatch: int, copies: int) -> Int64Array:
        """`_all_stages` on so many devices, found once."""
        key = devices, microbatch, copies
        if key not in self._stages:
            group = min(devices, self._links.machine)
            self._stages[key] = self._all_stages(group, devices // group, microbatch, copies)
        return self._stages[key]

    def _chosen(self, values: Int64Array, devices: int, microbatch: int, copies: int) -> Int64Array:
        """Which strategies are worth a stage's while, with and without recomputation, where the
        stages before and behind it have as many devices."""
        microbatches = max(1, self._costs.growth.examples // copies // microbatch)
        held = max(1, min(microbatches, self._devices // copies // devices))
        column = {name: values[:, number] for number, name in enumerate(COLUMNS)}
        time = (column["forward"] + column["backward"]) * microbatches + column["once"]
        found: list[int] = []
        for again in (False, True):
            stays = column["inputs"] if again else column["saved"]
            memory = column["fixed"] + held * stays + (column["saved"] if again else 0)
            took = time + (column["forward"] * microbatches if again else 0)
            best = reduce_points(memory, took)[::-1]
            found += _apart(best, memory[best], _APART)[: self._points]
            if self._keeps_less:  # memories are further apart in all
                apart = (memory[best[0]] / max(1, memory[best[-1]])) ** (1 / self._points)
                found += _apart(best, memory[best], max(_APART, apart))
        return np.array(sorted(set(found)), dtype=np.int64)

    def _all_stages(self, group: int, groups: int, microbatch: int, copies: int) -> Int64Array:
        """int64[blocks, blocks, S, 14]: `StagePoints.values` of all stages."""
        costs, links = self._costs, self._links
        examples = -(-microbatch // groups)
        if (group, examples) not in self._ranges:
            self._ranges[group, examples] = self._summed(group, examples)
        ranges = self._ranges[group, examples]
        backward, fixed = ranges.backward, ranges.fixed
        if microbatch * copies < costs.growth.examples:
            backward = backward + self._accumulated(ranges.gradient + ranges.summed)
            fixed = fixed + ranges.summed
        once = ranges.late.copy()
        for members, bytes_ in ranges.sums.items():
            shared = ranges.shared[members]
            once += links.sums_nanoseconds(bytes_ - shared, members, groups * copies)
            once += links.sums_nanoseconds(shared, members, 2 * groups * copies)
        bytes_ = -(-costs.part(self._sent[..., 0], self._sent[..., 1], examples) // group)
        moved = [
            np.broadcast_to(amounts[way, kind, ..., None], ranges.forward.shape)
            for kind in range(2)
            for amounts in (bytes_, self._sent[..., 2])
            for way in range(2)
        ]
        columns = (
            ranges.forward,
            backward,
            once,
            fixed,
            ranges.saved + ranges.inputs,
            ranges.inputs,
            *moved,
        )
        return np.stack(columns, axis=-1)

    def _accumulated(self, gradients: Int64Array) -> Int64Array:
        """Nanoseconds of adding a microbatch's gradients to those of the ones before."""
        cost, _ = self._priced(1)
        sizes, which = np.unique(gradients, return_inverse=True)
        for size in sizes.tolist():
            if size not in self._accumulating:
                work = OperatorWork("elementwise", "float32", size // 4, 3 * size)
                self._accumulating[size] = cost.operator_nanoseconds(work).forward
        times = np.array([self._accumulating[size] for size in sizes.tolist()], np.int64)
        return times[which].reshape(gradients.shape)

    def _searched(self, group: int, examples: int) -> tuple[SampleCosts, Int64Array]:
        """The strategies of stages on some devices of a machine, found once, and their costs."""
        key = group, examples
        if key not in self._found:
            cost, mesh = self._priced(group)
            priced = SampleCosts(self.sample, examples, cost, mesh, self._batched, self._space)
            every = self._known.get(key)
            if every is None:
                every = self._strategies(priced, group, examples)
                if self._plain is not None:
                    # Numbers of configurations that keep all are the same in both spaces.
                    every = np.concatenate([self._plain.strategies_for(key), every])
            self._found[key] = priced, every
        return self._found[key]

    def _strategies(self, priced: SampleCosts, group: int, examples: int) -> Int64Array:
        """int64[S, nodes]: a search's strategies."""
        microbatches = max(1, self._costs.growth.examples // examples)
        # Half as many in flight as the first of equal stages holds.
        held = max(1, min(microbatches, self._devices // group // 2))
        problem = priced.problem(microbatches, held)
        found = _few(self._search(problem, priced.annotated))
        choices = priced.annotated.choices
        return np.array([simplest(problem, choices, each) for each in found.tolist()], np.int64)

    def _summed(self, group: int, examples: int) -> _Ranges:
        """What all stages cost under each strategy."""
        costs, sample, blocks = self._costs, self.sample, self._blocks
        own, every = self._searched(group, examples)
        key, count = (group, examples), len(every)
        if key not in self._strategies_priced:
            cost, _ = self._priced(group)
            self._strategies_priced[key] = PricedStrategies(sample, own, cost, every)
        priced = self._strategies_priced[key]
        names = [sample.stands_for(atom.operator) for atom in costs.atoms.atoms]
        passes = np.stack([priced.passes[name] for name in names])
        forward, backward, saved = np.moveaxis(range_sums(passes[:, :3], self._block, blocks), 2, 0)
        fixed = range_most(passes[:, 3], self._block, blocks)
        constants = self._constants(priced, count)
        more = held_by(blocks, constants, each=(3, count))
        received = held_by(blocks, self._arriving(priced), self._made_in, each=(count,))
        states = dict(priced.states())
        members = sorted({each for state in states.values() for each in state.sums})
        holding = [
            (users, _stacked(states[sample.stands_for(name)], members, count))
            for name, users in self._holders.items()
        ]
        several = [item for item in holding if len(item[0]) > 1]
        each = 4 + len(members), count
        held = held_by(blocks, holding, each=each)
        shared = held_by(blocks, several, each=each) - held_alone(blocks, several, each=each)
        return _Ranges(
            forward + more[:, :, 0],
            backward + more[:, :, 1],
            saved,
            received,
            fixed + held[:, :, 0] + more[:, :, 2],
            held[:, :, 2],
            held[:, :, 1],
            held[:, :, 3],
            {number: held[:, :, 4 + place] for place, number in enumerate(members)},
            {number: shared[:, :, 4 + place] for place, number in enumerate(members)},
        )

    def _constants(
        self, priced: PricedStrategies, count: int
    ) -> Iterator[tuple[tuple[int, ...], Int64Array]]:
        """Forward and backward nanoseconds and bytes of what depends on no batch, by blocks."""
        for name, users in self._users.items():
            passes = priced.passes.get(self.sample.stands_for(name), np.zeros((2, count), int))
            bytes_ = self._costs.constant_bytes(name)
            if bytes_ or passes[:2].any():
                yield users, np.stack([*passes[:2], np.full(count, bytes_)])

    def _arriving(self, priced: PricedStrategies) -> Iterator[tuple[tuple[int, ...], Int64Array]]:
        """What other blocks read of a tensor, by blocks."""
        for tensor, users in self._read_in.items():
            stands = TensorName(self.sample.stands_for(tensor.operator), tensor.index)
            yield users, priced.made_bytes(stands)

    def _received(self) -> None:
        """Who holds and reads what."""
        atoms = self._costs.atoms
        self._holders = {name: self._at(state.atoms) for name, state in atoms.states.items()}
        users: dict[str, list[int]] = {}
        for place, atom in enumerate(atoms.atoms):
            for name in atom.constants:
                users.setdefault(name, []).append(place)
        self._users = {name: self._at(places) for name, places in users.items()}
        readers: dict[TensorName, list[int]] = {}
        makers: dict[TensorName, int] = {}
        for maker, reader, tensor in atoms.edges:
            if tensor is not None and self._block[maker] != self._block[reader]:
                makers[tensor] = int(self._block[maker])
                readers.setdefault(tensor, []).append(reader)
        self._read_in = {tensor: self._at(places) for tensor, places in readers.items()}
        self._made_in = [makers[tensor] for tensor in readers]

    def _at(self, places: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        return tuple(sorted({int(self._block[place]) for place in places}))


def _apart(places: Int64Array, memory: Int64Array, factor: float) -> list[int]:
    """Places, the first among them, whose memories, which descend, are apart by a factor."""
    below, found = np.inf, []
    for place, size in zip(places.tolist(), memory.tolist(), strict=True):
        if size * factor < below:
            found.append(place)
            below = size
    return found


def tracked(problem: Problem, _: AnnotatedGraph) -> Frontier:
    """Frontier tracking, to within `EPSILON`."""
    return frontier_tracking(problem, epsilon=EPSILON)


def _few(frontier: Frontier) -> Int32Array:
    """The fastest strategies of memories that are evenly apart."""
    memory = np.linspace(frontier.memory[0], frontier.memory[-1], _MEMORIES)
    chosen = np.unique(np.searchsorted(frontier.memory, memory, side="right") - 1)
    found: Int32Array = frontier.strategies[chosen]
    return found


def _stacked(state: PricedState, members: list[int], count: int) -> Int64Array:
    zeros = np.zeros(count, np.int64)
    sums = [state.sums.get(number, zeros) for number in members]
    return np.stack([state.fixed, state.gradient, state.late, state.summed, *sums])
