"""The forward pass of an estimated step: the buffers that operators read and make on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tensoropt.cost.peak.timeline import Buffer, Event, Timeline
from tensoropt.graph.backward_reads import VIEWS
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.resharding.windows import LocalWindows
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl import operator_type
from tensoropt.tensor_spec import TensorSpec

__all__ = ["ForwardEvents", "PlanSteps", "writes_over"]

PlanSteps = Callable[[Sequence[int], str, Layout, Layout], tuple[ReshardStep, ...]]
"""Plans a resharding from a tensor's shape and dtype, the source and the target layout."""

_CROSS_ENTROPIES = frozenset(
    {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}
)


class ForwardEvents:
    """Adds operators to a timeline in the order in which they run.

    Args:
        strategy: strategy of the step's graph.
        plan_steps: plans a resharding; None to count only the tensors before and after.

    Attributes:
        timeline: the events and buffers.
        resident: bytes of each variable, constant and placeholder, by name.
        done: names of the operators that have run.
    """

    def __init__(self, strategy: Strategy, plan_steps: PlanSteps | None) -> None:
        self._strategy = strategy
        self._graph: Graph = strategy.graph
        self._mesh: Mesh = strategy.mesh
        self._plan_steps = plan_steps
        self._made: set[Buffer] = set()
        self._windows: dict[str, LocalWindows | None] = {}
        self.timeline = Timeline()
        self.resident: dict[str, int] = {}
        self.done: set[str] = set()

    def run(self, operator: Operator) -> None:
        """Add an operator that is no gradient. The producers of its inputs have run."""
        self.done.add(operator.name)
        outputs = tuple(
            ((operator.name, number), self.local(spec, self.slot(operator, number).forward))
            for number, spec in enumerate(operator.outputs)
        )
        if operator.is_variable:
            size = self.local(operator.value_spec(0), self.slot(operator, 0).forward)
            self.resident[operator.name] = size
            return
        if operator.is_placeholder or operator.is_constant:
            self.resident[operator.name] = sum(size for _, size in outputs)
            return
        read = tuple(self.input(operator, number) for number in range(len(operator.inputs)))
        if operator.type in VIEWS:
            self.timeline.shares[outputs[0][0]] = read[0]
            return
        over = writes_over(operator.type)
        temporary = self._cross_entropy_bytes(operator)
        windows = self.windows(operator)
        if windows is not None:
            read = tuple(self.read_in_windows(operator, n, x) for n, x in enumerate(read))
        if windows is not None and windows.written is not None:
            written = TensorSpec(windows.written, operator.outputs[0].dtype).bytes
            by_windows: Buffer = (operator.name, "written")
            self.timeline.events.append(Event(operator.name, read, ((by_windows, written),)))
            read = (by_windows,)
        self.timeline.events.append(Event(operator.name, read, outputs, over, temporary))

    def windows(self, operator: Operator) -> LocalWindows | None:
        """Return the windows of an operator whose iteration space is split, None for others."""
        if operator.name not in self._windows:
            derivation = self._strategy.derivations[operator.name]
            splits = self._strategy.configurations[operator.name].splits
            windows = None
            if any(a and i.spelled_out for a, i in zip(splits, derivation.indices, strict=True)):
                windows = LocalWindows.of(
                    operator, derivation, [self._mesh.pieces(axes) for axes in splits]
                )
            self._windows[operator.name] = windows
        return self._windows[operator.name]

    def read_in_windows(
        self, operator: Operator, number: int, shard: Buffer, again: int | None = None
    ) -> Buffer:
        """Return the buffer that a kernel reads for an input: with halos if its space is split.

        Args:
            operator: the reader.
            number: number of the input.
            shard: buffer of the input's shard.
            again: number of the call of ``tf.gradients`` that reads it again; None in the forward
                pass.
        """
        windows = self.windows(operator)
        if windows is None or number != windows.input:
            return shard
        for number_of_step, shape in enumerate(windows.read):
            window: Buffer = (operator.name, "window", number_of_step, again)
            if window not in self._made:
                self._made.add(window)
                size = TensorSpec(shape, operator.input_specs[number].dtype).bytes
                self.timeline.events.append(
                    Event(f"{operator.name}/halo", (shard,), ((window, size),))
                )
            shard = window
        return shard

    def _cross_entropy_bytes(self, operator: Operator) -> int:
        """Return the temporary bytes of a cross entropy whose classes are split.

        These are exponentials and marked labels (`tensoropt.execution.rules.classes`).
        """
        if operator.type not in _CROSS_ENTROPIES:
            return 0
        layout = self._strategy.input_slot(operator, 0).forward
        return 2 * self.local(operator.input_specs[0], layout) if layout.dims[-1] else 0

    def input(self, operator: Operator, number: int) -> Buffer:
        """Return the buffer that an operator reads: the tensor at its producer, or a copy."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        source = self._strategy.output_slot(tensor).forward
        target = self._strategy.input_slot(operator, number).forward
        original: Buffer = (tensor.operator, tensor.index)
        if number in operator.mutates or spec.dtype == "resource" or -1 in spec.shape:
            return original
        if operator.type in SHAPE_TYPES:
            return original
        copy: Buffer = (tensor.operator, tensor.index, target)
        if source == target or tensor.operator not in self._graph:
            return original
        if copy not in self._made:
            self._made.add(copy)
            self.reshard(f"{tensor.operator}/reshard", spec, original, source, copy, target)
        return copy

    def reshard(
        self,
        label: str,
        spec: TensorSpec,
        original: Buffer,
        source: Layout,
        copy: Buffer,
        target: Layout,
    ) -> None:
        """Add the resharding of a tensor from one layout to another."""
        steps: Sequence[ReshardStep] = ()
        if self._plan_steps is not None:
            steps = self._plan_steps(spec.shape, spec.dtype, source, target)
        if not steps:
            self.timeline.events.append(
                Event(label, (original,), ((copy, self.local(spec, target)),))
            )
            return
        for number, step in enumerate(steps):
            after: Buffer = copy if number == len(steps) - 1 else (*copy, number)
            if _is_view(step, spec, self._mesh):
                self.timeline.shares[after] = original
                self.timeline.parts[after] = self.local(spec, step.target)
            else:
                over = step.kind == "allreduce"
                new_buffers = ((after, self.local(spec, step.target)),)
                self.timeline.events.append(Event(label, (original,), new_buffers, over))
            original = after

    def slot(self, operator: Operator, number: int) -> Slot:
        """Return the slot of an operator's output."""
        return self._strategy.output_slot(TensorName(operator.name, number))

    def local(self, spec: TensorSpec, layout: Layout) -> int:
        """Return the bytes of a tensor's shard, 0 if unknown."""
        if -1 in spec.shape or spec.dtype in ("resource", "variant", "string"):
            return 0
        return layout.local_elements(spec.shape, self._mesh) * spec.itemsize


def writes_over(op_type: str) -> bool:
    """Whether a kernel takes an input's memory for its first output."""
    return any(output == 0 for _, output in operator_type(op_type).overwrites)


def _is_view(step: ReshardStep, spec: TensorSpec, mesh: Mesh) -> bool:
    """Whether the result of a step shares its source's memory on the first device."""
    if step.kind == "mask":
        return True
    if step.kind != "slice" or step.to_dim is None:
        return False
    return prod(step.source.local_shape(spec.shape, mesh)[: step.to_dim]) == 1
