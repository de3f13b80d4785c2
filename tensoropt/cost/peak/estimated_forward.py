"""The forward pass of an estimated step: what operators read and make on one device."""

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
"""Plans a resharding of a tensor of a shape and dtype between two layouts."""

_CROSS_ENTROPIES = frozenset(
    {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}
)


class ForwardEvents:
    """Adds operators to a timeline, as they run forward.

    Args:
        strategy: of the step's graph.
        plan_steps: plans a resharding; None if only the tensors before and after count.

    Attributes:
        timeline: what is in memory when.
        resident: bytes of variables, constants and what is fed.
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
        self.resident = 0
        self.done: set[str] = set()

    def run(self, operator: Operator) -> None:
        """Add an operator that is no gradient, whose inputs' producers have run."""
        self.done.add(operator.name)
        outputs = tuple(
            ((operator.name, number), self.local(spec, self.slot(operator, number).forward))
            for number, spec in enumerate(operator.outputs)
        )
        if operator.is_variable:
            self.resident += self.local(operator.value_spec(0), self.slot(operator, 0).forward)
            return
        if operator.is_placeholder or operator.is_constant:
            self.resident += sum(size for _, size in outputs)
            return
        read = tuple(self.input(operator, number) for number in range(len(operator.inputs)))
        if operator.type in VIEWS:
            self.timeline.shares[outputs[0][0]] = read[0]
            return
        over = writes_over(operator.type)
        meanwhile = self._spelled_out(operator)
        windows = self.windows(operator)
        if windows is not None:
            read = tuple(self.read_in_windows(operator, n, x) for n, x in enumerate(read))
        if windows is not None and windows.written is not None:
            written = TensorSpec(windows.written, operator.outputs[0].dtype).bytes
            whole: Buffer = (operator.name, "written")
            self.timeline.events.append(Event(operator.name, read, ((whole, written),)))
            read = (whole,)
        self.timeline.events.append(Event(operator.name, read, outputs, over, meanwhile))

    def windows(self, operator: Operator) -> LocalWindows | None:
        """The windows of an operator whose space is split; None of others."""
        if operator.name not in self._windows:
            derivation = self._strategy.derivations[operator.name]
            splits = self._strategy.configurations[operator.name].splits
            found = None
            if any(a and i.spelled_out for a, i in zip(splits, derivation.indices, strict=True)):
                found = LocalWindows.of(
                    operator, derivation, [self._mesh.pieces(axes) for axes in splits]
                )
            self._windows[operator.name] = found
        return self._windows[operator.name]

    def read_in_windows(
        self, operator: Operator, number: int, shard: Buffer, again: int | None = None
    ) -> Buffer:
        """What a kernel reads of an input's shard: with halos, if its space is split.

        Args:
            operator: that reads.
            number: of the input.
            shard: where it is.
            again: the number of a call that makes what is read again; None forward.
        """
        windows = self.windows(operator)
        if windows is None or number != windows.input:
            return shard
        for place, shape in enumerate(windows.read):
            window: Buffer = (operator.name, "window", place, again)
            if window not in self._made:
                self._made.add(window)
                size = TensorSpec(shape, operator.input_specs[number].dtype).bytes
                self.timeline.events.append(
                    Event(f"{operator.name}/halo", (shard,), ((window, size),))
                )
            shard = window
        return shard

    def _spelled_out(self, operator: Operator) -> int:
        """What a cross entropy takes beside its outputs whose classes are split: exponentials and
        marked labels (`tensoropt.execution.rules.classes`)."""
        if operator.type not in _CROSS_ENTROPIES:
            return 0
        layout = self._strategy.input_slot(operator, 0).forward
        return 2 * self.local(operator.input_specs[0], layout) if layout.dims[-1] else 0

    def input(self, operator: Operator, number: int) -> Buffer:
        """The buffer that an operator reads: the tensor where it is made, or a resharded copy."""
        tensor, spec = operator.inputs[number], operator.input_specs[number]
        source = self._strategy.output_slot(tensor).forward
        target = self._strategy.input_slot(operator, number).forward
        made: Buffer = (tensor.operator, tensor.index)
        if number in operator.mutates or spec.dtype == "resource" or -1 in spec.shape:
            return made
        if operator.type in SHAPE_TYPES:
            return made
        copy: Buffer = (tensor.operator, tensor.index, target)
        if source == target or tensor.operator not in self._graph:
            return made
        if copy not in self._made:
            self._made.add(copy)
            self.reshard(f"{tensor.operator}/reshard", spec, made, source, copy, target)
        return copy

    def reshard(
        self,
        label: str,
        spec: TensorSpec,
        made: Buffer,
        source: Layout,
        copy: Buffer,
        target: Layout,
    ) -> None:
        """Add what takes a tensor from one layout to another."""
        steps: Sequence[ReshardStep] = ()
        if self._plan_steps is not None:
            steps = self._plan_steps(spec.shape, spec.dtype, source, target)
        if not steps:
            self.timeline.events.append(Event(label, (made,), ((copy, self.local(spec, target)),)))
            return
        for number, step in enumerate(steps):
            after: Buffer = copy if number == len(steps) - 1 else (*copy, number)
            if _is_view(step, spec, self._mesh):
                self.timeline.shares[after] = made
                self.timeline.parts[after] = self.local(spec, step.target)
            else:
                over = step.kind == "allreduce"
                made_of = ((after, self.local(spec, step.target)),)
                self.timeline.events.append(Event(label, (made,), made_of, over))
            made = after

    def slot(self, operator: Operator, number: int) -> Slot:
        """Of an operator's output."""
        return self._strategy.output_slot(TensorName(operator.name, number))

    def local(self, spec: TensorSpec, layout: Layout) -> int:
        """Bytes of a tensor's shard; 0 if they are not known."""
        if -1 in spec.shape or spec.dtype in ("resource", "variant", "string"):
            return 0
        return layout.local_elements(spec.shape, self._mesh) * spec.itemsize


def writes_over(op_type: str) -> bool:
    """Whether a kernel takes an input's memory for its first output."""
    return any(output == 0 for _, output in operator_type(op_type).overwrites)


def _is_view(step: ReshardStep, spec: TensorSpec, mesh: Mesh) -> bool:
    """Whether the first device makes no memory for a step: rows that it keeps, or all."""
    if step.kind == "mask":
        return True
    if step.kind != "slice" or step.to_dim is None:
        return False
    return prod(step.source.local_shape(spec.shape, mesh)[: step.to_dim]) == 1
