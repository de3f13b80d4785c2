"""The predicted time of a step under a strategy as it is executed, with its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.buckets import (
    BUCKET_SIZES,
    OVERLAPPED,
    Buckets,
    Sums,
    elementwise_sums,
    path_of_gradient,
    path_to_variable,
    vector_steps,
)
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.recomputed import recomputed
from tensoropt.parallel.resharding import ReshardStep, StepTraffic, step_traffic
from tensoropt.parallel.sparse import known_shape, lookups_of_tables
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.overlapped_network import OverlappedNetwork
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.prices.step_parts import Reason, StepTime
from tensoropt.planner.request import Request
from tensoropt.problem.edges.sparse_gradients import looked_up, slices_times
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.operators.inner_steps import InnerStep, inner_steps
from tensoropt.problem.operators.joined_products import MATRIX, joined_product, sharing_products
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.problem.operators.reader_gradient_sums import reader_gradient_sums, sum_as_measured
from tensoropt.tensor_spec import TensorSpec

__all__ = ["executed_step", "step_time"]

PlanSteps = Callable[[Sequence[int], str, Layout, Layout], tuple[ReshardStep, ...]]


def step_time(
    strategy: Strategy,
    cost: ClusterCostModel,
    plan_steps: PlanSteps | None = None,
    reads: BackwardReads | None = None,
    repeats: Mapping[str, int] | None = None,
    within: Collection[str] | None = None,
) -> StepTime:
    """Return the time of a step.

    It differs from the sum of the search in these points:

    - Several readers share a resharded copy, which is made once.
    - The steps of one resharding, and the gradients of several weights, share a call.
    - An operator with a custom lowering is recomputed for its own gradient alone.
    - Gathers of weights hide behind the forward pass, and sums of gradients behind the backward
      pass, if the links allow that (`OverlappedNetwork`).

    Args:
        strategy: a strategy of the step's graph.
        cost: the cost model on the strategy's mesh.
        plan_steps: plans reshardings; by default the cheapest by ``cost``.
        reads: the tensors of the forward pass that the backward pass reads. Those that the strategy
            does not keep are recomputed.
        repeats: for a step in microbatches, how often each operator runs that runs once for every
            microbatch. The strategy's graph has these operators once. Gradients are added up over
            microbatches.
        within: the operators that the devices run, and no tensors of others count; all if None.
    """
    plan = plan_steps or ReshardSteps(strategy.mesh, cost.collective_nanoseconds)
    step = _Step(strategy, cost, plan, repeats or {}, within)
    for operator in strategy.graph:
        if within is None or operator.name in within:
            step.read(operator)
            step.compute(operator)
    step.average_statistics()
    step.reduce_buckets()
    step.add_gradients()
    step.recompute(reads or BackwardReads())
    coordination = round(cost.cluster.collective_overhead_seconds * 1e9)
    step.time.coordination = step.time.calls * coordination
    step.time.start = cost.step_nanoseconds()
    step.overlap()
    return step.time


def executed_step(
    request: Request,
    problem: GraphProblem,
    strategy: Sequence[int],
    plan_steps: PlanSteps | None = None,
) -> int:
    """Return the predicted nanoseconds of a step.

    Args:
        request: the step.
        problem: its problem.
        strategy: the number of each node's configuration.
        plan_steps: plans reshardings; by default the cheapest.
    """
    planned = request.strategy(problem, strategy)
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    return step_time(planned, cost, plan_steps, request.reads, request.repeats).total


@dataclass(frozen=True, slots=True)
class _WeightSum:
    """The sum of a weight's gradient over devices.

    Attributes:
        shape: the shape of the weight.
        spec: its specification at the reader.
        source: the layout in which the reader makes the gradient.
        target: the layout of the gradient at the weight.
        size: the bytes of the gradient on one device before the sum.
        reader: the operator that makes the gradient.
        variable: the weight.
    """

    shape: tuple[int, ...]
    spec: TensorSpec
    source: Layout
    target: Layout
    size: int
    reader: str
    variable: str


class _Step:
    """The computation of `step_time`: its methods add to ``time``."""

    def __init__(
        self,
        strategy: Strategy,
        cost: ClusterCostModel,
        plan: PlanSteps,
        repeats: Mapping[str, int],
        within: Collection[str] | None,
    ) -> None:
        self.time = StepTime()
        self._within = within
        self._repeats = repeats
        self._strategy = strategy
        self._graph = strategy.graph
        self._cost = cost
        self._differentiated = differentiated_inputs(self._graph)
        self._sparse = frozenset().union(*sparse_tensors(self._graph).values())
        self._plan = plan
        self._readers: dict[TensorName, Counter[Slot]] = {}
        self._edges: dict[tuple[TensorName, Slot, bool], list[str]] = {}  # with readers
        self._weights: list[_WeightSum] = []
        self._summed: set[tuple[TensorName, Layout, Layout]] = set()
        self._lookups = lookups_of_tables(self._graph)
        self._statistics: dict[Sums, list[tuple[str, int]]] = {}  # tensors and bytes
        self._joined: set[str] = set()
        self._joined_gradients: Counter[tuple[TensorName, Slot]] = Counter()
        self._overlapped = OverlappedNetwork()
        self._join_products()

    def compute(self, operator: Operator) -> None:
        """Add the time of an operator, with the collectives inside it."""
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
        runs, time = self._runs(operator.name), self._cost.operator_nanoseconds(work)
        self.time.operators += runs * time.total
        self._overlapped.compute(operator.name, time, runs, bool(operator.mutates))
        for step in inner_steps(operator, derivation, configuration, strategy.mesh, backward):
            self._move_inside(step, runs * step.times, Reason("inside", [operator.name]))
            traffic = [StepTraffic(step.kind, step.axes, step.bytes, "")]
            self._wait(traffic, step.forward > 0, operator.name if step.backward else "")

    def _join_products(self) -> None:
        """Add the joined gradients of matrices that several products share.

        All products have to have the same configuration.
        """
        strategy = self._strategy
        for tensor, names in sharing_products(self._graph, self._differentiated).items():
            configurations = {strategy.configurations[name] for name in names}
            if len(configurations) > 1:
                continue
            derivation = strategy.derivations[names[0]]
            (configuration,) = configurations
            operator = self._graph[names[0]]
            joined = joined_product(operator, derivation, configuration, strategy.mesh, len(names))
            if joined is None:
                continue
            self._joined.update(names)
            slot = strategy.input_slot(operator, MATRIX)
            self._joined_gradients[tensor, slot] = len(names) - 1
            runs = self._runs(names[0])
            work = joined.product.work
            self.time.operators += runs * self._cost.operator_nanoseconds(work).forward
            copying = self._cost.collective_nanoseconds("slice", (), joined.copied_bytes)
            self.time.copies += runs * copying

    def _runs(self, name: str, reader: str = "") -> int:
        """Return how often an operator runs; with a reader, how often its output is resharded."""
        runs = self._repeats.get(name, 1)
        return min(runs, self._repeats.get(reader, 1)) if reader else runs

    def recompute(self, reads: BackwardReads) -> None:
        """Add the recomputation and resharding of tensors that are not kept."""
        strategy = self._strategy
        again = recomputed(strategy, reads)
        for name in again.computed:
            operator, derivation = self._graph[name], strategy.derivations[name]
            configuration = strategy.configurations[name]
            work = operator_work(operator, derivation, configuration, strategy.mesh, 0)
            if work is None:
                continue
            runs = self._runs(name)
            self.time.operators += runs * self._cost.operator_nanoseconds(work).forward
            for step in inner_steps(operator, derivation, configuration, strategy.mesh, 0):
                self._move_inside(step, runs * step.forward, Reason("again", [name]))
        for tensor, source, target in again.moved:
            spec = self._graph[tensor.operator].value_spec(tensor.index)
            shape, runs = known_shape(spec.shape), self._runs(tensor.operator)
            reason = Reason("again", [tensor.operator])
            self._reshard(shape, spec.dtype, spec.itemsize, source, target, reason, runs)

    def read(self, operator: Operator) -> None:
        """Add the resharding of an operator's inputs, and of their gradients."""
        if operator.gradient is not None or operator.type in SHAPE_TYPES:
            return
        for number, tensor in enumerate(operator.inputs):
            spec = operator.input_specs[number]
            if self._graph[tensor.operator].is_constant or number in operator.mutates:
                continue
            if self._within is not None and tensor.operator not in self._within:
                continue
            carries = number in self._differentiated.get(operator.name, ())
            source = self._strategy.output_slot(tensor)
            target = self._strategy.input_slot(operator, number)
            if carries:
                self._readers.setdefault(tensor, Counter())[target] += 1
            if spec.dtype == "resource":
                continue
            readers = self._edges.setdefault((tensor, target, carries), [])
            readers.append(operator.name)
            if len(readers) > 1:
                continue
            shape = known_shape(spec.shape)
            forward = source.forward, target.forward
            runs = self._runs(tensor.operator, operator.name)
            if carries or not self._is_averaged_with_others(tensor, spec, *forward):
                moved = Reason("forward", [tensor.operator], readers)
                self._reshard(shape, spec.dtype, spec.itemsize, *forward, moved, runs)
            if carries:
                self._send_back(operator, number, (target.gradient, source.gradient), readers)

    def _send_back(
        self, operator: Operator, number: int, back: tuple[Layout, Layout], readers: list[str]
    ) -> None:
        """Add the resharding of the gradient by an input."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        shape = known_shape(spec.shape)
        slices = looked_up(operator, number, self._sparse)
        path: tuple[TensorName, ...] = ()
        if -1 not in spec.shape and (slices is None or not slices.stays):
            path = path_of_gradient(self._strategy, operator, number, self._lookups)
        if path:
            self._sum_weight(operator, spec, back, path[-1])
            if slices is None:
                self._accumulate(operator, back[0], shape, spec.dtype)
        elif slices is not None:
            moved = partial(self._moved, Reason("gradient sum", [tensor.operator]))
            ends, mesh = (back[:1], back[1:]), self._strategy.mesh
            slices_times(shape, spec.itemsize, slices, *ends, moved, mesh)
        else:
            runs = self._runs(tensor.operator, operator.name)
            gradient = Reason("backward", [tensor.operator], readers)
            self._reshard(shape, spec.dtype, spec.itemsize, *back, gradient, runs)

    def _sum_weight(
        self, reader: Operator, spec: TensorSpec, back: tuple[Layout, Layout], variable: TensorName
    ) -> None:
        """Note the sum of a weight's gradient over devices.

        Gradients of several readers that are to be summed alike are added first. The first reader
        is the last one in the backward pass, so its place among the sums is theirs.
        """
        if (variable, *back) not in self._summed:
            self._summed.add((variable, *back))
            size = back[0].local_elements(spec.shape, self._strategy.mesh) * spec.itemsize
            weight = _WeightSum(spec.shape, spec, *back, size, reader.name, variable.operator)
            self._weights.append(weight)

    def _accumulate(
        self, reader: Operator, layout: Layout, shape: tuple[int, ...], dtype: str
    ) -> None:
        """Add the sum of a weight's gradient over microbatches."""
        for _ in range(self._runs(reader.name) - 1):
            self._sum(layout, shape, dtype, 2)

    def _is_averaged_with_others(
        self, tensor: TensorName, spec: TensorSpec, source: Layout, target: Layout
    ) -> bool:
        """Whether a tensor is a statistic of batch normalisation that is averaged over devices.

        If it is, its bytes are noted for `average_statistics`.
        """
        if not self._strategy.derivations[tensor.operator].is_averaged(tensor.index):
            return False
        sums = elementwise_sums(self._plan(spec.shape, spec.dtype, source, target))
        if sums is None:
            return False
        size = source.local_elements(spec.shape, self._strategy.mesh) * spec.itemsize
        self._statistics.setdefault(sums, []).append((tensor.operator, size))
        return True

    def average_statistics(self) -> None:
        """Add the averages of all layers' statistics; those over the same axes are one vector."""
        for sums, of_tensors in self._statistics.items():
            tensors, sizes = zip(*of_tensors, strict=True)
            self._reduce(sums, sizes, Reason("statistics", tensors))

    def reduce_buckets(self) -> None:
        """Add the sums of weights' gradients, in buckets; the last layers come first."""
        overlaps = self._cost.overlaps_across
        sizes = OVERLAPPED if overlaps else BUCKET_SIZES
        buckets: Buckets[_WeightSum] = Buckets(sizes, lambda sums, _: self._is_joined(sums))
        for weight in reversed(self._weights):
            dtype = weight.spec.dtype.removesuffix("_ref")
            steps = self._plan(weight.shape, dtype, weight.source, weight.target)
            sums = elementwise_sums(steps)
            self._reduce_bucket(buckets.add(weight, sums, dtype, weight.size))
        self._reduce_bucket(buckets.rest())

    def _reduce_bucket(self, bucket: Iterable[tuple[Sums | None, list[_WeightSum]]]) -> None:
        for sums, gradients in bucket:
            if sums is not None:
                self._reduce(sums, [weight.size for weight in gradients], _sum_of(gradients))
                continue
            for weight in gradients:
                dtype, ends = weight.spec.dtype, (weight.source, weight.target)
                self._reshard(weight.shape, dtype, weight.spec.itemsize, *ends, _sum_of([weight]))

    def _is_joined(self, sums: Sums) -> bool:
        """Whether one operator sums several tensors in place."""
        return all(
            self._cost.is_within_machines(axes) or self._cost.is_across_overlapped(axes)
            for axes in sums[1]
        )

    def _reduce(self, sums: Sums, bucket: Sequence[int], reason: Reason) -> None:
        """Add the sum of several tensors as one vector, given their bytes.

        Where no operator takes several tensors, they are copied into the vector and out of it.
        """
        size = sum(bucket)
        traffic = step_traffic(vector_steps(sums), self._strategy.mesh, (size,), 1)
        self._move(traffic, reason)
        if len(bucket) > 1 and not self._is_joined(sums):
            self.time.copies += 2 * self._cost.collective_nanoseconds("slice", (), size)

    def overlap(self) -> None:
        """Take off the time of sums of gradients that hides behind computation."""
        busy = self.time.total - self._overlapped.network_nanoseconds
        self.time.hidden = self._overlapped.hidden_nanoseconds(busy)

    def add_gradients(self) -> None:
        """Add the sums of gradients of several readers, at resharded copies and at the tensor."""
        for tensor in reader_gradient_sums(self._graph, self._differentiated):
            if tensor in self._sparse:
                continue
            spec = self._graph[tensor.operator].value_spec(tensor.index)
            shape, dtype = spec.shape, spec.dtype
            output = self._strategy.output_slot(tensor)
            count_at_output = 0
            for slot, readers in self._readers.get(tensor, Counter()).items():
                count = readers - self._joined_gradients[tensor, slot]
                if slot.forward == output.forward and slot.gradient == output.gradient:
                    count_at_output += count
                    continue
                count_at_output += 1
                self._sum(slot.gradient, shape, dtype, count, self._runs(tensor.operator))
            runs = self._runs(tensor.operator)
            self._sum(output.gradient, shape, dtype, count_at_output, runs)

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
        reason: Reason,
        runs: int = 1,
    ) -> None:
        mesh = self._strategy.mesh
        steps = self._plan(shape, dtype.removesuffix("_ref"), source, target)
        self._move(
            step_traffic(steps, mesh, source.local_shape(shape, mesh), itemsize), reason, runs
        )

    def _move(self, steps: Iterable[StepTraffic], reason: Reason, times: int = 1) -> None:
        """Add a resharding that is made ``times`` times. Gathers of weights and sums of their
        gradients may hide behind computation."""
        steps = list(steps)
        overlap: Callable[[int, int], None] | None = None
        if reason.purpose == "gradient sum" and reason.readers:
            overlap = partial(self._overlapped.add, reason.readers)
        elif reason.purpose == "forward" and times == 1 and self._is_weight(reason.tensors[0]):
            overlap = self._overlapped.gather
        self.time.move(self._cost, steps, reason, times, overlap)
        if overlap is None and reason.purpose == "forward":
            self._wait(steps, True)
        elif reason.purpose == "backward":  # the last of the readers in the backward pass
            self._wait(steps, False, reason.readers[0])

    def _is_weight(self, name: str) -> bool:
        """Whether an operator is a variable, or reads one unchanged."""
        return bool(path_to_variable(self._strategy, TensorName(name, 0)))

    def _wait(self, steps: Iterable[StepTraffic], forward: bool, backward: str = "") -> None:
        """Note that the forward pass, or the backward pass at an operator, waits for collectives
        between machines."""
        if any(self._cost.beside_computation(*step[:3]).seconds for step in steps):
            if forward:
                self._overlapped.hold()
            if backward:
                self._overlapped.wait(backward)

    def _move_inside(self, step: InnerStep, times: int, reason: Reason) -> None:
        """Add a step inside an operator, which is made ``times`` times."""
        self._move([StepTraffic(step.kind, step.axes, step.bytes, "")], reason, times)

    def _moved(
        self,
        reason: Reason,
        shape: tuple[int, ...],
        itemsize: int,
        sources: Sequence[Layout],
        targets: Sequence[Layout],
    ) -> npt.NDArray[np.int64]:
        dtype = f"float{8 * itemsize}" if itemsize > 1 else "int8"
        self._reshard(shape, dtype, itemsize, sources[0], targets[0], reason)
        return np.zeros((1, 1), np.int64)


def _sum_of(gradients: Sequence[_WeightSum]) -> Reason:
    """Return the reason of a sum of weights' gradients."""
    variables = [weight.variable for weight in gradients]
    return Reason("gradient sum", variables, [weight.reader for weight in gradients])
