"""A step as a graph of stages: microbatches pass through all of them, forward and back.

As `tensoropt.transformations.microbatches.accumulated` has it, but every stage has the backward
pass of its own operators, and what it reads of another stage is transferred there: activations, the
gradients that come back, values of weights that several stages read and the sums of their
gradients, losses. Operators are in one total order, the schedule's, and so are a stage's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from tensoropt.errors import GraphError
from tensoropt.graph.operator import GradientTag, Graph, Operator, TensorName
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.copies import Alike
from tensoropt.transformations.staged.assignment import SHARED
from tensoropt.transformations.staged.backward import StagedBackward
from tensoropt.transformations.staged.beside import dependents
from tensoropt.transformations.staged.order import Pass, passes
from tensoropt.transformations.staged.schedule import Schedule
from tensoropt.transformations.staged.stage_graph import StagedStep, StageGraph

__all__ = ["staged", "staged_at_once"]


def staged(
    cut: BatchCut,
    stages: Mapping[str, int],
    roots: Collection[str],
    schedule: Schedule = "1f1b",
    alike: Alike = lambda *_: None,
    homes: Mapping[str, int] = MappingProxyType({}),
    recompute: Collection[int] = (),
) -> StagedStep:
    """The graph of a step that is computed by a pipeline.

    Args:
        cut: how the step falls into microbatches, without refusals.
        stages: of the operators that are computed by microbatch, but for what is fed.
        roots: names of the operators that are run or fetched.
        schedule: the order of passes.
        alike: as of `tensoropt.transformations.microbatches.accumulated.accumulated`.
        homes: stages of variables that are somewhere already.
        recompute: stages that keep what they receive, and run their forward pass again before the
            backward pass.

    Raises:
        GraphError: if a stage reads what a later one makes, or a table with a sparse gradient is
            looked up in another stage than its own.
    """
    return _Staging(cut, dict(stages), frozenset(roots), schedule, alike, homes, recompute).step()


def staged_at_once(graph: Graph, stages: Mapping[str, int], last: int) -> StagedStep:
    """A graph without gradients on several stages, in its own order: each operator runs once.

    Args:
        graph: operators in topological order.
        stages: of all of them.
        last: the last stage.
    """
    grown = StageGraph()
    for operator in graph:
        grown.stage = last if stages[operator.name] == SHARED else stages[operator.name]
        if operator.type == "NoOp":
            grown.add_everywhere(operator, last)
        else:
            grown.add(operator)
    return StagedStep(Graph(grown.operators), grown.stage_of, grown.runs, last)


class _Staging(StagedBackward):
    def step(self) -> StagedStep:
        """See `staged`."""
        graph, grown = self._whole, self._grown
        for number in self._cut.calls:
            self._check_lookups(number)
        for operator in graph:
            if operator.name in self._cut.before:
                self._in_stage_of(operator)
        grown.stage = self._last
        upstream = {number: self._upstream(number) for number in self._cut.calls}
        ends: dict[int, str] = {}
        for each in passes(self._schedule, self._last + 1, self._cut.microbatches):
            grown.stage = each.stage
            self._copies.gate = ends.get(each.stage, "")
            made = self._forward(each) if each.forward else self._back_through(each, upstream)
            name = f"{'forward' if each.forward else 'backward'}_{each.stage}_{each.microbatch}/end"
            gate = [self._copies.gate] if self._copies.gate else []
            self._step.new("NoOp", name, (), (), [*made, *gate])
            ends[each.stage] = name
        after = [
            operator
            for operator in graph
            if operator.name not in self._cut.before and operator.name not in self._cut.indices
        ]
        self._results(after)
        for operator in after:
            self._in_stage_of(operator)
        return StagedStep(Graph(grown.operators), grown.stage_of, grown.runs, self._last)

    def _in_stage_of(self, operator: Operator) -> None:
        """Add an operator that is computed once, where it is assigned."""
        stage = self._stage_of[operator.name]
        self._grown.stage = self._last if stage == SHARED else stage
        if operator.gradient is not None:
            self._gradient(operator, operator.gradient)
        elif operator.type == "NoOp":
            self._grown.add_everywhere(operator, self._last)
        else:
            self._grown.add(operator)

    def _forward(self, each: Pass) -> list[str]:
        cut = self._cut
        if each.stage == 0:
            for name in cut.indices:
                if self._whole[name].is_placeholder:
                    self._copies.copy(self._whole[name], each.microbatch)
        own = [name for name in cut.indices if self._stages.get(name) == each.stage]
        if self._schedule == "side_by_side":
            needing = dependents(
                own,
                lambda name: self._whole[name].predecessors,
                lambda name: self._stages.get(name, each.stage) != each.stage,
            )
            own.sort(key=needing.__contains__)
        return [self._copies.copy(self._whole[name], each.microbatch) for name in own]

    def _gradient(self, operator: Operator, tag: GradientTag) -> None:
        """A gradient of the script, in the stage of what it is by."""
        slices = self._slices_of.get(operator.name)
        stage = self._grown.stage
        ys = self._arriving(tag.call, stage)
        if slices:
            if self._is_near(tag, ys):
                raise GraphError(
                    "in a pipeline a table is looked up by microbatch, or for all of them. Got "
                    f"both for {tag.x.operator!r}."
                )
            self._joined(operator, slices)
            return
        call = self._cut.calls[tag.call]
        stops = self._local([*call.ends, *tag.stop_gradients], stage)
        self._step.gradient(
            operator.name, tag.call, ys, tag.x, operator.outputs[0], tag.part, stops, tag.after
        )

    def _local(self, tensors: Iterable[TensorName], stage: int) -> list[TensorName]:
        """Those tensors that are known in a stage, as it has them."""
        found = []
        for tensor in tensors:
            where = self._grown.stage_of.get(tensor.operator)
            received = TensorName(f"to_stage_{stage}/{tensor.operator}_{tensor.index}", 0)
            if where == stage:
                found.append(tensor)
            elif received.operator in self._grown.operators:
                found.append(received)
        return found

    def _arriving(self, number: int, stage: int) -> list[tuple[TensorName, TensorName | None]]:
        """What is known in a stage of the gradients of a call, after the last microbatch."""
        found: list[tuple[TensorName, TensorName | None]] = []
        for (of_call, boundary), total in self._sums.items():
            origin = self._copies.origins[boundary]
            if of_call != number or self._stage_of[origin.operator] != stage:
                continue
            here = self._grown.stage_of[boundary] == stage
            found.append((TensorName(boundary, 0) if here else origin, TensorName(total, 0)))
        tag = self._cut.calls[number].tag
        direct = self._reached(number)
        for y, grad_y in zip(tag.ys, tag.grad_ys, strict=True):
            if y.operator in direct and self._stage_of[y.operator] == stage:
                found.append((y, grad_y))
        if stage == self._last:
            return found
        for tensor in self._joining(number, stage):
            if (number, tensor) not in self._arrived:
                self._arrived[number, tensor] = self._from_last(number, tensor)
            found.append((tensor, self._arrived[number, tensor]))
        return found

    def _joining(self, number: int, stage: int) -> list[TensorName]:
        """A stage's tensors that are computed once, and whose gradients come from the last."""
        flowing, direct = self._cut.calls[number].differentiated, self._reached(number)
        found: dict[TensorName, None] = {}
        for name in direct:
            if self._stage_of[name] != self._last:
                continue
            for n in flowing.get(name, ()):
                tensor = self._whole[name].inputs[n]
                if tensor.operator in direct and self._stage_of[tensor.operator] == stage:
                    found[tensor] = None
        return sorted(found, key=str)

    def _from_last(self, number: int, tensor: TensorName) -> TensorName:
        """The gradient by what the last stage has received."""
        stage, self._grown.stage = self._grown.stage, self._last
        x = self._grown.here(tensor)
        call = self._cut.calls[number]
        ys = self._arriving(number, self._last)
        stops = self._local([*call.ends, *call.tag.stop_gradients], self._last)
        name = f"gradient_{number}/{x.operator}"
        made = self._step.gradient(
            name, number, ys, x, self._step.spec(x), stops=stops, after=call.tag.after
        )
        self._grown.stage = stage
        return made

    def _check_lookups(self, number: int) -> None:
        for name, inputs in self._cut.calls[number].differentiated.items():
            for n in inputs:
                tensor = self._whole[name].inputs[n]
                if name not in self._stages or tensor not in self._sparse[number]:
                    continue
                if self._stage_of[tensor.operator] != self._stages[name]:
                    raise GraphError(
                        "a table that has a sparse gradient is looked up in one stage. Got "
                        f"{tensor.operator!r} in stages {self._stage_of[tensor.operator]} and "
                        f"{self._stages[name]}."
                    )
