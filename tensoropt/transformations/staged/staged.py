"""A step as a graph of stages: microbatches pass through all of them, forward and back.

Microbatches are made as in `tensoropt.transformations.microbatches.accumulated`. Every stage has
the backward pass of its own operators. Tensors that it reads of other stages are transferred:
activations, the gradients that come back, values of weights that several stages read and the sums
of their gradients, and losses. Operators are in one total order, which is the schedule's order in
each stage.
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
from tensoropt.transformations.staged.order_of_passes import Pass, Schedule, passes
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
    """The graph of a step that a pipeline computes.

    Args:
        cut: the division of the step into microbatches, without refusals.
        stages: stages of the operators in microbatches, except fed placeholders.
        roots: names of the operators that are run or fetched.
        schedule: the order of passes.
        alike: see `tensoropt.transformations.microbatches.copies.Alike`.
        homes: stages of variables that are in a stage already.
        recompute: stages that keep only received tensors, and run their forward pass again before
            the backward pass.

    Raises:
        GraphError: if a stage reads a tensor of a later one, or looks up rows in a table of another
            stage that has a sparse gradient.
    """
    return _StagedBuilder(
        cut, dict(stages), frozenset(roots), schedule, alike, homes, recompute
    ).step()


def staged_at_once(graph: Graph, stages: Mapping[str, int], last: int) -> StagedStep:
    """A graph without gradients on several stages; each operator runs once, in the given order.

    Args:
        graph: operators in topological order.
        stages: the stage of each.
        last: the last stage.
    """
    stage_graph = StageGraph()
    for operator in graph:
        stage_graph.stage = last if stages[operator.name] == SHARED else stages[operator.name]
        if operator.type == "NoOp":
            stage_graph.add_everywhere(operator, last)
        else:
            stage_graph.add(operator)
    return StagedStep(Graph(stage_graph.operators), stage_graph.stage_of, stage_graph.runs, last)


class _StagedBuilder(StagedBackward):
    """Builds the graph of `staged`."""

    def step(self) -> StagedStep:
        """The step; see `staged`."""
        graph, stage_graph = self._whole, self._stage_graph
        for number in self._cut.calls:
            self._check_lookups(number)
        for operator in graph:
            if operator.name in self._cut.before:
                self._in_stage_of(operator)
        stage_graph.stage = self._last
        upstream = {number: self._upstream(number) for number in self._cut.calls}
        ends: dict[int, str] = {}
        for stage_pass in passes(self._schedule, self._last + 1, self._cut.made):
            stage_graph.stage = stage_pass.stage
            self._copies.gate = ends.get(stage_pass.stage, "")
            added = (
                self._forward(stage_pass)
                if stage_pass.forward
                else self._back_through(stage_pass, upstream)
            )
            direction = "forward" if stage_pass.forward else "backward"
            name = f"{direction}_{stage_pass.stage}_{stage_pass.microbatch}/end"
            gate = [self._copies.gate] if self._copies.gate else []
            self._step.new("NoOp", name, (), (), [*added, *gate])
            ends[stage_pass.stage] = name
        after = [
            operator
            for operator in graph
            if operator.name not in self._cut.before and operator.name not in self._cut.indices
        ]
        self._results(after)
        for operator in after:
            self._in_stage_of(operator)
        return StagedStep(
            Graph(stage_graph.operators), stage_graph.stage_of, stage_graph.runs, self._last
        )

    def _in_stage_of(self, operator: Operator) -> None:
        """Add an operator that is computed once to its assigned stage."""
        stage = self._stage_of[operator.name]
        self._stage_graph.stage = self._last if stage == SHARED else stage
        if operator.gradient is not None:
            self._gradient(operator, operator.gradient)
        elif operator.type == "NoOp":
            self._stage_graph.add_everywhere(operator, self._last)
        else:
            self._stage_graph.add(operator)

    def _forward(self, stage_pass: Pass) -> list[str]:
        cut = self._cut
        if stage_pass.stage == 0:
            for name in cut.indices:
                if self._whole[name].is_placeholder:
                    self._copies.copy(self._whole[name], stage_pass.microbatch)
        names = [name for name in cut.indices if self._stages.get(name) == stage_pass.stage]
        if self._schedule == "side_by_side":
            needing = dependents(
                names,
                lambda name: self._whole[name].predecessors,
                lambda name: self._stages.get(name, stage_pass.stage) != stage_pass.stage,
            )
            names.sort(key=needing.__contains__)
        return [self._copies.copy(self._whole[name], stage_pass.microbatch) for name in names]

    def _gradient(self, operator: Operator, tag: GradientTag) -> None:
        """Add a gradient of the script, in the stage of the tensor that it differentiates by."""
        slices = self._slices_of.get(operator.name)
        stage = self._stage_graph.stage
        ys = self._arriving(tag.call, stage)
        if slices:
            if self._is_near(tag, ys):
                raise GraphError(
                    "in a pipeline rows of a table are looked up in microbatches, or once. Got "
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
        """The copies in a stage of some tensors; tensors that it does not have are left out."""
        local = []
        for tensor in tensors:
            where = self._stage_graph.stage_of.get(tensor.operator)
            received = TensorName(f"to_stage_{stage}/{tensor.operator}_{tensor.index}", 0)
            if where == stage:
                local.append(tensor)
            elif received.operator in self._stage_graph.operators:
                local.append(received)
        return local

    def _arriving(self, number: int, stage: int) -> list[tuple[TensorName, TensorName | None]]:
        """The tensors of a stage, with the gradients of a call that arrive at them in the end."""
        arriving: list[tuple[TensorName, TensorName | None]] = []
        for (of_call, boundary), total in self._sums.items():
            origin = self._copies.origins[boundary]
            if of_call != number or self._stage_of[origin.operator] != stage:
                continue
            here = self._stage_graph.stage_of[boundary] == stage
            arriving.append((TensorName(boundary, 0) if here else origin, TensorName(total, 0)))
        tag = self._cut.calls[number].tag
        direct = self._reached(number)
        for y, grad_y in zip(tag.ys, tag.grad_ys, strict=True):
            if y.operator in direct and self._stage_of[y.operator] == stage:
                arriving.append((y, grad_y))
        if stage == self._last:
            return arriving
        for tensor in self._joining(number, stage):
            if (number, tensor) not in self._arrived:
                self._arrived[number, tensor] = self._from_last(number, tensor)
            arriving.append((tensor, self._arrived[number, tensor]))
        return arriving

    def _joining(self, number: int, stage: int) -> list[TensorName]:
        """The tensors of a stage, outside of microbatches, whose gradients the last stage makes."""
        flowing, direct = self._cut.calls[number].differentiated, self._reached(number)
        joining: dict[TensorName, None] = {}
        for name in direct:
            if self._stage_of[name] != self._last:
                continue
            for n in flowing.get(name, ()):
                tensor = self._whole[name].inputs[n]
                if tensor.operator in direct and self._stage_of[tensor.operator] == stage:
                    joining[tensor] = None
        return sorted(joining, key=str)

    def _from_last(self, number: int, tensor: TensorName) -> TensorName:
        """Add the gradient, in the last stage, by a tensor that this stage has received."""
        stage, self._stage_graph.stage = self._stage_graph.stage, self._last
        x = self._stage_graph.here(tensor)
        call = self._cut.calls[number]
        ys = self._arriving(number, self._last)
        stops = self._local([*call.ends, *call.tag.stop_gradients], self._last)
        name = f"gradient_{number}/{x.operator}"
        gradient = self._step.gradient(
            name, number, ys, x, self._step.spec(x), stops=stops, after=call.tag.after
        )
        self._stage_graph.stage = stage
        return gradient

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
