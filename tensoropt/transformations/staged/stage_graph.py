"""The graph of a step of several stages, with their operators and the transfers between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensoropt.errors import GraphError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.transformations.microbatches.step_graph import StepGraph
from tensoropt.transformations.staged.assignment import SHARED, is_shared

__all__ = ["TRANSFER", "StageGraph", "StagedStep"]

TRANSFER = "StageTransfer"
"""A tensor that a stage receives; the input is the tensor of the sending stage."""


@dataclass(frozen=True, slots=True, eq=False)
class StagedStep:
    """A step of several stages.

    Attributes:
        graph: all operators, in the order in which they run.
        stage_of: the stage of each operator, or `SHARED`.
        runs: for each operator that only groups others, the operators that replace it, by stage.
        last: the last stage; it also has shared operators that no stage reads.
    """

    graph: Graph
    stage_of: Mapping[str, int]
    runs: Mapping[str, tuple[str, ...]]
    last: int

    def of_stage(self, stage: int) -> Graph:
        """The graph of a stage's operators; transfers that it receives have no inputs there."""
        read = {tensor.operator for operator in self.graph for tensor in operator.inputs}
        operators: dict[str, Operator] = {}
        for operator in self.graph:
            operator_stage = self.stage_of[operator.name]
            if operator_stage == SHARED and stage == self.last and operator.name not in read:
                operators[operator.name] = operator
            if operator_stage != stage:
                continue
            needed = [tensor.operator for tensor in operator.inputs]
            if operator.gradient is not None:
                needed.append(operator.gradient.x.operator)
            if operator.type == TRANSFER:
                operator, needed = replace(operator, inputs=(), input_specs=()), []
            for name in needed:
                if self.stage_of[name] == SHARED:
                    operators.setdefault(name, self.graph[name])
            operators[operator.name] = operator
        return Graph(operators)


class StageGraph(StepGraph):
    """A graph to which operators of one stage at a time are added, with the transfers they need.

    Attributes:
        stage: the current stage, to which operators are added.
        stage_of: see `StagedStep`.
        runs: see `StagedStep`.
        homes: stages of operators whose results over all microbatches are computed there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stage = 0
        self.stage_of: dict[str, int] = {}
        self.runs: dict[str, tuple[str, ...]] = {}
        self.homes: Mapping[str, int] = {}

    def add(self, operator: Operator) -> TensorName:
        """Add an operator to the current stage, or to its home."""
        self.stage = self.homes.get(operator.name, self.stage)
        inputs = tuple(self.here(tensor) for tensor in operator.inputs)
        controls = self._controls(operator)
        tag = operator.gradient
        if tag is not None:
            grad_ys = tuple(grad and self.here(grad) for grad in tag.grad_ys)
            tag = replace(tag, grad_ys=grad_ys, after=controls)
        operator = replace(operator, inputs=inputs, control_inputs=controls, gradient=tag)
        self.stage_of[operator.name] = SHARED if is_shared(operator) else self.stage
        return super().add(operator)

    def here(self, tensor: TensorName) -> TensorName:
        """A tensor in the current stage: itself, or its transfer."""
        if self.stage_of[tensor.operator] in (SHARED, self.stage):
            return tensor
        name = f"to_stage_{self.stage}/{tensor.operator}_{tensor.index}"
        if name not in self.operators:
            spec = self.operators[tensor.operator].value_spec(tensor.index)
            if -1 in spec.shape or spec.itemsize == 0:
                raise GraphError(
                    "a stage of a pipeline receives numbers of a known shape. Got "
                    f"{spec.dtype}{list(spec.shape)} of {str(tensor)!r}."
                )
            received = Operator(name, TRANSFER, (tensor,), (spec,), (spec,), synthetic=True)
            self.stage_of[name] = self.stage
            super().add(received)
        return TensorName(name, 0)

    def add_everywhere(self, operator: Operator, last: int) -> None:
        """Add an operator that only groups others to each stage."""
        runs = []
        for stage in range(last + 1):
            self.stage = stage
            name = f"stage_{stage}/{operator.name}"
            self.add(replace(operator, name=name, copy_of=operator.script_name))
            runs.append(name)
        self.runs[operator.name] = tuple(runs)

    def _controls(self, operator: Operator) -> tuple[str, ...]:
        """The control inputs of an operator in the current stage.

        In place of an operator of another stage, it waits for the operators of this stage that the
        other one needs. For example, a counter that all stages read is changed after its reads.
        """
        names = [
            n for control in operator.control_inputs for n in self.runs.get(control, (control,))
        ]
        names = [name for name in names if name in self.operators]
        controls = {name: None for name in names if self.stage_of[name] in (SHARED, self.stage)}
        waiting = [name for name in names if name not in controls]
        if operator.type == "NoOp":
            return tuple(controls)
        seen = set(waiting)
        while waiting:
            for name in self.operators[waiting.pop()].predecessors:
                if self.stage_of[name] == self.stage:
                    controls[name] = None
                elif name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return tuple(controls)
