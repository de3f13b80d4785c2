"""The predicted time of one step under a strategy, part by part, as it is executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.buckets import (
    BUCKET_SIZES,
    Buckets,
    Sums,
    elementwise_sums,
    path_to_variable,
    vector_steps,
)
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.remade import remade
from tensoropt.parallel.resharding import LOCAL_KINDS, ReshardStep, StepTraffic, step_traffic
from tensoropt.parallel.sparse import known_shape
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.problem.edges.sparse_gradients import looked_up, slices_times
from tensoropt.problem.operators.gradient_sums import gradient_sums, sum_as_measured
from tensoropt.problem.operators.inner_collectives import InnerCollective, inner_collectives
from tensoropt.problem.operators.joined_products import MATRIX, joined_product, sharing_products
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.tensor_spec import TensorSpec

__all__ = ["StepTime", "step_time"]

PlanSteps = Callable[[Sequence[int], str, Layout, Layout], tuple[ReshardStep, ...]]


@dataclass(slots=True)
class StepTime:
    """Nanoseconds of one step on one device.

    Attributes:
        operators: computing, forward, backward, and again where outputs are not kept.
        sums: adding up the gradients of tensors with several readers.
        copies: local steps of resharding, which are operators of their own.
        network: inside collectives, from the arrival of the last device.
        calls: number of collectives; a resharding's are one.
        coordination: of all calls: calling them, and waiting for the other devices.
        start: what a step takes besides.
    """

    operators: int = 0
    sums: int = 0
    copies: int = 0
    network: int = 0
    calls: int = 0
    coordination: int = 0
    start: int = 0

    @property
    def total(self) -> int:
        """The whole step."""
        computing = self.operators + self.sums + self.copies
        return computing + self.network + self.coordination + self.start


def step_time(
    strategy: Strategy,
    cost: ClusterCostModel,
    plan_steps: PlanSteps | None = None,
    reads: BackwardReads | None = None,
    repeats: Mapping[str, int] | None = None,
) -> StepTime:
    """The time of a step, in its parts.

    It differs from the sum of the search where several readers share a resharded copy, which is
    made once, where products that share a matrix have one gradient by it (`joined_product`), where
    the steps of one resharding or the gradients of several weights share a call, and where an
    operator with a custom lowering is recomputed for its gradient alone.

    Args:
        strategy: of the step's graph.
        cost: on the strategy's mesh.
        plan_steps: plans a resharding; by default as is cheapest by ``cost``.
        reads: what the backward pass reads of the forward pass; what a strategy does not keep of
            it is recomputed.
        repeats: how often operators run that run for each of several microbatches, of one of which
            the strategy's graph has them; gradients are added up over these.
    """
    plan = plan_steps or ReshardSteps(strategy.mesh, cost.collective_nanoseconds)
    step = _Step(strategy, cost, plan, repeats or {})
    for operator in strategy.graph:
        step.compute(operator)
        step.read(operator)
    step.average_statistics()
    step.reduce_buckets()
    step.add_gradients()
    step.recompute(reads or BackwardReads())
    coordination = round(cost.cluster.collective_overhead_seconds * 1e9)
    step.time.coordination = step.time.calls * coordination
    step.time.start = cost.step_nanoseconds()
    return step.time


@dataclass(frozen=True, slots=True)
class _WeightSum:
    """A weight's gradient, from where its readers make it to where the weight lies.

    Attributes:
        size: of its part on one device before, in bytes.
    """

    shape: tuple[int, ...]
    spec: TensorSpec
    source: Layout
    target: Layout
    size: int


class _Step:
    def __init__(
        self,
        strategy: Strategy,
        cost: ClusterCostModel,
        plan: PlanSteps,
        repeats: Mapping[str, int],
    ) -> None:
        self.time = StepTime()
        self._repeats = repeats
        self._strategy = strategy
        self._graph = strategy.graph
        self._cost = cost
        self._differentiated = differentiated_inputs(self._graph)
        self._sparse = frozenset().union(*sparse_tensors(self._graph).values())
        self._plan = plan
        self._readers: dict[TensorName, Counter[Slot]] = {}
        self._edges: set[tuple[TensorName, Slot, bool]] = set()
        self._weights: list[_WeightSum] = []
        self._statistics: dict[Sums, list[int]] = {}  # bytes
        self._joined: set[str] = set()
        self._fewer: Counter[tuple[TensorName, Slot]] = Counter()
        self._join_products()

    def compute(self, operator: Operator) -> None:
        """The operator itself, and collectives inside it."""
        strategy = self._strategy
        derivation = strategy.derivations[operator.name]
        configuration = strategy.configurations[operator.name]
        backward = len(self._differentiated.get(operator.name, ()))
        backward -= operator.name in self._joined
        if operator.is_constant or operator.gradient is not None or operator.is_placeholder:
            return
        work = operator_work(operator, derivation, configuration, strategy.mesh, backward)
        if work is None:
            return
        runs = self._runs(operator.name)
        self.time.operators += runs * self._cost.operator_nanoseconds(work).total
        inner = inner_collectives(operator, derivation, configuration, strategy.mesh, backward)
        for each in inner:
            self._move_inside(each, runs * each.times)

    def _join_products(self) -> None:
        """The gradients by matrices that several products share under one configuration."""
        strategy = self._strategy
        for tensor, names in sharing_products(self._graph, self._differentiated).items():
            configurations = {strategy.configurations[name] for name in names}
            if len(configurations) > 1:
                continue
            derivation = strategy.derivations[names[0]]
            (configuration,) = configurations
            operator = self._graph[names[0]]
            found = joined_product(operator, derivation, configuration, strategy.mesh, len(names))
            if found is None:
                continue
            self._joined.update(names)
            slot = strategy.input_slot(operator, MATRIX)
            self._fewer[tensor, slot] = len(names) - 1
            runs = self._runs(names[0])
            work = found.product.work
            self.time.operators += runs * self._cost.operator_nanoseconds(work).forward
            copied = self._cost.collective_nanoseconds("slice", (), found.copied_bytes)
            self.time.copies += runs * copied

    def _runs(self, name: str, reader: str = "") -> int:
        """How often an operator runs, or what it makes is resharded for a reader."""
        made = self._repeats.get(name, 1)
        return min(made, self._repeats.get(reader, 1)) if reader else made

    def recompute(self, reads: BackwardReads) -> None:
        """What is not kept for the backward pass: computed and resharded once more."""
        strategy = self._strategy
        again = remade(strategy, reads)
        for name in again.computed:
            operator, derivation = self._graph[name], strategy.derivations[name]
            configuration = strategy.configurations[name]
            work = operator_work(operator, derivation, configuration, strategy.mesh, 0)
            if work is None:
                continue
            runs = self._runs(name)
            self.time.operators += runs * self._cost.operator_nanoseconds(work).forward
            for each in inner_collectives(operator, derivation, configuration, strategy.mesh, 0):
                self._move_inside(each, runs * each.forward)
        for tensor, source, target in again.moved:
            spec = self._graph[tensor.operator].value_spec(tensor.index)
            shape, runs = known_shape(spec.shape), self._runs(tensor.operator)
            self._reshard(shape, spec.dtype, spec.itemsize, source, target, runs)

    def read(self, operator: Operator) -> None:
        """The operator's inputs, resharded; and their gradients, the other way."""
        if operator.gradient is not None or operator.type in SHAPE_TYPES:
            return
        for number, tensor in enumerate(operator.inputs):
            spec = operator.input_specs[number]
            if self._graph[tensor.operator].is_constant or number in operator.mutates:
                continue
            carries = number in self._differentiated.get(operator.name, ())
            source = self._strategy.output_slot(tensor)
            target = self._strategy.input_slot(operator, number)
            if carries:
                self._readers.setdefault(tensor, Counter())[target] += 1
            if spec.dtype == "resource" or (tensor, target, carries) in self._edges:
                continue
            self._edges.add((tensor, target, carries))
            shape = known_shape(spec.shape)
            forward = source.forward, target.forward
            runs = self._runs(tensor.operator, operator.name)
            if carries or not self._is_averaged_with_others(tensor, spec, *forward):
                self._reshard(shape, spec.dtype, spec.itemsize, *forward, runs)
            if not carries:
                continue
            slices = looked_up(operator, number, self._sparse)
            back = target.gradient, source.gradient
            if slices is not None:
                ends = [target.gradient], [source.gradient]
                slices_times(shape, spec.itemsize, slices, *ends, self._moved)
            elif -1 not in spec.shape and path_to_variable(self._strategy, tensor):
                size = back[0].local_elements(shape, self._strategy.mesh) * spec.itemsize
                self._weights.append(_WeightSum(shape, spec, *back, size))
                self._accumulate(operator, back[0], shape, spec.dtype)
            else:
                self._reshard(shape, spec.dtype, spec.itemsize, *back, runs)

    def _accumulate(
        self, reader: Operator, layout: Layout, shape: tuple[int, ...], dtype: str
    ) -> None:
        """The gradient of a weight by each microbatch, added to those of the ones before."""
        for _ in range(self._runs(reader.name) - 1):
            self._sum(layout, shape, dtype, 2)

    def _is_averaged_with_others(
        self, tensor: TensorName, spec: TensorSpec, source: Layout, target: Layout
    ) -> bool:
        """Whether a statistic of a batch normalisation is, which is then noted."""
        if not self._strategy.derivations[tensor.operator].is_averaged(tensor.index):
            return False
        sums = elementwise_sums(self._plan(spec.shape, spec.dtype, source, target))
        if sums is None:
            return False
        size = source.local_elements(spec.shape, self._strategy.mesh) * spec.itemsize
        self._statistics.setdefault(sums, []).append(size)
        return True

    def average_statistics(self) -> None:
        """Statistics of all layers that are added up alike, as one vector."""
        for sums, sizes in self._statistics.items():
            self._reduce(sums, sizes)

    def reduce_buckets(self) -> None:
        """Weights' gradients, those of the last layers first."""
        buckets: Buckets[_WeightSum] = Buckets(
            BUCKET_SIZES, lambda sums, _: self._is_within_machines(sums)
        )
        for each in reversed(self._weights):
            dtype = each.spec.dtype.removesuffix("_ref")
            sums = elementwise_sums(self._plan(each.shape, dtype, each.source, each.target))
            self._reduce_bucket(buckets.add(each, sums, dtype, each.size))
        self._reduce_bucket(buckets.rest())

    def _reduce_bucket(self, bucket: Iterable[tuple[Sums | None, list[_WeightSum]]]) -> None:
        for sums, gradients in bucket:
            if sums is not None:
                self._reduce(sums, [each.size for each in gradients])
                continue
            for each in gradients:
                spec = each.spec
                self._reshard(each.shape, spec.dtype, spec.itemsize, each.source, each.target)

    def _is_within_machines(self, sums: Sums) -> bool:
        return all(self._cost.is_within_machines(axes) for axes in sums[1])

    def _reduce(self, sums: Sums, bucket: Sequence[int]) -> None:
        """Gradients as one; elsewhere than within a machine they are copied into it and out."""
        size = sum(bucket)
        self._move(step_traffic(vector_steps(sums), self._strategy.mesh, (size,), 1))
        if len(bucket) > 1 and not self._is_within_machines(sums):
            self.time.copies += 2 * self._cost.collective_nanoseconds("slice", (), size)

    def add_gradients(self) -> None:
        """Sums of gradients, at a resharded copy with several readers and at the tensor."""
        for tensor in gradient_sums(self._graph, self._differentiated):
            if tensor in self._sparse:
                continue
            spec = self._graph[tensor.operator].value_spec(tensor.index)
            shape, dtype = spec.shape, spec.dtype
            made = self._strategy.output_slot(tensor)
            arriving = 0
            for slot, readers in self._readers.get(tensor, Counter()).items():
                count = readers - self._fewer[tensor, slot]
                if slot.forward == made.forward and slot.gradient == made.gradient:
                    arriving += count
                    continue
                arriving += 1
                self._sum(slot.gradient, shape, dtype, count, self._runs(tensor.operator))
            self._sum(made.gradient, shape, dtype, arriving, self._runs(tensor.operator))

    def _sum(
        self, layout: Layout, shape: Sequence[int], dtype: str, count: int, runs: int = 1
    ) -> None:
        if count > 1:
            local = layout.local_shape(shape, self._strategy.mesh)
            work = sum_as_measured(local, dtype, count, self._strategy.mesh).work
            self.time.sums += runs * self._cost.operator_nanoseconds(work).total

    def _reshard(
        self,
        shape: tuple[int, ...],
        dtype: str,
        itemsize: int,
        source: Layout,
        target: Layout,
        runs: int = 1,
    ) -> None:
        mesh = self._strategy.mesh
        steps = self._plan(shape, dtype.removesuffix("_ref"), source, target)
        self._move(step_traffic(steps, mesh, source.local_shape(shape, mesh), itemsize), runs)

    def _move(self, steps: Iterable[StepTraffic], times: int = 1) -> None:
        """One resharding, so many times; its collectives are one call."""
        local = network = 0
        for kind, axes, bytes_, runs in steps:
            if kind in LOCAL_KINDS:
                local += self._cost.collective_nanoseconds(kind, axes, bytes_)
            else:
                seconds = self._cost.network_seconds(kind, axes, bytes_, runs)
                network += max(1, round(seconds * 1e9))
        self.time.copies += times * local
        self.time.network += times * network
        self.time.calls += times * (network > 0)

    def _move_inside(self, each: InnerCollective, times: int) -> None:
        """So many collectives inside an operator, each a call."""
        self._move([StepTraffic(each.kind, each.axes, each.bytes, "")], times)

    def _moved(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Sequence[Layout],
        targets: Sequence[Layout],
    ) -> npt.NDArray[np.int64]:
        dtype = f"float{8 * itemsize}" if itemsize > 1 else "int8"
        self._reshard(shape, dtype, itemsize, sources[0], targets[0])
        return np.zeros((1, 1), np.int64)
