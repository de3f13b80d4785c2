"""What a stage of replicated blocks costs, from the costs of its operators: RaNNC's ``profile``.

RaNNC runs each candidate; here its operators' times are added, and what several of them hold in
common (a tied table, a tensor that is received) counts once in a stage.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.ranges import held_alone, held_by, range_most, range_sums
from tensoropt.pipeline.sent import sent
from tensoropt.pipeline.stages.points import StagePoints

__all__ = ["ReplicatedProfile"]


class ReplicatedProfile:
    """The profile of blocks that each of a stage's devices has whole, with its examples.

    A microbatch that the devices do not divide takes as long as the device with most examples.
    States that other stages have too (tied weights) are summed over these as well, priced as twice
    as many copies.

    Args:
        costs: of the components.
        block: int64[atoms], the block of each, blocks in topological order.
        cost: the prices.
        links: between stages and among replicas.
    """

    def __init__(self, costs: AtomCosts, block: Int64Array, cost: CostModel, links: Links) -> None:
        self._costs, self._cost, self._links = costs, cost, links
        self._block = block
        self._blocks = int(block.max()) + 1
        self._at: dict[int, tuple[Int64Array, ...]] = {}
        atoms, growth = costs.atoms, costs.growth
        whole = growth.examples
        holders = {name: self._blocks_of(state.atoms) for name, state in atoms.states.items()}
        held = {name: costs.state_bytes(name) for name in holders}
        users: dict[str, list[int]] = {}
        for place, atom in enumerate(atoms.atoms):
            for name in atom.constants:
                users.setdefault(name, []).append(place)
        constants = {name: self._blocks_of(places) for name, places in users.items()}
        self._constants = constants
        self._fixed = self._held_by((holders[n], sum(held[n])) for n in holders)
        self._fixed += self._held_by((constants[n], costs.constant_bytes(n)) for n in constants)
        self._gradients = self._held_by((holders[n], held[n][1]) for n in holders)
        alone = held_alone(self._blocks, ((holders[n], held[n][1]) for n in holders))
        self._shared = self._gradients - alone
        updates = {
            name: sum(costs.operator_time(each, whole).forward for each in state.updates)
            for name, state in atoms.states.items()
        }
        self._updates = self._held_by((holders[n], updates[n]) for n in holders)
        self._saved = range_sums(costs.saved, block, self._blocks)
        self._tensors()

    def __call__(
        self, first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        """One point; see `tensoropt.pipeline.stages.points.Profile`."""
        if microbatch < devices:
            return None
        examples = -(-microbatch // devices)
        if examples not in self._at:
            self._at[examples] = self._ranges_at(examples)
        *ranges, sent_bytes = self._at[examples]
        forward, backward, saved, inputs, workspace = (int(each[first, last]) for each in ranges)
        (on, passed), (back, returned) = sent_bytes[:, :, first, last].tolist()
        tensors = self._sent[:, :, first, last, 2].tolist()
        gradients, shared = int(self._gradients[first, last]), int(self._shared[first, last])
        if microbatch * copies < self._costs.growth.examples:  # gradients are accumulated
            work = OperatorWork("elementwise", "float32", gradients // 4, 3 * gradients)
            backward += self._cost.operator_nanoseconds(work).forward
        links = self._links
        once = int(self._updates[first, last])
        once += links.allreduce_nanoseconds(gradients - shared, devices, copies)
        once += links.allreduce_nanoseconds(shared, devices, 2 * copies)
        return StagePoints.of(
            forward=forward,
            backward=backward,
            once=once,
            fixed=int(self._fixed[first, last]) + workspace,
            saved=saved + inputs,
            inputs=inputs,
            sent=on,
            received=back,
            sent_tensors=tensors[0][0],
            received_tensors=tensors[1][0],
            passed=passed,
            returned=returned,
            passed_tensors=tensors[0][1],
            returned_tensors=tensors[1][1],
        )

    def _ranges_at(self, examples: int) -> tuple[Int64Array, ...]:
        """int64[blocks, blocks] of first and last block, for so many examples on a device: times
        forward and backward, saved bytes made and received, workspace. And the
        bytes of `sent`."""
        costs = self._costs
        forward, backward, transient = costs.at(examples)
        times = range_sums(np.stack([forward, backward], 1), self._block, self._blocks)
        constants = {name: costs.operator_time(name, examples) for name in self._constants}
        taken = self._held_by((self._constants[n], t.forward) for n, t in constants.items())
        back = self._held_by((self._constants[n], t.backward) for n, t in constants.items())
        return (
            times[..., 0] + taken,
            times[..., 1] + back,
            costs.part(self._saved[..., 0], self._saved[..., 1], examples),
            costs.part(self._inputs[0], self._inputs[1], examples),
            range_most(transient, self._block, self._blocks),
            costs.part(self._sent[..., 0], self._sent[..., 1], examples),
        )

    def _tensors(self) -> None:
        """What stages receive, and what crosses every boundary, of the whole batch."""
        costs = self._costs
        readers: dict[TensorName, set[int]] = {}
        makers: dict[TensorName, int] = {}
        for maker, reader, tensor in costs.atoms.edges:
            here, there = int(self._block[maker]), int(self._block[reader])
            if tensor is not None and here != there:
                makers[tensor] = here
                readers.setdefault(tensor, set()).add(there)
        sizes = [costs.growth.tensor_bytes(t, costs.growth.examples) for t in readers]
        grows = [costs.growth.tensor_grows(t) for t in readers]
        fixed = [0 if each else size for each, size in zip(grows, sizes, strict=True)]
        used = [tuple(sorted(each)) for each in readers.values()]
        made = [makers[tensor] for tensor in readers]
        self._inputs = tuple(
            self._held_by(zip(used, weights, strict=True), made) for weights in (sizes, fixed)
        )
        self._sent = sent(costs, self._block)

    def _held_by(
        self, items: Iterable[tuple[tuple[int, ...], int]], made: Iterable[int] | None = None
    ) -> Int64Array:
        return held_by(self._blocks, items, made)

    def _blocks_of(self, places: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted({int(self._block[place]) for place in places}))
