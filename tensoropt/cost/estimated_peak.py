"""The peak of memory on one device: a training step, followed from operator to operator.

Forward in the graph's order; backward in its reverse, each gradient as soon as all that it adds up
is there; updates as soon as their gradients are. A tensor is there from the operator that makes it
to the last one that reads it; a kernel whose input nobody else needs writes over it, where
TensorFlow's does. Variables and what is fed stay throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tensoropt.cost.timeline import Buffer, Event, Timeline
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.buckets import BUCKET_SIZES, BucketSizes, path_to_variable
from tensoropt.parallel.keeping import Keeping
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.parallel.strategy import Strategy

__all__ = ["Peak", "PlanSteps", "peak_memory"]

PlanSteps = Callable[[Sequence[int], str, Layout, Layout], tuple[ReshardStep, ...]]

_WRITES_OVER = frozenset(
    {"Abs", "Add", "AddN", "AddV2", "BiasAdd", "Cast", "Div", "Elu", "Exp", "Log", "Maximum"}
    | {"Minimum", "Mul", "Neg", "Pow", "RealDiv", "Relu", "Relu6", "Rsqrt", "Sigmoid", "Softmax"}
    | {"Softplus", "Sqrt", "Square", "SquaredDifference", "Sub", "Tanh"}
)
"""Types whose kernel takes an input's buffer for its output if no one else needs it."""

_PASSES_GRADIENT = frozenset({"Add", "AddN", "AddV2", "BiasAdd", "Sub"}) | VIEWS
"""Types whose gradient by an input of the output's shape is the gradient that arrives."""

_GRADIENT_WRITES_OVER = _WRITES_OVER | {"Softmax", "LogSoftmax"}
"""Types whose gradient, of the shape of the one that arrives, is written over it."""


_CROSS_ENTROPIES = frozenset(
    {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}
)


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that one device has in use at once during a step.

    Attributes:
        bytes: all of it.
        resident_bytes: of it, variables, constants and what is fed.
        at: the operator at which it is reached; "gradient of ..." in the backward pass.
    """

    bytes: int
    resident_bytes: int
    at: str


def peak_memory(
    strategy: Strategy,
    reads: BackwardReads,
    plan_steps: PlanSteps | None = None,
    buckets: BucketSizes = BUCKET_SIZES,
) -> Peak:
    """The peak of a step under a strategy.

    Args:
        strategy: of the step's graph.
        reads: what the backward pass reads of the forward pass.
        plan_steps: plans a resharding, for the buffers of its steps; without it only the tensors
            before and after count.
        buckets: when gradients of weights are sent, all of which are there until then.
    """
    step = _Step(strategy, reads, plan_steps, buckets)
    step.forward()
    step.backward()
    return step.peak()


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A gradient that an operator has made, and where it goes."""

    tensor: TensorName
    spec: TensorSpec
    label: str
    buffer: Buffer
    source: Layout
    target: Layout


