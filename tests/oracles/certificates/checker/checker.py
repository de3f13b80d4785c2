"""The checker: equations 1 to 3 for one strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import looks_up_rows, slice_layouts, travels_sparse
from tensoropt.parallel.strategy import Strategy, derivation_of
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.certificates.checker.cheapest_way import blocks, cheapest_way
from tests.oracles.certificates.checker.copies import Copies, footprint
from tests.oracles.certificates.checker.operator_shard import (
    NAMES,
    OperatorShard,
    Shape,
    halos,
    inside,
    is_known,
    local_shape,
    whole_sum,
    work_of,
)
from tests.oracles.certificates.checker.shared_matrices import SharedMatrices

__all__ = ["Checker", "Cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes on one device, and nanoseconds of a step."""

    memory: int
    time: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.memory + other.memory, self.time + other.time)


class Checker:
    """Prices strategies of a graph, and remembers the costs of ways between layouts.

    Args:
        graph: the operators.
        mesh: the devices.
        cost: the prices.
        batch_placeholders: placeholders that are loaded data parallel.
        reads: the tensors of the forward pass that the backward pass reads.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        cost: CostModel,
        batch_placeholders: frozenset[str] = frozenset(),
        reads: BackwardReads | None = None,
    ) -> None:
        self._graph = graph
        self._mesh = mesh
        self._cost = cost
        self._batch_placeholders = batch_placeholders
        self._reads = reads or BackwardReads()
        self._copies = Copies(graph, self._reads)
        self._carried = differentiated_inputs(graph)
        self._sparse = frozenset().union(*sparse_tensors(graph).values())
        self._shared = SharedMatrices(graph, self._carried, mesh, cost)
        self._senders = Counter(
            graph[name].inputs[number] for name, some in self._carried.items() for number in some
        )
        derivations = Kinds(graph, partial_operands=True).derivations
        self._layer_of = same_in_every_step(
            graph, lambda name: (graph[name].type, derivations[name])
        )
        self._ways: dict[tuple[Shape, int, Layout, Layout], int] = {}

    def cost(self, configurations: Mapping[str, Configuration]) -> Cost:
        """Equation 3: the costs of all operators and edges, and the additional costs of a step.

        Constants cost nothing: every device has them, and takes its shard when a program is built.

        Args:
            configurations: by operator name, like those of a plan or of
                `GraphProblem.configurations`.

        Raises:
            OptionError: if a configuration does not keep all copies that the backward pass reads.
        """
        for name, configuration in configurations.items():
            if configuration.kept != "both":
                raise OptionError(
                    "the checker prices strategies that keep every copy which the backward pass "
                    f"reads. Got {configuration} for {name!r}; search without reuse."
                )
        strategy = Strategy(self._graph, self._mesh, configurations, self._batch_placeholders)
        parts = [*self._parts(strategy)]
        whole = sum(parts, Cost(0, 0))
        return whole + Cost(0, self._cost.step_nanoseconds() if parts else 0)

    def _parts(self, strategy: Strategy) -> Iterator[Cost]:
        shared: set[Hashable] = set()
        for operator in self._graph:
            if operator.is_constant:
                continue
            yield self.operator(strategy, operator)
            yield Cost(0, self._sums(strategy, operator))
            if operator.gradient is not None:
                continue  # a gradient is computed on the device of its tensor
            if operator.type in ("Shape", "ShapeN", "Size"):
                continue  # each device knows the whole shape from its piece's shape
            for number, tensor in enumerate(operator.inputs):
                if self._graph[tensor.operator].is_constant:
                    continue
                # The steps of an unrolled layer share a tensor that all of them read.
                use = self._use(operator, number)
                if use not in shared or looks_up_rows(operator, number):
                    yield self.edge(strategy, operator, number)
                shared.add(use)

    def _use(self, operator: Operator, number: int) -> Hashable:
        """The role of an input in its layer."""
        carries = number in self._carried.get(operator.name, ())
        kept = self._copies.of_edge(operator, number)
        return operator.inputs[number], self._layer_of[operator.name], number, carries, kept

    def operator(self, strategy: Strategy, operator: Operator) -> Cost:
        """Equation 1: one operator, forward and backward, on its shard."""
        configuration = strategy.configurations[operator.name]
        derivation = strategy.derivations[operator.name]
        shard = OperatorShard(operator, derivation, configuration.splits, self._mesh)
        use = self._cost.operator_memory(footprint(shard, self._copies))
        if operator.is_variable or operator.type in NAMES:
            return Cost(use, 0)
        backward, share = len(self._carried.get(operator.name, ())), self._shared.share(shard)
        own = work_of(shard, backward if share is None else backward - 1)
        time = self._cost.operator_nanoseconds(own).total + (share or 0)
        time += sum(
            count * self._cost.collective_nanoseconds(kind, axes, bytes_)
            for kind, axes, bytes_, count in (*inside(shard), *halos(shard, backward))
        )
        return Cost(use, time)

    def _sums(self, strategy: Strategy, operator: Operator) -> int:
        """Nanoseconds of adding the gradients of a tensor's readers."""
        total = 0
        for number, spec in enumerate(operator.outputs):
            tensor = TensorName(operator.name, number)
            count = self._senders.get(tensor, 0) - self._shared.spared(tensor)
            own = operator.attributes.get("dtype", spec.dtype) if operator.is_variable else None
            dtype = str(own or spec.dtype).removesuffix("_ref")
            floating = dtype.startswith(("float", "bfloat", "half", "complex"))
            if count < 2 or tensor in self._sparse or not (is_known(spec) and floating):
                continue  # slices are concatenated, not added
            layout = strategy.output_slot(tensor).gradient
            part = TensorSpec(local_shape(spec.shape, layout.dims, self._mesh), dtype)
            work = work_of(whole_sum(part, count, self._mesh), 0)
            total += self._cost.operator_nanoseconds(work).total
        return total

    def edge(self, strategy: Strategy, operator: Operator, number: int) -> Cost:
        """Equation 2: the cost of one input's way from its producer, and of its gradient's way
        back."""
        spec = operator.input_specs[number]
        made = strategy.output_slot(operator.inputs[number])
        read = strategy.input_slot(operator, number)
        time = self._way(spec.shape, spec.itemsize, made.forward, read.forward)
        carries = number in self._carried.get(operator.name, ())
        added_up = made.forward.partial and read.forward == Layout(made.forward.dims)
        if added_up and not carries and self._travels_with_others(operator.inputs[number]):
            twice = self._way(spec.shape, 2 * spec.itemsize, made.forward, read.forward)
            time = max(0, twice - time)
        if carries:
            time += self._gradient(operator, number, read.gradient, made.gradient)
        kept = Footprint()
        if made.forward != read.forward and is_known(spec):
            stored, copy = (
                prod(local_shape(spec.shape, each.forward.dims, self._mesh)) * spec.itemsize
                for each in (made, read)
            )
            is_weight = self._copies.is_large_weight(operator, number)
            if self._copies.of_edge(operator, number):
                name = "gathered_bytes" if is_weight else "moved_bytes"
                kept = Footprint(**{name: copy})
            elif is_weight:
                kept = Footprint(gathered_bytes=max(copy - stored, 0))
        return Cost(self._cost.operator_memory(kept), time)

    def _travels_with_others(self, tensor: TensorName) -> bool:
        """Whether a tensor is a term of an average; the terms of all layers travel together."""
        indices = derivation_of(self._graph[tensor.operator]).indices
        return any(tensor.index in index.partial_outputs for index in indices)

    def _gradient(self, operator: Operator, number: int, source: Layout, target: Layout) -> int:
        """The cost of a gradient's way back. The gradient of a table with lookups consists of
        slices."""
        spec = operator.input_specs[number]
        if looks_up_rows(operator, number):
            rows: TensorSpec = operator.input_specs[1]
            stays = operator.inputs[number] in self._sparse
            if stays or travels_sparse(rows.elements, spec.shape, target):
                here, there = slice_layouts(source, target)
                count = rows.elements
                while blocks(count, self._mesh) < count:  # not an extent, although it equals one
                    count += 1
                slices = (count, *spec.shape[1:])
                return self._way(slices, spec.itemsize, here, there) + self._way(
                    slices[:1], rows.itemsize, Layout(here.dims[:1]), Layout(((),))
                )
        return self._way(spec.shape, spec.itemsize, source, target)

    def _way(self, shape: Shape, itemsize: int, source: Layout, target: Layout) -> int:
        shape = tuple(1 if extent < 0 else extent for extent in shape)
        key = shape, itemsize, source, target
        if key not in self._ways:
            self._ways[key] = cheapest_way(
                self._mesh, shape, itemsize, source, target, self._cost.collective_nanoseconds
            )
        return self._ways[key]
