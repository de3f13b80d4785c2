"""The cost of a stage of replicated blocks, from the costs of its operators: RaNNC's ``profile``.

RaNNC runs every possible stage. TensorOpt adds up the times of the stage's operators instead. A
tied weight or a received tensor counts once in a stage, also where several operators read it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.block_users import BlockUsers
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.ranges import range_maxima, range_sums, used_alone_sums, used_sums
from tensoropt.pipeline.sent import sent, sent_columns
from tensoropt.pipeline.stages.points import StagePoints

__all__ = ["AddingGradients", "ReplicatedProfile"]


class AddingGradients:
    """The nanoseconds to add a microbatch's gradients to those of earlier ones.

    Args:
        cost: the cost model.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._known: dict[int, int] = {}

    def __call__(self, gradients: Int64Array) -> Int64Array:
        """Return the nanoseconds for each number of bytes on a device, in the same shape."""
        sizes, which = np.unique(gradients, return_inverse=True)
        for size in sizes.tolist():
            if size not in self._known:
                work = OperatorWork("elementwise", "float32", size // 4, 3 * size)
                self._known[size] = self._cost.operator_nanoseconds(work).forward
        times = np.array([self._known[size] for size in sizes.tolist()], np.int64)
        return times[which].reshape(gradients.shape)


class ReplicatedProfile:
    """The profile of replicated stages: every device runs all blocks on its share of the examples.

    If the number of devices does not divide the microbatch, the stage takes as long as the device
    with the most examples. The gradient of a tied weight is summed over all stages that hold the
    weight. Its price is that of a sum over twice as many copies of the pipeline.

    Args:
        costs: times and memory of the components.
        block: int64[atoms], the block of each component; blocks are in topological order.
        cost: the cost model.
        links: the links between stages and among replicas.
    """

    def __init__(self, costs: AtomCosts, block: Int64Array, cost: CostModel, links: Links) -> None:
        self._costs, self._links = costs, links
        self._block = block
        self._blocks = int(block.max()) + 1
        self._by_examples: dict[int, tuple[Int64Array, ...]] = {}
        self._all_stages: dict[tuple[int, int, int], Int64Array] = {}
        self._adding = AddingGradients(cost)
        growth = costs.growth
        users = BlockUsers.of(costs.atoms, block)
        states, self._constants = users.states, users.constants
        held = {name: costs.state_bytes(name) for name in states}
        slots = {name: costs.slot_bytes(name) for name in states}
        self._fixed = self._used_sums((states[n], sum(held[n]) - slots[n]) for n in states)
        self._fixed += self._used_sums((states[n][:1], slots[n]) for n in states)
        self._fixed += self._used_sums(
            (blocks, costs.constant_bytes(name)) for name, blocks in self._constants.items()
        )
        self._gradients = self._used_sums((states[n], held[n][1]) for n in states)
        summed = {name: costs.summed_bytes(name) for name in states}
        self._summed = self._used_sums((states[n], summed[n]) for n in states)
        alone = used_alone_sums(self._blocks, ((states[n], summed[n]) for n in states))
        self._shared = self._summed - alone
        updates = {
            name: sum(costs.operator_time(n, growth.examples).forward for n in state.updates)
            for name, state in costs.atoms.states.items()
        }
        self._updates = self._used_sums((states[n], updates[n]) for n in states)
        sizes = [growth.tensor_bytes(tensor, growth.examples) for tensor in users.tensors]
        growing = map(growth.tensor_grows, users.tensors)
        fixed = [0 if grows else size for grows, size in zip(growing, sizes, strict=True)]
        self._inputs = tuple(
            self._used_sums(zip(users.tensors.values(), weights, strict=True), users.makers)
            for weights in (sizes, fixed)
        )
        self._sent = sent(costs, block)
        self._saved = range_sums(costs.saved, block, self._blocks)

    def __call__(
        self, first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        """One point; see `tensoropt.pipeline.stages.points.Profile`."""
        if microbatch < devices:
            return None
        key = devices, microbatch, copies
        if key not in self._all_stages:
            self._all_stages[key] = self._values(*key)
        return StagePoints(self._all_stages[key][first, last, np.newaxis])

    def _values(self, devices: int, microbatch: int, copies: int) -> Int64Array:
        """Return int64[blocks, blocks, 14]: `StagePoints.values` by first and last block."""
        examples = -(-microbatch // devices)
        if examples not in self._by_examples:
            self._by_examples[examples] = self._ranges_at(examples)
        forward, backward, saved, inputs, workspace, later, bytes_ = self._by_examples[examples]
        summed, shared, links = self._summed, self._shared, self._links
        if microbatch * copies < self._costs.growth.examples:  # several microbatches: add gradients
            backward, workspace = backward + self._adding(self._gradients), later
        inside = min(devices, links.machine)
        outside = copies * -(-devices // links.machine)
        once = self._updates + links.sums_nanoseconds(summed - shared, inside, outside)
        once += links.sums_nanoseconds(shared, inside, 2 * outside)
        fixed = self._fixed + workspace
        passes = forward, backward, once, fixed, saved + inputs, inputs
        columns = (*passes, *sent_columns(bytes_, self._sent[..., 2]))
        return np.stack(columns, axis=-1)

    def _ranges_at(self, examples: int) -> tuple[Int64Array, ...]:
        """Return the costs of all stages with the given number of examples on a device.

        Returns:
            Forward nanoseconds, backward nanoseconds, bytes of saved tensors that the stage makes,
            bytes of saved tensors that it receives, and bytes of workspace in the first and in
            later microbatches; each is int64[blocks, blocks] by first and last block. Last the
            bytes of `sent`, int64[2, 2, blocks, blocks].
        """
        costs = self._costs
        *passes, first, later = costs.at(examples)
        times = range_sums(np.stack(passes, 1), self._block, self._blocks)
        constants = {name: costs.operator_time(name, examples) for name in self._constants}
        forward = self._used_sums((self._constants[n], t.forward) for n, t in constants.items())
        backward = self._used_sums((self._constants[n], t.backward) for n, t in constants.items())
        return (
            times[..., 0] + forward,
            times[..., 1] + backward,
            costs.part(self._saved[..., 0], self._saved[..., 1], examples),
            costs.part(self._inputs[0], self._inputs[1], examples),
            range_maxima(first, self._block, self._blocks),
            range_maxima(later, self._block, self._blocks),
            costs.part(self._sent[..., 0], self._sent[..., 1], examples),
        )

    def _used_sums(
        self, items: Iterable[tuple[tuple[int, ...], int]], made_in: Iterable[int] | None = None
    ) -> Int64Array:
        return used_sums(self._blocks, items, made_in)
