"""The graph of a step of several stages: whose each operator is, and what goes between stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensoropt.errors import GraphError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.transformations.microbatches.step_graph import StepGraph
from tensoropt.transformations.staged.assignment import SHARED, is_shared

__all__ = ["TRANSFER", "StageGraph", "StagedStep"]

TRANSFER = "StageTransfer"
"""What a stage receives of another; its input is what that has made."""


@dataclass(frozen=True, slots=True, eq=False)
class StagedStep:
    """A step of several stages.

    Attributes:
        graph: all operators, in the order in which they are run.
        stage_of: the stage of each, or `SHARED`.
        runs: per operator that only waits for others, what runs in its place, by stage.
        last: the last stage; it has what every stage may have and none reads.
    """

    graph: Graph
    stage_of: Mapping[str, int]
    runs: Mapping[str, tuple[str, ...]]
    last: int

    def of_stage(self, stage: int) -> Graph:
        """A stage's operators; what it receives reads nothing there."""
        read = {tensor.operator for operator in self.graph for tensor in operator.inputs}
        found: dict[str, Operator] = {}
        for operator in self.graph:
            own = self.stage_of[operator.name]
            if own == SHARED and stage == self.last and operator.name not in read:
                found[operator.name] = operator
            if own != stage:
                continue
            needed = [tensor.operator for tensor in operator.inputs]
            if operator.gradient is not None:
                needed.append(operator.gradient.x.operator)
            if operator.type == TRANSFER:
                operator, needed = replace(operator, inputs=(), input_specs=()), []
            for name in needed:
                if self.stage_of[name] == SHARED:
                    found.setdefault(name, self.graph[name])
            found[operator.name] = operator
        return Graph(found)


class StageGraph(StepGraph):
    """A graph that grows, one stage at a time: what is read of others is transferred.

    Attributes:
        stage: the current one, to which operators are added.
        stage_of: by operator, as of `StagedStep`.
        runs: as of `StagedStep`.
        homes: the stages of operators whose results over all microbatches are made there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stage = 0
        self.stage_of: dict[str, int] = {}
        self.runs: dict[str, tuple[str, ...]] = {}
        self.homes: Mapping[str, int] = {}

    def add(self, operator: Operator) -> TensorName:
        """Add an operator to the current stage, or what microbatches have made where they have."""
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
        """A tensor in the current stage."""
        if self.stage_of[tensor.operator] in (SHARED, self.stage):
            return tensor
        name = f"to_stage_{self.stage}/{tensor.operator}_{tensor.index}"
        if name not in self.operators:
            spec = self.operators[tensor.operator].value_spec(tensor.index)
            if -1 in spec.shape or spec.itemsize == 0:
                raise GraphError(
                    "what a stage of a pipeline gets of another is numbers of a known shape. Got "
                    f"{spec.dtype}{list(spec.shape)} of {str(tensor)!r}."
                )
            received = Operator(name, TRANSFER, (tensor,), (spec,), (spec,), synthetic=True)
            self.stage_of[name] = self.stage
            super().add(received)
        return TensorName(name, 0)

    def add_everywhere(self, operator: Operator, last: int) -> None:
        """Add what only waits for others to each of their stages."""
        runs = []
        for stage in range(last + 1):
            self.stage = stage
            name = f"stage_{stage}/{operator.name}"
            self.add(replace(operator, name=name, copy_of=operator.script_name))
            runs.append(name)
        self.runs[operator.name] = tuple(runs)

    def _controls(self, operator: Operator) -> tuple[str, ...]:
        """What an operator waits for in the current stage.

        Where it waits for one of another stage, it waits for what that needs of this stage: so a
        counter that is read for all stages is changed afterwards.
        """
        names = [n for each in operator.control_inputs for n in self.runs.get(each, (each,))]
        names = [name for name in names if name in self.operators]
        found = {name: None for name in names if self.stage_of[name] in (SHARED, self.stage)}
        waiting = [name for name in names if name not in found]
        if operator.type == "NoOp":
            return tuple(found)
        seen = set(waiting)
        while waiting:
            for name in self.operators[waiting.pop()].predecessors:
                if self.stage_of[name] == self.stage:
                    found[name] = None
                elif name not in seen:
                    seen.add(name)
                    waiting.append(name)
        return tuple(found)
