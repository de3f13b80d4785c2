"""The backward pass of an estimated step: the gradients of one call, as they become complete."""

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


@dataclass(slots=True)
class _Copy:
    """What comes back by one copy of a tensor, which several may read.

    Attributes:
        readers: by which gradients have not come back yet.
        buffers: that have.
        factors: buffers of the factors of products that are made as one when all are there: what
            would else be added up is larger (`tensoropt.execution.gradients.matrix_products`).
        factor_bytes: of these, which are copied.
    """

    readers: list[tuple[Operator, int]] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    factors: list[Buffer] = field(default_factory=list)
    factor_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A gradient that an operator has made, and where it goes."""

    tensor: TensorName
    spec: TensorSpec
    label: str
    buffer: Buffer
    source: Layout
    target: Layout


class BackwardEvents:
    """Adds what one call of ``tf.gradients`` computes to a timeline.

    Args:
        strategy: of the step's graph.
        reads: what the backward pass reads of the forward pass.
        forward: the forward pass, and its timeline.
        call: the number of the call.
        full_bytes: of a bucket of gradients of weights, which are sent together.
        complete: told of a tensor whose gradient by this call is there, and where.
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
        self._tell = complete
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
        """Gradients, in the order in which they become complete."""
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
        for operator in self._in_turn():
            if operator.type not in VIEWS:
                self._differentiate(operator)
        self._send()

    def _in_turn(self) -> list[Operator]:
        """Operators in the order in which ``tf.gradients`` makes their gradients: of those whose
        outputs' are there the first first, so that branches go back together."""
        # Gradients of gradients are left out.
        names = [each for each in self._differentiated if self._graph[each].gradient is None]
        waiting = dict.fromkeys(names, 0)
        for name in names:
            for producer in self._producers(name):
                if producer in waiting:
                    waiting[producer] += 1
        ready = deque(each for each in reversed(names) if not waiting[each])
        found = []
        while ready:
            name = ready.popleft()
            found.append(self._graph[name])
            for producer in self._producers(name):
                if producer in waiting:
                    waiting[producer] -= 1
                    if not waiting[producer]:
                        ready.append(producer)
        return found

    def _producers(self, name: str) -> list[str]:
        """Of the inputs that an operator is differentiated by."""
        inputs = self._graph[name].inputs
        return [inputs[number].operator for number in self._differentiated[name]]

    def _differentiate(self, operator: Operator) -> None:
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
            self._input_again(operator, n) for n in self._reads.inputs.get(operator.name, ())
        ]
        needed += [
            self._output_again(TensorName(operator.name, n))
            for n in self._reads.outputs.get(operator.name, ())
        ]
        makes: list[tuple[Buffer, int]] = []
        passed: list[tuple[int, Buffer]] = []
        arriving = sum(
            self._forward.local(s, self._forward.slot(operator, n).forward)
            for n, s in enumerate(operator.outputs[:1])
        )
        halos: list[tuple[int, Buffer, Buffer]] = []
        for number in self._differentiated[operator.name]:
            slot = self._strategy.input_slot(operator, number)
            size = self._forward.local(operator.input_specs[number], slot.forward)
            if looks_up_rows(operator, number):
                size = arriving  # slices: the rows that were looked up
                self._slices.add((operator.name, "gradient", number, self._call))
            buffer: Buffer = (operator.name, "gradient", number, self._call)
            copy = self._copy(operator, number)
            if copy.factor_bytes:
                copy.factors += [*upstream, self._input_again(operator, 1 - number)]
            elif windows is not None and number == windows.input and windows.read:
                by_window: Buffer = (*buffer, "window")
                of_window = TensorSpec(windows.read[-1], operator.input_specs[number].dtype).bytes
                makes.append((by_window, of_window))
                halos.append((size, by_window, buffer))
            elif operator.type in _PASSES_GRADIENT and upstream and size == arriving:
                self._timeline.shares[buffer] = upstream[0]
            else:
                makes.append((buffer, size))
            passed.append((number, buffer))
        # Where a kernel can write over its input, so can its gradient over the upstream one.
        over = writes_over(operator.type)
        label = f"gradient of {operator.name}"
        self._timeline.events.append(Event(label, tuple(needed), tuple(makes), over))
        for size, by_window, buffer in halos:
            self._timeline.events.append(Event(f"{label}/halo", (by_window,), ((buffer, size),)))
        for number, buffer in passed:
            self._arrive(operator, number, buffer)

    def _padded(
        self, operator: Operator, written: tuple[int, ...], upstream: list[Buffer]
    ) -> Buffer:
        """The gradient by all that a transposed convolution's windows write."""
        found: Buffer = (operator.name, "gradient", "written", self._call)
        size = TensorSpec(written, operator.outputs[0].dtype).bytes
        label = f"gradient of {operator.name}/written"
        self._timeline.events.append(Event(label, tuple(upstream), ((found, size),)))
        return found

    def _input_again(self, operator: Operator, number: int) -> Buffer:
        """What an operator reads as the backward pass has it: kept, or made again now."""
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
        found: Buffer = (tensor.operator, tensor.index, "again", self._call)
        if found not in self._made:
            read = tuple(self._input_again(operator, n) for n in range(len(operator.inputs)))
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
        copy = self._forward.input(operator, number)
        source = self._strategy.input_slot(operator, number).forward
        target = self._strategy.output_slot(tensor).forward
        return self._reshard_again(tensor, operator.input_specs[number], copy, source, target)

    def _reshard_again(
        self, tensor: TensorName, spec: TensorSpec, made: Buffer, source: Layout, target: Layout
    ) -> Buffer:
        copy: Buffer = (tensor.operator, tensor.index, target, "again", self._call)
        if copy not in self._made:
            self._made.add(copy)
            label = f"{tensor.operator}/reshard_again"
            self._forward.reshard(label, spec, made, source, copy, target)
        return copy

    def _copy(self, operator: Operator, number: int) -> _Copy:
        """The copy of a tensor that an operator reads."""
        slot = self._strategy.input_slot(operator, number)
        return self._copies.setdefault((operator.inputs[number], slot), _Copy())

    def _factor_bytes(self, copy: _Copy) -> int:
        """Of products that become one, all of whose sum is a weight's gradient; else 0."""
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
        """A gradient goes to its tensor's producer, where it is the last by this copy of it: with
        the others, added up."""
        copy = self._copy(operator, number)
        copy.readers.remove((operator, number))
        copy.buffers.append(buffer)
        if copy.readers:
            return
        if self._slices.issuperset(copy.buffers):
            self._complete(operator.inputs[number], *copy.buffers)
        else:
            self._come_back(operator, number, self._added_up(operator, number, copy))

    def _added_up(self, operator: Operator, number: int, copy: _Copy) -> Buffer:
        """What has come back by a copy, as one."""
        if len(copy.buffers) == 1:
            return copy.buffers[0]
        slot = self._strategy.input_slot(operator, number)
        size = self._forward.local(operator.input_specs[number], slot.forward)
        found: Buffer = (*copy.buffers[-1], "added up")
        read = tuple(copy.factors or copy.buffers)
        label = f"gradients of {operator.inputs[number]}"
        event = Event(label, read, ((found, size),), not copy.factors, copy.factor_bytes)
        self._timeline.events.append(event)
        return found

    def _come_back(self, operator: Operator, number: int, buffer: Buffer) -> None:
        """A gradient by a copy of a tensor is taken to where that is made."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        source = self._strategy.input_slot(operator, number).gradient
        target = self._strategy.output_slot(tensor).gradient
        stays = source == target or spec.dtype == "resource" or -1 in spec.shape
        if stays:
            self._complete(tensor, buffer)
            return
        arrived = _Arrived(tensor, spec, f"{operator.name}/gradient", buffer, source, target)
        if path_to_variable(self._strategy, tensor):
            self._bucket.append(arrived)
            self._bucket_bytes += self._forward.local(spec, source)
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
        self._forward.reshard(arrived.label, arrived.spec, arrived.buffer, *ends)
        return copy

    def _complete(self, tensor: TensorName, *buffers: Buffer) -> None:
        """Of one copy all is there; of the last one all of the tensor's."""
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
        self._tell(self._call, tensor, self._arrived[tensor][0])
