"""What strategies of a sample cost, operator by operator, as stages need it."""

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
    """A state under each strategy, int64[S] each.

    Attributes:
        fixed: bytes of its variables and of its gradient on a device.
        gradient: of these, of its gradient.
        late: nanoseconds of its updates, and of moving it to its readers and its gradients back.
        summed: more bytes where gradients of several microbatches are summed.
        sums: bytes that a device adds up with others after the last microbatch, by how many
            devices hold parts of the same sum.
    """

    fixed: Int64Array
    gradient: Int64Array
    late: Int64Array
    summed: Int64Array
    sums: Mapping[int, Int64Array]


class PricedStrategies:
    """Strategies of a sample on one mesh.

    Args:
        sample: of a step.
        costs: of its operators.
        cost: the prices.
        strategies: int64[S, nodes], configuration numbers.

    Attributes:
        passes: per operator int64[4, S]: nanoseconds forward and backward, with what is moved for
            it; bytes saved of what it makes, and of copies that it reads; bytes while it runs,
            forward or backward, besides what is saved.
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
            name: own[:, strategies[:, self._slots.node_of[name]]].copy()
            for name, own in costs.own.items()
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
        for name, own in parts.items():
            operator = self._annotated.graph[name]
            if name in costs.forward and not operator.is_variable:
                rows = [own[PARTS.index(part)] for part in ("forward", "backward", "saved")]
                self.passes[name] = np.stack([*rows, self._transient(operator)])

    def made_bytes(self, tensor: TensorName) -> Int64Array:
        """int64[S]: of a tensor on one device, as its producer makes it."""
        slots = self._slots.made(tensor, False)
        return self._local(slots, slots.forward, tensor.operator, tensor)

    def states(self) -> Iterator[tuple[str, PricedState]]:
        """The states of the sample."""
        late = PARTS.index("late")
        adding, moving = self._adding(), self._moving()
        for name, state in self._sample.costs.atoms.states.items():
            if name not in self._annotated.graph:
                continue
            _, gradient = self._sample.costs.state_bytes(name)
            held = sum(self._own_memory(each) for each in state.variables)
            value = self._annotated.graph[name].value_spec(0).bytes
            own = self._own_memory(name) * gradient // max(value, 1)
            zeros = np.zeros(len(self._strategies), np.int64)
            updates = sum((self._parts[n][late] for n in state.updates if n in self._parts), zeros)
            sums: dict[int, Int64Array] = {}
            for number, shards in enumerate(adding.get(name, [{}] * len(zeros))):
                # A gradient that no devices of the stage add up, copies of the stage do.
                every = shards or {(): int(self._own_memory(name)[number])}
                for axes, bytes_ in every.items():
                    members = prod(self._annotated.mesh.axes[axis] for axis in axes)
                    row = sums.setdefault(members, np.zeros_like(zeros))
                    row[number] += bytes_ * gradient // max(value, 1)
            moved, gathered, summed = moving.get(name, (zeros, zeros, zeros))
            fixed = held + own + gathered
            yield name, PricedState(fixed, own, updates + moved, summed, sums)

    def _own_memory(self, name: str) -> Int64Array:
        """int64[S]: bytes of a variable on one device."""
        memory: Int64Array = self._parts[name][PARTS.index("fixed")]
        return memory

    def _adding(self) -> dict[str, list[dict[tuple[int, ...], int]]]:
        """Per state and strategy the bytes of a gradient that is added up over mesh axes."""
        found: dict[str, list[dict[tuple[int, ...], int]]] = {}
        for moved in self._costs.moved:
            name = self._state_read(moved)
            if not moved.weighs or name is None or not moved.added.any():
                continue
            waits = moved.added[moved.cells(self._strategies)]
            slots = self._slots.read(moved.reader, moved.number, True)
            node = self._slots.node_of[moved.reader.name]
            codes = slots.gradient.codes[slots.of_option.slots[self._strategies[:, node]]]
            spec = moved.reader.input_specs[moved.number]
            own = found.setdefault(name, [{} for _ in codes])
            for number in np.flatnonzero(waits).tolist():
                layout = self._layout(int(codes[number]), len(spec.shape))
                bytes_ = layout.local_elements(spec.shape, self._annotated.mesh) * spec.itemsize
                shards = own[number]
                shards[layout.partial] = max(bytes_, shards.get(layout.partial, 0))
        return found

    def _moving(self) -> dict[str, Int64Array]:
        """Per state int64[3, S]: nanoseconds of moving it and its gradients, without what `_adding`
        has; bytes of copies for readers; bytes more of sums of gradients."""
        found: dict[str, Int64Array] = {}
        parts = [PARTS.index(part) for part in ("late", "fixed", "summed")]
        for moved in self._costs.moved:
            name = self._state_read(moved)
            if not moved.weighs or name is None or moved.reader.name not in self._costs.forward:
                continue
            source, target = moved.cells(self._strategies)
            costs = moved.costs[parts][:, source, target]
            costs[0, moved.added[source, target]] = 0
            found[name] = found.get(name, 0) + costs
        return found

    def _state_read(self, moved: Moved) -> str | None:
        """The state whose variable is read, if one is."""
        tensor = moved.reader.inputs[moved.number]
        return self._state_of.get(self._annotated.saved.root(tensor).operator)

    def _count_at_maker(
        self, parts: Mapping[str, Int64Array], moved: Moved, saved: Int64Array
    ) -> None:
        """Count the one copy of a tensor that is saved on an edge at its producer, as stages are
        counted; copies beside it stay with the reader."""
        tensors = self._annotated.saved
        tensor = moved.reader.inputs[moved.number]
        root = tensors.root(tensor).operator
        if tensors.role(tensor) in ("edge", "") and root in parts and not moved.weighs:
            parts[moved.reader.name][PARTS.index("saved")] -= saved
            parts[root][PARTS.index("saved")] += saved

    def _count_at_makers(self) -> None:
        """Count what a reader saves of a tensor at its producer, as stages are counted."""
        saved = PARTS.index("saved")
        for name, numbers in self._annotated.saved.carried.items():
            operator = self._annotated.graph[name]
            for number in numbers:
                root = self._annotated.saved.root(operator.inputs[number])
                if root.operator not in self._parts or name not in self._parts:
                    continue
                slots = self._slots.read(operator, number, False)
                local = self._local(slots, slots.forward, name, operator.inputs[number])
                bytes_ = np.array([self._kept(0, 0, each) for each in local.tolist()], np.int64)
                self._parts[name][saved] -= bytes_
                self._parts[root.operator][saved] += bytes_

    def _transient(self, operator: Operator) -> Int64Array:
        costs, name = self._sample.costs, operator.name
        zeros = np.zeros(len(self._strategies), np.int64)
        tensors = [TensorName(name, number) for number in range(len(operator.outputs))]
        local = {tensor: self.made_bytes(tensor) for tensor in tensors}
        made, kept = sum(local.values(), zeros), zeros
        if operator.type not in VIEWS and not operator.mutates:
            for tensor, row in local.items():
                reads = tensor in costs.kept
                kept = kept + np.array([self._kept(n, n * reads, 0) for n in row.tolist()])
        if operator.type in VIEWS:
            kept = made
        passed = zeros
        through = self._annotated.differentiated.get(name, ())
        for number in through if operator.gradient is None else ():  # one reads nothing itself
            tensor = operator.inputs[number]
            if costs.growth.tensor_grows(tensor):
                slots = self._slots.read(operator, number, False)
                passed = passed + self._local(slots, slots.forward, name, tensor)
        return np.maximum(made - kept, np.where(passed > 0, made + passed, 0))

    def _bytes_kept(self, output: int, kept: int, moved: int) -> int:
        """By the memory model."""
        footprint = Footprint(output_bytes=output, kept_bytes=kept, moved_bytes=moved)
        return self._cost.operator_memory(footprint).kept

    def _local(
        self, slots: TensorSlots, codes: LayoutCodes, name: str, tensor: TensorName
    ) -> Int64Array:
        """int64[S]: bytes of a tensor on one device in the layout that it has at an operator."""
        spec = self._annotated.graph[tensor.operator].value_spec(tensor.index)
        if -1 in spec.shape:
            return np.zeros(len(self._strategies), np.int64)
        node = self._slots.node_of[name]
        chosen = slots.of_option.slots[self._strategies[:, node]]
        sizes = [self._elements(code, spec.shape) for code in codes.codes[chosen].tolist()]
        return np.array(sizes, np.int64) * spec.itemsize

    def _counted(self, code: int, shape: tuple[int, ...]) -> int:
        """The elements of a layout on one device."""
        return self._layout(code, len(shape)).local_elements(shape, self._annotated.mesh)

    def _decoded(self, code: int, rank: int) -> Layout:
        return decode(code, rank, self._annotated.mesh)
