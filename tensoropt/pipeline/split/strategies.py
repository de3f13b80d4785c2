"""The costs of a sample's operators under given strategies, as stages need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.graph.backward_reads import VIEWS
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import decode
from tensoropt.parallel.layout import Layout
from tensoropt.pipeline.split.costs import PARTS, Moved, SampleCosts
from tensoropt.pipeline.split.sample import Sample
from tensoropt.problem.edges.slots import LayoutCodes, TensorSlots

__all__ = ["PricedState", "PricedStrategies"]


@dataclass(frozen=True, slots=True)
class PricedState:
    """The costs of a state under each strategy, int64[S] each.

    Attributes:
        fixed: the bytes of its weight, of copies of it and of its gradient on a device.
        slots: the bytes of its other variables, which only the first stage that reads it holds.
        gradient: the bytes of its gradient alone.
        late: the nanoseconds of its updates, of moving it to its readers, and of moving gradients
            back.
        summed: more bytes if the gradients of several microbatches are summed.
        sums: the bytes of the gradient that a device sums with other devices after the last
            microbatch, by the number of these devices.
    """

    fixed: Int64Array
    slots: Int64Array
    gradient: Int64Array
    late: Int64Array
    summed: Int64Array
    sums: Mapping[int, Int64Array]


class PricedStrategies:
    """The costs of a sample's operators on one mesh, under each strategy.

    Args:
        sample: the sample of a step.
        costs: the costs of its operators.
        cost: the cost model.
        strategies: int64[S, nodes], configuration numbers.

    Attributes:
        passes: for each operator of the forward pass int64[5, S]: the nanoseconds of its forward
            and of its backward pass, both with resharding of its inputs; the bytes that are saved
            of its outputs and of copies that it reads; and the bytes that it needs while it runs
            (forward or backward) besides the saved ones, in the first and in later microbatches.
    """

    def __init__(
        self, sample: Sample, costs: SampleCosts, cost: CostModel, strategies: Int64Array
    ) -> None:
        self._sample, self._costs, self._cost, self._strategies = sample, costs, cost, strategies
        self._annotated, self._slots = costs.annotated, costs.slots
        self._layout = cache(self._decoded)
        self._elements = cache(self._counted)
        self._kept = cache(self._bytes_kept)
        parts = {
            name: of_options[:, strategies[:, self._slots.node_of[name]]].copy()
            for name, of_options in costs.of_operators.items()
        }
        for moved in costs.moved:
            source, target = moved.cells(strategies)
            more = moved.costs[:, source, target]
            parts[moved.reader.name] += more
            self._count_at_maker(parts, moved, more[PARTS.index("saved")])
        self._parts = parts
        self._state_of = {
            variable: name
            for name, state in sample.costs.atoms.states.items()
            for variable in state.variables
        }
        self._count_at_makers()
        self.passes: dict[str, Int64Array] = {}
        for name, operator_parts in parts.items():
            operator = self._annotated.graph[name]
            if name in costs.forward and not operator.is_variable:
                rows = [
                    operator_parts[PARTS.index(part)] for part in ("forward", "backward", "saved")
                ]
                self.passes[name] = np.stack([*rows, *self._transient(operator)])

    def made_bytes(self, tensor: TensorName) -> Int64Array:
        """Return int64[S]: the bytes of a tensor on one device, in the layout of its producer."""
        slots = self._slots.at_producer(tensor, False)
        return self._local(slots, slots.forward, tensor.operator, tensor)

    def states(self) -> Iterator[tuple[str, PricedState]]:
        """Yield the states of the sample by name."""
        late = PARTS.index("late")
        added_bytes, moving = self._added_bytes(), self._moving()
        for name, state in self._sample.costs.atoms.states.items():
            if name not in self._annotated.graph:
                continue
            _, whole_gradient = self._sample.costs.state_bytes(name)
            whole_sum = self._sample.costs.summed_bytes(name)
            zeros = np.zeros(len(self._strategies), np.int64)
            weight = self._variable_bytes(name)
            slots = sum((self._variable_bytes(n) for n in state.variables if n != name), zeros)
            value = max(self._annotated.graph[name].value_spec(0).bytes, 1)
            gradient = weight * whole_gradient // value
            updates = sum((self._parts[n][late] for n in state.updates if n in self._parts), zeros)
            sums: dict[int, Int64Array] = {}
            for number, shards in enumerate(added_bytes.get(name, [{}] * len(zeros))):
                # If the stage's devices do not sum a gradient, copies of the stage still do.
                all_shards = shards or {(): int(self._variable_bytes(name)[number])}
                for axes, bytes_ in all_shards.items():
                    members = prod(self._annotated.mesh.axes[axis] for axis in axes)
                    row = sums.setdefault(members, np.zeros_like(zeros))
                    row[number] += bytes_ * whole_sum // value
            moved, gathered, summed = moving.get(name, (zeros, zeros, zeros))
            fixed = weight + gradient + gathered
            yield name, PricedState(fixed, slots, gradient, updates + moved, summed, sums)

    def _variable_bytes(self, name: str) -> Int64Array:
        """Return int64[S]: the bytes of a variable on one device."""
        memory: Int64Array = self._parts[name][PARTS.index("fixed")]
        return memory

    def _added_bytes(self) -> dict[str, list[dict[tuple[int, ...], int]]]:
        """Return, for each state and strategy, the bytes of its gradient that devices sum.

        They are grouped by the mesh axes over which the gradient is summed.
        """
        added: dict[str, list[dict[tuple[int, ...], int]]] = {}
        for moved in self._costs.moved:
            name = self._state_read(moved)
            if not moved.weighs or name is None or not moved.added.any():
                continue
            is_added = moved.added[moved.cells(self._strategies)]
            slots = self._slots.at_reader(moved.reader, moved.number, True)
            node = self._slots.node_of[moved.reader.name]
            codes = slots.gradient.codes[slots.of_option.slots[self._strategies[:, node]]]
            spec = moved.reader.input_specs[moved.number]
            by_strategy = added.setdefault(name, [{} for _ in codes])
            for number in np.flatnonzero(is_added).tolist():
                layout = self._layout(int(codes[number]), len(spec.shape))
                bytes_ = layout.local_elements(spec.shape, self._annotated.mesh) * spec.itemsize
                shards = by_strategy[number]
                shards[layout.partial] = max(bytes_, shards.get(layout.partial, 0))
        return added

    def _moving(self) -> dict[str, Int64Array]:
        """Return, for each state, int64[3, S] of the costs of moving its variables.

        They are the nanoseconds of moving values and gradients, without the sums of `_added_bytes`;
        the bytes of the readers' copies; and the further bytes of sums over microbatches.
        """
        moving: dict[str, Int64Array] = {}
        parts = [PARTS.index(part) for part in ("late", "fixed", "summed")]
        for moved in self._costs.moved:
            name = self._state_read(moved)
            if not moved.weighs or name is None or moved.reader.name not in self._costs.forward:
                continue
            source, target = moved.cells(self._strategies)
            costs = moved.costs[parts][:, source, target]
            costs[0, moved.added[source, target]] = 0
            moving[name] = moving.get(name, 0) + costs
        return moving

    def _state_read(self, moved: Moved) -> str | None:
        """Return the state whose variable is read; None if the tensor is no variable."""
        tensor = moved.reader.inputs[moved.number]
        return self._state_of.get(self._annotated.saved.root(tensor).operator)

    def _count_at_maker(
        self, parts: Mapping[str, Int64Array], moved: Moved, saved: Int64Array
    ) -> None:
        """Move a tensor's saved bytes from the reader, where an edge counts them, to its producer.

        A stage counts the saved bytes of the tensors that it makes. This is done for the one copy
        of a tensor that the problem counts on an edge. Further copies stay with their readers.
        """
        saved_tensors = self._annotated.saved
        tensor = moved.reader.inputs[moved.number]
        root = saved_tensors.root(tensor).operator
        if saved_tensors.role(tensor) in ("edge", "") and root in parts and not moved.weighs:
            parts[moved.reader.name][PARTS.index("saved")] -= saved
            parts[root][PARTS.index("saved")] += saved

    def _count_at_makers(self) -> None:
        """Move the saved bytes of tensors that are counted at their reader to their producer."""
        saved = PARTS.index("saved")
        for name, numbers in self._annotated.saved.saved_inputs.items():
            operator = self._annotated.graph[name]
            for number in numbers:
                root = self._annotated.saved.root(operator.inputs[number])
                if root.operator not in self._parts or name not in self._parts:
                    continue
                slots = self._slots.at_reader(operator, number, False)
                local = self._local(slots, slots.forward, name, operator.inputs[number])
                bytes_ = np.array([self._kept(0, 0, size) for size in local.tolist()], np.int64)
                self._parts[name][saved] -= bytes_
                self._parts[root.operator][saved] += bytes_

    def _transient(self, operator: Operator) -> tuple[Int64Array, Int64Array]:
        """Return the bytes that an operator needs while it runs besides saved ones, int64[S] each.

        They are those in the first microbatch and in later ones, whose gradients by weights are
        beside the sums of earlier ones until they are added.
        """
        costs, name = self._sample.costs, operator.name
        zeros = np.zeros(len(self._strategies), np.int64)
        tensors = [TensorName(name, number) for number in range(len(operator.outputs))]
        local = {tensor: self.made_bytes(tensor) for tensor in tensors}
        output_bytes, saved_bytes = sum(local.values(), zeros), zeros
        if operator.type not in VIEWS and not operator.mutates:
            for tensor, row in local.items():
                is_kept = tensor in costs.kept
                kept = np.array([self._kept(n, n * is_kept, 0) for n in row.tolist()])
                saved_bytes = saved_bytes + kept
        if operator.type in VIEWS:
            saved_bytes = output_bytes
        input_bytes = weight_bytes = zeros
        # An operator that stands for a gradient reads no tensors itself.
        numbers = self._annotated.differentiated.get(name, ()) if operator.gradient is None else ()
        for number in numbers:
            tensor = operator.inputs[number]
            if costs.growth.tensor_grows(tensor):
                slots = self._slots.at_reader(operator, number, False)
                input_bytes = input_bytes + self._local(slots, slots.forward, name, tensor)
            elif costs.sums_gradient(operator, number):
                slots = self._slots.at_reader(operator, number, True)
                weight_bytes = weight_bytes + self._local(slots, slots.gradient, name, tensor)
        held = output_bytes + input_bytes
        first = np.maximum(output_bytes - saved_bytes, np.where(input_bytes > 0, held, 0))
        return first, np.maximum(first, np.where(weight_bytes > 0, held + weight_bytes, 0))

    def _bytes_kept(self, output: int, kept: int, moved: int) -> int:
        """Return the kept bytes of an operator with these sizes, by the memory model."""
        footprint = Footprint(output_bytes=output, kept_bytes=kept, moved_bytes=moved)
        return self._cost.operator_memory(footprint)

    def _local(
        self, slots: TensorSlots, codes: LayoutCodes, name: str, tensor: TensorName
    ) -> Int64Array:
        """Return int64[S]: the bytes of a tensor on one device, in its layout at an operator."""
        spec = self._annotated.graph[tensor.operator].value_spec(tensor.index)
        if -1 in spec.shape:
            return np.zeros(len(self._strategies), np.int64)
        node = self._slots.node_of[name]
        slot = slots.of_option.slots[self._strategies[:, node]]
        sizes = [self._elements(code, spec.shape) for code in codes.codes[slot].tolist()]
        return np.array(sizes, np.int64) * spec.itemsize

    def _counted(self, code: int, shape: tuple[int, ...]) -> int:
        """Return the number of a tensor's elements on one device."""
        return self._layout(code, len(shape)).local_elements(shape, self._annotated.mesh)

    def _decoded(self, code: int, rank: int) -> Layout:
        return decode(code, rank, self._annotated.mesh)