class _Step:
    def __init__(
        self,
        strategy: Strategy,
        reads: BackwardReads,
        plan_steps: PlanSteps | None,
        buckets: BucketSizes,
    ) -> None:
        self._full_bytes = buckets.full_bytes
        self._strategy = strategy
        self._graph: Graph = strategy.graph
        self._mesh: Mesh = strategy.mesh
        self._reads = reads
        self._plan_steps = plan_steps
        self._differentiated = differentiated_inputs(self._graph)
        self._keeping = Keeping(strategy)
        self._timeline = Timeline()
        self._resident = 0
        self._made: set[Buffer] = set()
        self._arrived: dict[TensorName, list[Buffer]] = {}
        self._waiting: dict[TensorName, int] = {}
        self._after = _after_gradients(self._graph)
        self._tags: dict[TensorName, list[str]] = {}
        for operator in self._graph:
            if operator.gradient is not None:
                self._tags.setdefault(operator.gradient.x, []).append(operator.name)
        self._done: set[str] = set()
        self._bucket: list[_Arrived] = []
        self._bucket_bytes = 0
        self._slices: set[Buffer] = set()

    def peak(self) -> Peak:
        most, where = self._timeline.peak()
        return Peak(self._resident + most, self._resident, where)

    # Forward

    def forward(self) -> None:
        """Everything that no gradient is needed for."""
        for operator in self._graph:
            if operator.name not in self._after:
                self._run(operator)

    def _run(self, operator: Operator) -> None:
        self._done.add(operator.name)
        outputs = tuple(
            ((operator.name, number), self._local(spec, self._slot(operator, number).forward))
            for number, spec in enumerate(operator.outputs)
        )
        if operator.is_variable:
            self._resident += sum(size for _, size in self._variable(operator))
            return
        if operator.is_placeholder or operator.is_constant:
            self._resident += sum(size for _, size in outputs)
            return
        if operator.gradient is not None:
            return
        read = tuple(self._input(operator, number) for number in range(len(operator.inputs)))
        if operator.type in VIEWS:
            self._timeline.shares[outputs[0][0]] = read[0]
            return
        over = operator.type in _WRITES_OVER
        meanwhile = self._spelled_out(operator)
        self._timeline.events.append(Event(operator.name, read, outputs, over, meanwhile))

    def _spelled_out(self, operator: Operator) -> int:
        """What a cross entropy takes beside its outputs whose classes are split: exponentials and
        marked labels (`tensoropt.execution.rules.classes`)."""
        if operator.type not in _CROSS_ENTROPIES:
            return 0
        layout = self._strategy.input_slot(operator, 0).forward
        return 2 * self._local(operator.input_specs[0], layout) if layout.dims[-1] else 0

    def _variable(self, operator: Operator) -> list[tuple[Buffer, int]]:
        spec = operator.value_spec(0)
        layout = self._slot(operator, 0).forward
        elements = layout.local_elements(spec.shape, self._mesh)
        return [((operator.name, 0), elements * spec.itemsize)]

    def _input(self, operator: Operator, number: int) -> Buffer:
        """The buffer that an operator reads: the tensor where it is made, or a resharded copy."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        source = self._strategy.output_slot(tensor).forward
        target = self._strategy.input_slot(operator, number).forward
        made: Buffer = (tensor.operator, tensor.index)
        if number in operator.mutates or spec.dtype == "resource" or -1 in spec.shape:
            return made
        copy: Buffer = (tensor.operator, tensor.index, target)
        if source == target or tensor.operator not in self._graph:
            return made
        if copy not in self._made:
            self._made.add(copy)
            self._reshard(f"{tensor.operator}/reshard", spec, made, source, copy, target)
        return copy

    def _reshard(
        self,
        label: str,
        spec: TensorSpec,
        made: Buffer,
        source: Layout,
        copy: Buffer,
        target: Layout,
    ) -> None:
        steps: Sequence[ReshardStep] = ()
        if self._plan_steps is not None:
            steps = self._plan_steps(spec.shape, spec.dtype, source, target)
        if not steps:
            self._timeline.events.append(
                Event(label, (made,), ((copy, self._local(spec, target)),))
            )
            return
        for number, step in enumerate(steps):
            after: Buffer = copy if number == len(steps) - 1 else (*copy, number)
            if _is_view(step, spec, self._mesh):
                self._timeline.shares[after] = made
                self._timeline.parts[after] = self._local(spec, step.target)
            else:
                over = step.kind == "allreduce"
                made_of = ((after, self._local(spec, step.target)),)
                self._timeline.events.append(Event(label, (made,), made_of, over))
            made = after

    # Backward

    def backward(self) -> None:
        """Gradients, in the order in which they become complete."""
        order = list(self._graph)
        for operator in order:
            for number in self._differentiated.get(operator.name, ()):
                tensor = operator.inputs[number]
                self._waiting[tensor] = self._waiting.get(tensor, 0) + 1
        for operator in order:
            if operator.gradient is not None:
                for y in operator.gradient.ys:
                    self._arrived.setdefault(y, [])
        for operator in reversed(order):
            if operator.gradient is not None:
                continue  # gradients of gradients are left out
            if operator.name in self._differentiated and operator.type not in VIEWS:
                self._differentiate(operator)
        self._send()
        for operator in order:
            if operator.name not in self._done:
                self._run(operator)

    def _differentiate(self, operator: Operator) -> None:
        upstream = [
            buffer
            for number in range(len(operator.outputs))
            for buffer in self._arrived.get(TensorName(operator.name, number), ())
        ]
        needed = list(upstream)
        needed += [
            self._input_again(operator, n) for n in self._reads.inputs.get(operator.name, ())
        ]
        needed += [
            self._output_again(TensorName(operator.name, n))
            for n in self._reads.outputs.get(operator.name, ())
        ]
        makes: list[tuple[Buffer, int]] = []
        passed: list[tuple[int, Buffer]] = []
        arriving = sum(
            self._local(s, self._slot(operator, n).forward)
            for n, s in enumerate(operator.outputs[:1])
        )
        for number in self._differentiated[operator.name]:
            slot = self._strategy.input_slot(operator, number)
            size = self._local(operator.input_specs[number], slot.forward)
            if looks_up_rows(operator, number):
                size = arriving  # slices: the rows that were looked up
                self._slices.add((operator.name, "gradient", number))
            buffer: Buffer = (operator.name, "gradient", number)
            if operator.type in _PASSES_GRADIENT and upstream and size == arriving:
                self._timeline.shares[buffer] = upstream[0]
            else:
                makes.append((buffer, size))
            passed.append((number, buffer))
        over = operator.type in _GRADIENT_WRITES_OVER
        label = f"gradient of {operator.name}"
        self._timeline.events.append(Event(label, tuple(needed), tuple(makes), over))
        for number, buffer in passed:
            self._arrive(operator, number, buffer)

    def _input_again(self, operator: Operator, number: int) -> Buffer:
        """What an operator reads as the backward pass has it: kept, or made again now."""
        if not self._keeping.read_again(operator, number):
            return self._input(operator, number)
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        made = self._made_again(tensor)
        if not self._keeping.moved(operator, number) or -1 in spec.shape:
            return made
        source = self._strategy.output_slot(tensor).forward
        target = self._strategy.input_slot(operator, number).forward
        return self._reshard_again(tensor, spec, made, source, target)

    def _made_again(self, tensor: TensorName) -> Buffer:
        """A tensor where it is made, kept or computed again."""
        operator = self._graph[tensor.operator]
        if not self._keeping.remade(operator.name):
            return (tensor.operator, tensor.index)
        if operator.type in VIEWS:
            return self._input_again(operator, 0)
        found: Buffer = (tensor.operator, tensor.index, "again")
        if found not in self._made:
            read = tuple(self._input_again(operator, n) for n in range(len(operator.inputs)))
            outputs = tuple(
                ((operator.name, n, "again"), self._local(spec, self._slot(operator, n).forward))
                for n, spec in enumerate(operator.outputs)
            )
            self._made.update(buffer for buffer, _ in outputs)
            over = operator.type in _WRITES_OVER
            self._timeline.events.append(Event(f"{operator.name} again", read, outputs, over))
        return found

    def _output_again(self, tensor: TensorName) -> Buffer:
        """What an operator's own gradient reads of its outputs: kept, computed again, or come
        back from a copy in another layout."""
        if self._keeping.remade(tensor.operator):
            return self._made_again(tensor)
        found = self._keeping.returned_from(tensor)
        if found is None:
            return (tensor.operator, tensor.index)
        operator, number = found
        copy = self._input(operator, number)
        source = self._strategy.input_slot(operator, number).forward
        target = self._strategy.output_slot(tensor).forward
        return self._reshard_again(tensor, operator.input_specs[number], copy, source, target)

    def _reshard_again(
        self, tensor: TensorName, spec: TensorSpec, made: Buffer, source: Layout, target: Layout
    ) -> Buffer:
        copy: Buffer = (tensor.operator, tensor.index, target, "again")
        if copy not in self._made:
            self._made.add(copy)
            label = f"{tensor.operator}/reshard_again"
            self._reshard(label, spec, made, source, copy, target)
        return copy

    def _arrive(self, operator: Operator, number: int, buffer: Buffer) -> None:
        """A gradient goes to its tensor's producer; the last one is added to the others."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        source = self._strategy.input_slot(operator, number).gradient
        target = self._strategy.output_slot(tensor).gradient
        stays = source == target or spec.dtype == "resource" or -1 in spec.shape
        if stays or buffer in self._slices:
            self._complete(tensor, buffer)
            return
        arrived = _Arrived(tensor, spec, f"{operator.name}/gradient", buffer, source, target)
        if path_to_variable(self._strategy, tensor):
            self._bucket.append(arrived)
            self._bucket_bytes += self._local(spec, source)
            if self._bucket_bytes >= self._full_bytes:
                self._send()
        else:
            self._complete(tensor, self._moved(arrived))

    def _send(self) -> None:
        """Take the gradients of a bucket to their variables; all were there before."""
        bucket, self._bucket, self._bucket_bytes = self._bucket, [], 0
        if bucket:
            self._timeline.events.append(Event("bucket", tuple(each.buffer for each in bucket), ()))
        for each in bucket:
            self._complete(each.tensor, self._moved(each))

    def _moved(self, arrived: _Arrived) -> Buffer:
        """A gradient in the layout of its tensor's, where the tensor is made."""
        copy: Buffer = (*arrived.buffer, "moved")
        ends = arrived.source, copy, arrived.target
        self._reshard(arrived.label, arrived.spec, arrived.buffer, *ends)
        return copy

    def _complete(self, tensor: TensorName, buffer: Buffer) -> None:
        arrived = self._arrived.setdefault(tensor, [])
        arrived.append(buffer)
        self._waiting[tensor] = self._waiting.get(tensor, 1) - 1
        if self._waiting[tensor] > 0:
            return
        if len(arrived) > 1 and not self._slices.issuperset(arrived):
            spec = self._graph.spec(tensor)
            size = self._local(spec, self._strategy.output_slot(tensor).forward)
            total: Buffer = (tensor.operator, tensor.index, "total")
            label = f"gradients of {tensor}"
            self._timeline.events.append(Event(label, tuple(arrived), ((total, size),), True))
            self._arrived[tensor] = [total]
        producer = self._graph[tensor.operator]
        if producer.type in VIEWS and 0 in self._differentiated.get(producer.name, ()):
            self._arrive(producer, 0, self._arrived[tensor][0])
        self._update(tensor)

    def _update(self, x: TensorName) -> None:
        """The gradient by x is complete: run what waited for it alone."""
        tags = self._tags.pop(x, None)
        if tags is None:
            return
        for name in tags:
            self._done.add(name)
            self._timeline.shares[(name, 0)] = self._arrived[x][0]
        for name in self._after:
            operator = self._graph[name]
            if name in self._done or operator.gradient is not None:
                continue
            before = [*(t.operator for t in operator.inputs), *operator.control_inputs]
            if all(name in self._done or name not in self._graph for name in before):
                self._run(operator)

    def _slot(self, operator: Operator, number: int) -> Slot:
        return self._strategy.output_slot(TensorName(operator.name, number))

    def _local(self, spec: TensorSpec, layout: Layout) -> int:
        if -1 in spec.shape or spec.dtype in ("resource", "variant", "string"):
            return 0
        return layout.local_elements(spec.shape, self._mesh) * spec.itemsize


def _after_gradients(graph: Graph) -> dict[str, None]:
    """The operators that need some gradient, and the gradients, in order."""
    found: dict[str, None] = {}
    for operator in graph:
        before = [*(t.operator for t in operator.inputs), *operator.control_inputs]
        if operator.gradient is not None or any(name in found for name in before):
            found[operator.name] = None
    return found


def _is_view(step: ReshardStep, spec: TensorSpec, mesh: Mesh) -> bool:
    """Whether the first device makes no memory for a step: rows that it keeps, or all."""
    if step.kind == "mask":
        return True
    if step.kind != "slice" or step.to_dim is None:
        return False
    return prod(step.source.local_shape(spec.shape, mesh)[: step.to_dim]) == 1
