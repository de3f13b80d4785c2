"""The backward passes of stages: the gradients that a stage computes for a microbatch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tensoropt.graph.operator import GradientTag, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.accumulated import Accumulation
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.copies import Alike, Copies
from tensoropt.transformations.microbatches.parts import scale
from tensoropt.transformations.microbatches.step_graph import SUM, StepGraph, named
from tensoropt.transformations.staged.assignment import assign
from tensoropt.transformations.staged.beside import DependentPart
from tensoropt.transformations.staged.order_of_passes import Pass, Schedule
from tensoropt.transformations.staged.stage_graph import StageGraph

__all__ = ["StagedBackward"]


class _StageCopies(Copies):
    """Copies of several stages. A copy is a first one of its pass if it needs no other copy of its
    stage."""

    stages: Mapping[str, int]

    def is_first(self, operator: Operator, needed: Collection[str]) -> bool:
        """See `Copies.is_first`."""
        stage = self.stages[operator.name]
        return all(self.stages.get(name) != stage for name in needed)


@dataclass(frozen=True, slots=True)
class _Call:
    """Gradients of one stage and microbatch that are computed together.

    Attributes:
        number: number of the script's call of ``tf.gradients``.
        stage_pass: the pass.
        ys: differentiated tensors, with the gradients that arrive at them.
        arrived: the received copy of each tensor of another stage.
        boundaries: boundaries of weights.
        lookups: the script's gradients by tables, with their tags.
        stops: tensors at which gradients end.
        after: operators that the gradients wait for.
        call_number: number of this call in the graph of the step.
        place: a part of names, which differs if two calls have gradients by the same weight.
    """

    number: int
    stage_pass: Pass
    ys: list[tuple[TensorName, TensorName | None]]
    arrived: Mapping[TensorName, TensorName]
    boundaries: list[str]
    lookups: list[tuple[Operator, GradientTag]]
    stops: list[TensorName]
    after: list[str]
    call_number: int
    place: str = ""


class StagedBackward(Accumulation):
    """The graph of a step of stages, with its backward passes.

    Args:
        cut, stages, roots, schedule, alike, homes, recompute: arguments of
            `tensoropt.transformations.staged.staged.staged`.
    """

    def __init__(
        self,
        cut: BatchCut,
        stages: dict[str, int],
        roots: frozenset[str],
        schedule: Schedule,
        alike: Alike,
        homes: Mapping[str, int],
        recompute: Collection[int],
    ) -> None:
        self._recompute = frozenset(recompute)
        self._again: dict[str, str] = {}
        self._stages = stages
        self._last = max([*stages.values(), *homes.values()])
        self._schedule = schedule
        self._stage_graph = StageGraph()
        self._stage_graph.homes = {n: s for n, s in stages.items() if n not in cut.before}
        super().__init__(
            cut, roots, lambda copied, number: (self._stage_graph.stage, alike(copied, number))
        )
        self._stage_of = assign(cut, stages, homes)
        self._back: dict[tuple[int, int, int, TensorName], TensorName] = {}
        self._sent = {number: self._crossing(number) for number in cut.calls}
        self._arrived: dict[tuple[int, TensorName], TensorName] = {}

    def _empty(self) -> StepGraph:
        return self._stage_graph

    def _copier(self, alike: Alike) -> Copies:
        copies = _StageCopies(self._cut, self._step, alike)
        copies.stages = self._stages
        return copies

    def _crossing(self, number: int) -> dict[TensorName, list[int]]:
        """Tensors of microbatches, with the later stages from which gradients flow back to them."""
        crossing: dict[TensorName, list[int]] = {}
        for name, inputs in self._cut.calls[number].differentiated.items():
            if name not in self._stages:
                continue
            stage = self._stages[name]
            for n in inputs:
                tensor = self._whole[name].inputs[n]
                there = self._stages.get(tensor.operator, stage)
                if there != stage and stage not in crossing.setdefault(tensor, []):
                    crossing[tensor].append(stage)
        return crossing

    def _back_through(
        self, stage_pass: Pass, upstream: dict[int, dict[TensorName, TensorName]]
    ) -> list[str]:
        added: list[str] = []
        if stage_pass.stage in self._recompute:
            self._run_again(stage_pass)
        for number in self._cut.calls:
            added += self._backward_of(stage_pass, number, upstream[number])
        return added

    def _run_again(self, stage_pass: Pass) -> None:
        """Add a microbatch's forward pass again, after gradients have arrived at its stage."""
        _, stage, microbatch = stage_pass
        after = [self._copies.gate] if self._copies.gate else []
        for number in self._cut.calls:
            for tensor, stages in self._sent[number].items():
                for there in stages if self._stages[tensor.operator] == stage else ():
                    back = self._back.get((number, microbatch, there, tensor))
                    if back is not None:
                        after.append(self._stage_graph.here(back).operator)
        names = [named(n, microbatch) for n in self._cut.indices if self._stages.get(n) == stage]
        self._again |= forward_again(self._stage_graph, names, list(dict.fromkeys(after)))

    def _backward_of(
        self, stage_pass: Pass, number: int, upstream: dict[TensorName, TensorName]
    ) -> list[str]:
        """Add the gradients of one stage, microbatch and call."""
        _, stage, microbatch = stage_pass
        call, cut = self._cut.calls[number], self._cut
        ys: list[tuple[TensorName, TensorName | None]] = []
        for end in call.ends:
            if self._stages.get(end.operator, stage) != stage:
                continue
            dim, factor = cut.dims.get(end), scale(cut, end)
            arriving = upstream[end]
            if dim is not None or factor != 1:
                name = f"stage_{stage}/{named(arriving.operator, microbatch)}"
                arriving = self._copies.part(name, arriving, dim, microbatch, factor, None)
            ys.append((self._backward_input(end, microbatch), arriving))
        for tensor, stages in self._sent[number].items():
            if self._stages[tensor.operator] != stage:
                continue
            for there in stages:
                back = self._back.get((number, microbatch, there, tensor))
                if back is not None:
                    ys.append((self._backward_input(tensor, microbatch), back))
        if not ys:
            return []
        received = [t for t, stages in self._sent[number].items() if stage in stages]
        arrived = {t: self._stage_graph.here(self._copy_of(t, microbatch)) for t in received}
        boundaries = [
            name
            for name, calls in self._copies.read_in.items()
            if number in calls and self._stage_graph.stage_of[name] == stage
        ]
        lookups = [
            (operator, tag)
            for operator in self._looked_up[number]
            if (tag := operator.gradient) and self._stage_of[tag.x.operator] == stage
        ]
        stops = [TensorName(name, 0) for name in boundaries] + list(arrived.values())
        stops += [
            self._backward_input(t, microbatch)
            for t in call.tag.stop_gradients
            if self._stages.get(t.operator) == stage
        ]
        after = [self._copies.gate, *(named(n, microbatch) for n in call.tag.after)]
        call_number = self._new_call()
        whole = _Call(
            number, stage_pass, ys, arrived, boundaries, lookups, stops, after, call_number
        )
        if self._schedule == "side_by_side" and arrived:
            return self._dependent_first(whole)
        return self._differentiated(whole)

    def _dependent_first(self, whole: _Call) -> list[str]:
        """Add gradients in two groups: of operators that depend on other stages, then of the rest.

        The second group waits for the first, whose gradients are sent to the other stages.
        """
        graph, (_, stage, microbatch) = self._stage_graph.operators, whole.stage_pass
        flows = self._cut.calls[whole.number].differentiated
        forward = {
            self._backward_input(TensorName(name, 0), microbatch).operator: flows.get(name, ())
            for name in self._cut.indices
            if self._stages.get(name) == stage
        }
        part = DependentPart.of(graph, forward, {x.operator for x in whole.arrived.values()})
        tables = {tag.x.operator for _, tag in whole.lookups}
        if not part.joints or tables & part.reads & part.independent_reads:
            return self._differentiated(whole)
        stops = [*whole.stops, *part.joints]
        first = replace(
            whole,
            ys=[pair for pair in whole.ys if pair[0].operator in part.operators],
            boundaries=[name for name in whole.boundaries if name in part.reads],
            lookups=[pair for pair in whole.lookups if pair[1].x.operator in part.reads],
            stops=stops,
        )
        added = self._differentiated(first)
        joined = [(joint, self._joint_gradient(first, joint)) for joint in part.joints]
        second = replace(
            whole,
            ys=[*(pair for pair in whole.ys if pair not in first.ys), *joined],
            arrived={},
            boundaries=[name for name in whole.boundaries if name in part.independent_reads],
            lookups=[
                pair for pair in whole.lookups if pair[1].x.operator in part.independent_reads
            ],
            after=[*whole.after, *added],
            call_number=self._new_call(),
            place="beside/",
        )
        return added + self._differentiated(second)

    def _joint_gradient(self, call: _Call, joint: TensorName) -> TensorName:
        """Add the gradient by a tensor that the independent part of the stage computes."""
        name = f"stage_{call.stage_pass.stage}/{joint.operator}_{joint.index}"
        name = f"{name}/gradient_{call.number}"
        spec, stops = self._step.spec(joint), call.stops
        return self._step.gradient(
            name, call.call_number, call.ys, joint, spec, stops=stops, after=call.after
        )

    def _new_call(self) -> int:
        self._next_call += 1
        return self._next_call - 1

    def _differentiated(self, call: _Call) -> list[str]:
        """Add the operators of a call's gradients, and of their sums with those of other calls."""
        _, stage, microbatch = call.stage_pass
        step, number, added = self._step, call.number, list[str]()

        def gradient(name: str, x: TensorName, spec: TensorSpec, part: str = "dense") -> TensorName:
            return step.gradient(
                name, call.call_number, call.ys, x, spec, part, call.stops, call.after
            )

        for tensor, x in call.arrived.items():
            name = f"gradient_{number}/{tensor.operator}_{tensor.index}"
            result = gradient(f"stage_{stage}/{named(name, microbatch)}", x, step.spec(x))
            self._back[number, microbatch, stage, tensor] = result
            added.append(result.operator)
        for boundary in call.boundaries:
            x = TensorName(boundary, 0)
            name = named(f"gradient_{number}/{call.place}{boundary}", microbatch)
            result = gradient(name, x, step.spec(x))
            if (number, boundary) in self._sums:
                before = TensorName(self._sums[number, boundary], 0)
                name = named(f"sum_{number}/{call.place}{boundary}", microbatch)
                result = step.new(SUM, name, [before, result], [step.spec(x)], boundary=boundary)
            self._sums[number, boundary] = result.operator
            added.append(result.operator)
        for operator, tag in call.lookups:
            name = named(operator.name, microbatch)
            rows = operator.outputs[0].shape[:1]
            count = rows[0] // self._cut.microbatches if rows and rows[0] > 0 else -1
            spec = TensorSpec((count, *operator.outputs[0].shape[1:]), operator.outputs[0].dtype)
            gradient(name, tag.x, spec, tag.part)
            self._slices_of.setdefault(operator.name, []).append(name)
            added.append(name)
        return added

    def _copy_of(self, tensor: TensorName, microbatch: int) -> TensorName:
        return TensorName(named(tensor.operator, microbatch), tensor.index)

    def _backward_input(self, tensor: TensorName, microbatch: int) -> TensorName:
        """The tensor that a stage's backward pass reads: a copy, or its recomputed value."""
        copy = self._copy_of(tensor, microbatch)
        return TensorName(self._again.get(copy.operator, copy.operator), copy.index)


def forward_again(step: StageGraph, names: Iterable[str], after: Sequence[str]) -> dict[str, str]:
    """Add a stage's operators of a microbatch to the graph again, for its backward pass.

    Random numbers follow from the microbatch, so the values are the same. Operators that change a
    variable are left out.

    Args:
        step: the graph; the stage is its current one.
        names: names of the operators, in topological order.
        after: control inputs of the operators that read no other operator of the pass.

    Returns:
        The operators' new names.
    """
    renamed: dict[str, str] = {}
    for name in names:
        operator = step.operators[name]
        if operator.mutates:
            continue
        read = [TensorName(renamed.get(t.operator, t.operator), t.index) for t in operator.inputs]
        inputs = tuple(read)
        controls = tuple(after) if inputs == operator.inputs else ()
        renamed[name] = f"again/{name}"
        step.add(replace(operator, name=renamed[name], inputs=inputs, control_inputs=controls))
    return renamed
