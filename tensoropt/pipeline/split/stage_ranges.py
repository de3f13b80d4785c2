"""The costs of all stages of a pipeline, from the priced operators of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.block_users import BlockUsers
from tensoropt.pipeline.ranges import range_maxima, range_sums, used_alone_sums, used_sums
from tensoropt.pipeline.split.sample import Sample
from tensoropt.pipeline.split.strategies import PricedState, PricedStrategies

__all__ = ["StageRanges"]


@dataclass(frozen=True, slots=True, eq=False)
class StageRanges:
    """The costs of all stages under each strategy, int64[blocks, blocks, S] by first, last block.

    Attributes:
        forward, backward, inputs: see `StagePoints.of`.
        saved: bytes that a stage saves for its backward pass, without its inputs.
        fixed: bytes that a stage holds throughout, workspace included.
        late: nanoseconds of work once per step, without sums of gradients over devices.
        gradient: bytes of gradients on a device.
        summed: bytes in addition if gradients of several microbatches are summed.
        adding: bytes of workspace in addition then, for a gradient beside the sum so far.
        sums: bytes of gradients that a device sums with other devices, by the number of devices.
        shared: the part of ``sums`` for states that other stages hold, too.
    """

    forward: Int64Array
    backward: Int64Array
    saved: Int64Array
    inputs: Int64Array
    fixed: Int64Array
    late: Int64Array
    gradient: Int64Array
    summed: Int64Array
    adding: Int64Array
    sums: Mapping[int, Int64Array]
    shared: Mapping[int, Int64Array]

    @classmethod
    def of(
        cls,
        costs: AtomCosts,
        sample: Sample,
        block: Int64Array,
        users: BlockUsers,
        priced: PricedStrategies,
        count: int,
    ) -> StageRanges:
        """Return the costs of all stages.

        Args:
            costs: the costs of the components.
            sample: the sample of the step, whose operators are priced.
            block: int64[atoms], the block of each component.
            users: the blocks that use each tensor, state and constant.
            priced: the operators' costs under each strategy.
            count: the number of strategies.
        """
        blocks = int(block.max()) + 1
        names = [sample.stands_for(atom.operator) for atom in costs.atoms.atoms]
        passes = np.stack([priced.passes[name] for name in names])
        forward, backward, saved = np.moveaxis(range_sums(passes[:, :3], block, blocks), 2, 0)
        workspace = range_maxima(passes[:, 3], block, blocks)
        later = range_maxima(passes[:, 4], block, blocks)
        used_constants = _constants(costs, sample, users, priced, count)
        constants = used_sums(blocks, used_constants, shape=(3, count))
        tensors = _received(sample, users, priced)
        received = used_sums(blocks, tensors, users.makers, shape=(count,))
        states = dict(priced.states())
        members = sorted({number for state in states.values() for number in state.sums})
        of_states = users.states.items()
        holders = [
            (holding, _stacked(states[sample.stands_for(name)], members, count))
            for name, holding in of_states
        ]
        several = [item for item in holders if len(item[0]) > 1]
        shape = 4 + len(members), count
        held = used_sums(blocks, holders, shape=shape)
        homes = [(use[:1], states[sample.stands_for(name)].slots) for name, use in of_states]
        slots = used_sums(blocks, homes, shape=(count,))
        shared = used_sums(blocks, several, shape=shape)
        shared -= used_alone_sums(blocks, several, shape=shape)
        return cls(
            forward=forward + constants[:, :, 0],
            backward=backward + constants[:, :, 1],
            saved=saved,
            inputs=received,
            fixed=workspace + held[:, :, 0] + slots + constants[:, :, 2],
            late=held[:, :, 2],
            gradient=held[:, :, 1],
            summed=held[:, :, 3],
            adding=later - workspace,
            sums={number: held[:, :, 4 + place] for place, number in enumerate(members)},
            shared={number: shared[:, :, 4 + place] for place, number in enumerate(members)},
        )


def _constants(
    costs: AtomCosts, sample: Sample, users: BlockUsers, priced: PricedStrategies, count: int
) -> Iterator[tuple[tuple[int, ...], Int64Array]]:
    """Yield each constant's users and its costs: forward and backward nanoseconds, bytes.

    Constants are operators that do not depend on the batch; users are blocks.
    """
    for name, using in users.constants.items():
        passes = priced.passes.get(sample.stands_for(name), np.zeros((2, count), int))
        bytes_ = costs.constant_bytes(name)
        if bytes_ or passes[:2].any():
            yield using, np.stack([*passes[:2], np.full(count, bytes_)])


def _received(
    sample: Sample, users: BlockUsers, priced: PricedStrategies
) -> Iterator[tuple[tuple[int, ...], Int64Array]]:
    """Yield, for each tensor between blocks, the blocks that read it, and its bytes."""
    for tensor, reading in users.tensors.items():
        stand_in = TensorName(sample.stands_for(tensor.operator), tensor.index)
        yield reading, priced.made_bytes(stand_in)


def _stacked(state: PricedState, members: list[int], count: int) -> Int64Array:
    """Return the costs of a state as rows, with a row of sums for each number of devices."""
    zeros = np.zeros(count, np.int64)
    sums = [state.sums.get(number, zeros) for number in members]
    return np.stack([state.fixed, state.gradient, state.late, state.summed, *sums])
