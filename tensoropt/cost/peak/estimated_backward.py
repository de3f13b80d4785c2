"""The backward pass of an estimated step: the gradients of one call of ``tf.gradients``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tensoropt.cost.peak.estimated_forward import ForwardEvents, writes_over
from tensoropt.cost.peak.timeline import Buffer, Event
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.buckets import path_to_variable
from tensoropt.parallel.keeping import Keeping
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import types_with
from tensoropt.tensor_spec import TensorSpec

__all__ = ["BackwardEvents"]

_PASSES_GRADIENT = types_with(gradient_passes=True) | VIEWS
"""Types whose gradient by an input of the output's shape is the gradient of the output."""


@dataclass(slots=True)
class _Copy:
    """The gradients by one copy of a tensor, which several operators may read.

    Attributes:
        readers: the reads whose gradient is not computed yet.
        buffers: the gradients that are computed.
        factors: buffers of the factors of matrix products that are joined into one when all are
            computed (`tensoropt.execution.gradient_functions.matrix_products`).
        factor_bytes: bytes of the factors, which are copied.
    """

    readers: list[tuple[Operator, int]] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    factors: list[Buffer] = field(default_factory=list)
    factor_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A gradient that is computed, and its resharding to the producer of its tensor."""

    tensor: TensorName
    spec: TensorSpec
    label: str
    buffer: Buffer
    source: Layout
    target: Layout


class BackwardEvents:
    """Adds the buffers and events of one call of ``tf.gradients`` to a timeline.

    Args:
        strategy: strategy of the step's graph.
        reads: the tensors of the forward pass that the backward pass reads.
        forward: the forward pass, with its timeline.
        call: number of the call.
        full_bytes: size at which a bucket of gradients of weights is sent.
        complete: called with a tensor whose gradient by this call is complete, and its buffer.
    """

    def __init__(
        self,
        strategy: Strategy,
        reads: BackwardReads,
        forward: ForwardEvents,
        call: int,
        full_bytes: int,
        complete: Callable[[int, TensorName, Buffer], None],
    ) -> None:
        self._strategy = strategy
        self._graph: Graph = strategy.graph
        self._reads = reads
        self._forward = forward
        self._timeline = forward.timeline
        self._call = call
        self._full_bytes = full_bytes
        self._report = complete
        self._differentiated = differentiated_inputs(self._graph, call)
        self._keeping = Keeping(strategy)
        self._made: set[Buffer] = set()
        self._arrived: dict[TensorName, list[Buffer]] = {}
        self._waiting: dict[TensorName, int] = {}
        self._copies: dict[tuple[TensorName, Slot], _Copy] = {}
        self._bucket: list[_Arrived] = []
        self._bucket_bytes = 0
        self._slices: set[Buffer] = set()

    def run(self) -> None:
        """Add all gradients, in the order in which they become complete."""
        order = list(self._graph)
        for operator in order:
            for number in self._differentiated.get(operator.name, ()):
                self._copy(operator, number).readers.append((operator, number))
        for (tensor, _), copy in self._copies.items():
            self._waiting[tensor] = self._waiting.get(tensor, 0) + 1
            copy.factor_bytes = self._factor_bytes(copy)
        for operator in order:
            if operator.gradient is not None and operator.gradient.call == self._call:
                for y in operator.gradient.ys:
                    self._arrived.setdefault(y, [])
        for operator in self._in_gradient_order():
            if operator.type not in VIEWS:
                self._differentiate(operator)
        self._send_bucket()

    def _in_gradient_order(self) -> list[Operator]:
        """Return operators in the order in which ``tf.gradients`` computes their gradients.

        The operator whose output gradients are complete first comes first, so that branches are
        interleaved. Gradients of gradients are left out.
        """
        names = [each for each in self._differentiated if self._graph[each].gradient is None]
        waiting = dict.fromkeys(names, 0)
        for name in names:
            for producer in self._producers(name):
                if producer in waiting:
                    waiting[producer] += 1
        ready = deque(each for each in reversed(names) if not waiting[each])
        order = []
        while ready:
            name = ready.popleft()
            order.append(self._graph[name])
            for producer in self._producers(name):
                if producer in waiting:
                    waiting[producer] -= 1
                    if not waiting[producer]:
                        ready.append(producer)
        return order

    def _producers(self, name: str) -> list[str]:
        """Return the producers of the inputs by which an operator is differentiated."""
        inputs = self._graph[name].inputs
        return [inputs[number].operator for number in self._differentiated[name]]

    def _differentiate(self, operator: Operator) -> None:
        """Add the gradients by the inputs of an operator."""
        upstream = [
            buffer
            for number in range(len(operator.outputs))
            for buffer in self._arrived.get(TensorName(operator.name, number), ())
        ]
        windows = self._forward.windows(operator)
        if windows is not None and windows.written is not None and upstream:
            upstream = [self._padded(operator, windows.written, upstream)]
        needed = list(upstream)
        needed += [
            self._input_in_backward(operator, n) for n in self._reads.inputs.get(operator.name, ())
        ]
        needed += [
            self._output_in_backward(TensorName(operator.name, n))
            for n in self._reads.outputs.get(operator.name, ())
        ]
        new_buffers: list[tuple[Buffer, int]] = []
        gradients: list[tuple[int, Buffer]] = []
        upstream_bytes = sum(
            self._forward.local(s, self._forward.slot(operator, n).forward)
            for n, s in enumerate(operator.outputs[:1])
        )
        halos: list[tuple[int, Buffer, Buffer]] = []
        for number in self._differentiated[operator.name]:
            slot = self._strategy.input_slot(operator, number)
            size = self._forward.local(operator.input_specs[number], slot.forward)
            if looks_up_rows(operator, number):
                size = upstream_bytes  # slices have the shape of the rows that were looked up
                self._slices.add((operator.name, "gradient", number, self._call))
            buffer: Buffer = (operator.name, "gradient", number, self._call)
            copy = self._copy(operator, number)
            if copy.factor_bytes:
                copy.factors += [*upstream, self._input_in_backward(operator, 1 - number)]
            elif windows is not None and number == windows.input and windows.read:
                by_window: Buffer = (*buffer, "window")
                dtype = operator.input_specs[number].dtype
                window_bytes = TensorSpec(windows.read[-1], dtype).bytes
                new_buffers.append((by_window, window_bytes))
                halos.append((size, by_window, buffer))
            elif operator.type in _PASSES_GRADIENT and upstream and size == upstream_bytes:
                self._timeline.shares[buffer] = upstream[0]
            else:
                new_buffers.append((buffer, size))
            gradients.append((number, buffer))
        # If a kernel can write over its input, its gradient can write over the upstream one.
        over = writes_over(operator.type)
        label = f"gradient of {operator.name}"
        self._timeline.events.append(Event(label, tuple(needed), tuple(new_buffers), over))
        for size, by_window, buffer in halos:
            self._timeline.events.append(Event(f"{label}/halo", (by_window,), ((buffer, size),)))
        for number, buffer in gradients:
            self._arrive(operator, number, buffer)

    def _padded(
        self, operator: Operator, written: tuple[int, ...], upstream: list[Buffer]
    ) -> Buffer:
        """Add the gradient by all elements that a transposed convolution's windows write."""
        padded: Buffer = (operator.name, "gradient", "written", self._call)
        size = TensorSpec(written, operator.outputs[0].dtype).bytes
        label = f"gradient of {operator.name}/written"
        self._timeline.events.append(Event(label, tuple(upstream), ((padded, size),)))
        return padded

    def _input_in_backward(self, operator: Operator, number: int) -> Buffer:
        """Return an input as the backward pass reads it: kept, or made again now."""
        is_kept = not self._keeping.read_again(operator, number)
        shard = (
            self._forward.input(operator, number)
            if is_kept
            else self._shard_again(operator, number)
        )
        again = None if is_kept else self._call
        return self._forward.read_in_windows(operator, number, shard, again)

    def _shard_again(self, operator: Operator, number: int) -> Buffer:
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        at_producer = self._made_again(tensor)
        if not self._keeping.moved(operator, number) or -1 in spec.shape:
            return at_producer
        source = self._strategy.output_slot(tensor).forward
        target = self._strategy.input_slot(operator, number).forward
        return self._reshard_again(tensor, spec, at_producer, source, target)

    def _made_again(self, tensor: TensorName) -> Buffer:
        """Return a tensor at its producer, kept or computed again."""
        operator = self._graph[tensor.operator]
        if not self._keeping.is_recomputed(operator.name):
            return (tensor.operator, tensor.index)
        if operator.type in VIEWS:
            return self._input_in_backward(operator, 0)
        again: Buffer = (tensor.operator, tensor.index, "again", self._call)
        if again not in self._made:
            numbers = range(len(operator.inputs))
            read = tuple(self._input_in_backward(operator, number) for number in numbers)
            outputs = tuple(
                (
                    (operator.name, n, "again", self._call),
                    self._forward.local(spec, self._forward.slot(operator, n).forward),
                )
                for n, spec in enumerate(operator.outputs)
            )
            self._made.update(buffer for buffer, _ in outputs)
            over = writes_over(operator.type)
            self._timeline.events.append(Event(f"{operator.name} again", read, outputs, over))
        return again

    def _output_in_backward(self, tensor: TensorName) -> Buffer:
        """Return an output that its own gradient reads: kept, computed again, or restored from a
        copy in another layout."""
        if self._keeping.is_recomputed(tensor.operator):
            return self._made_again(tensor)
        reader = self._keeping.returned_from(tensor)
        if reader is None:
            return (tensor.operator, tensor.index)
        operator, number = reader
        copy = self._forward.input(operator, number)
        source = self._strategy.input_slot(operator, number).forward
        target = self._strategy.output_slot(tensor).forward
        return self._reshard_again(tensor, operator.input_specs[number], copy, source, target)

    def _reshard_again(
        self,
        tensor: TensorName,
        spec: TensorSpec,
        original: Buffer,
        source: Layout,
        target: Layout,
    ) -> Buffer:
        copy: Buffer = (tensor.operator, tensor.index, target, "again", self._call)
        if copy not in self._made:
            self._made.add(copy)
            label = f"{tensor.operator}/reshard_again"
            self._forward.reshard(label, spec, original, source, copy, target)
        return copy

    def _copy(self, operator: Operator, number: int) -> _Copy:
        """Return the copy of a tensor that an operator reads."""
        slot = self._strategy.input_slot(operator, number)
        return self._copies.setdefault((operator.inputs[number], slot), _Copy())

    def _factor_bytes(self, copy: _Copy) -> int:
        """Return the bytes of the factors of products that are joined, 0 if they are not.

        They are joined if all gradients that would be added are products with the same weight, and
        are larger than the factors.
        """
        (first, number), *others = copy.readers
        slot = self._strategy.input_slot(first, number)
        size = self._forward.local(first.input_specs[number], slot.forward)
        if not path_to_variable(self._strategy, first.inputs[number]):
            return 0
        factors = 0
        for operator, place in copy.readers:
            if operator.type != "MatMul":
                return 0
            other = self._strategy.input_slot(operator, 1 - place).forward
            factors += self._forward.local(operator.input_specs[1 - place], other)
            made = self._forward.slot(operator, 0).forward
            factors += self._forward.local(operator.outputs[0], made)
        return factors if factors <= len(others) * size else 0

    def _arrive(self, operator: Operator, number: int, buffer: Buffer) -> None:
        """Record that a gradient by an input is computed.

        When all gradients by a copy are computed, their sum is sent to the producer of the tensor.
        """
        copy = self._copy(operator, number)
        copy.readers.remove((operator, number))
        copy.buffers.append(buffer)
        if copy.readers:
            return
        if self._slices.issuperset(copy.buffers):
            self._complete(operator.inputs[number], *copy.buffers)
        else:
            self._send_back(operator, number, self._added_up(operator, number, copy))

    def _added_up(self, operator: Operator, number: int, copy: _Copy) -> Buffer:
        """Return the sum of the gradients by a copy."""
        if len(copy.buffers) == 1:
            return copy.buffers[0]
        slot = self._strategy.input_slot(operator, number)
        size = self._forward.local(operator.input_specs[number], slot.forward)
        total: Buffer = (*copy.buffers[-1], "added up")
        read = tuple(copy.factors or copy.buffers)
        label = f"gradients of {operator.inputs[number]}"
        event = Event(label, read, ((total, size),), not copy.factors, copy.factor_bytes)
        self._timeline.events.append(event)
        return total

    def _send_back(self, operator: Operator, number: int, buffer: Buffer) -> None:
        """Reshard the gradient by a copy to the producer of the tensor."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        source = self._strategy.input_slot(operator, number).gradient
        target = self._strategy.output_slot(tensor).gradient
        is_in_place = source == target or spec.dtype == "resource" or -1 in spec.shape
        if is_in_place:
            self._complete(tensor, buffer)
            return
        arrived = _Arrived(tensor, spec, f"{operator.name}/gradient", buffer, source, target)
        if path_to_variable(self._strategy, tensor):
            self._bucket.append(arrived)
            self._bucket_bytes += self._forward.local(spec, source)
            if self._bucket_bytes >= self._full_bytes:
                self._send_bucket()
        else:
            self._complete(tensor, self._moved(arrived))

    def _send_bucket(self) -> None:
        """Reshard the gradients of a bucket to their variables, all of which are computed."""
        bucket, self._bucket, self._bucket_bytes = self._bucket, [], 0
        if bucket:
            self._timeline.events.append(Event("bucket", tuple(each.buffer for each in bucket), ()))
        for each in bucket:
            self._complete(each.tensor, self._moved(each))

    def _moved(self, arrived: _Arrived) -> Buffer:
        """Reshard a gradient to the layout at the producer of its tensor."""
        copy: Buffer = (*arrived.buffer, "moved")
        ends = arrived.source, copy, arrived.target
        self._forward.reshard(arrived.label, arrived.spec, arrived.buffer, *ends)
        return copy

    def _complete(self, tensor: TensorName, *buffers: Buffer) -> None:
        """Record that the gradient by one copy of a tensor is at the producer.

        After the last copy the gradients are added, and the gradient of the tensor is complete.
        """
        arrived = self._arrived.setdefault(tensor, [])
        arrived += buffers
        self._waiting[tensor] = self._waiting.get(tensor, 1) - 1
        if self._waiting[tensor] > 0:
            return
        if len(arrived) > 1 and not self._slices.issuperset(arrived):
            spec = self._graph.spec(tensor)
            size = self._forward.local(spec, self._strategy.output_slot(tensor).forward)
            total: Buffer = (tensor.operator, tensor.index, "total", self._call)
            label = f"gradients of {tensor}"
            self._timeline.events.append(Event(label, tuple(arrived), ((total, size),), True))
            self._arrived[tensor] = [total]
        producer = self._graph[tensor.operator]
        if producer.type in VIEWS and 0 in self._differentiated.get(producer.name, ()):
            self._arrive(producer, 0, self._arrived[tensor][0])
        self._report(self._call, tensor, self._arrived[tensor][0])
