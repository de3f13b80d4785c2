"""Divide a graph into the stages of a pipeline, and the operators of each stage over its ranks.

A training step runs in microbatches, in the schedule's order. A graph without gradients (initial
values, an evaluation) runs once. Each variable is in the same stage in all programs, in the layout
in which the first program stored it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensoropt.errors import GraphError
from tensoropt.execution.lowering.microbatches import PinnedStrategy, in_microbatches
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.configuration import Configuration, fitted, input_slot
from tensoropt.parallel.following import follow_assigned
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.parallel.strategy import Strategy, derivation_under
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import assign_at_once, assign_forward
from tensoropt.transformations.staged.stage_graph import StagedStep
from tensoropt.transformations.staged.staged import staged, staged_at_once

__all__ = ["DividedStep", "StageStrategies"]


@dataclass(frozen=True, slots=True, eq=False)
class DividedStep:
    """The operators of a program, divided over stages and ranks.

    Attributes:
        step: all operators, with their stages.
        strategies: for each stage, the strategy of its operators.
    """

    step: StagedStep
    strategies: tuple[Strategy, ...]

    @classmethod
    def of_one(cls, strategy: Strategy) -> DividedStep:
        """All operators in one stage."""
        graph = strategy.graph
        return cls(StagedStep(graph, dict.fromkeys(graph.operators, 0), {}, 0), (strategy,))


class StageStrategies:
    """The strategies of a pipeline's stages, for every graph that the script runs.

    Args:
        pipeline: the stages.
        batch_placeholders: placeholders whose first dimension is the batch.
    """

    def __init__(self, pipeline: Pipeline, batch_placeholders: frozenset[str]) -> None:
        self._pipeline = pipeline
        self._batch_placeholders = batch_placeholders
        self._planned: list[dict[str, Configuration]] = [
            dict(stage.configurations) for stage in pipeline.stages
        ]
        self._homes: dict[str, int] = {}

    def planned(self, stage: int = 0) -> Mapping[str, Configuration]:
        """The configurations on one stage's mesh: those of plans, and those of variables."""
        return self._planned[stage]

    def add(
        self,
        configurations: Sequence[Mapping[str, Configuration]],
        batch_placeholders: frozenset[str],
    ) -> None:
        """Add configurations of further operators, for each stage, and further batches.

        Operators that have a configuration keep it.
        """
        self._batch_placeholders |= batch_placeholders
        for planned, added in zip(self._planned, configurations, strict=True):
            planned.update({name: added[name] for name in added if name not in planned})

    def strategy(self, graph: Graph, stage: int = 0) -> Strategy:
        """Return a strategy that divides all operators of a graph over the ranks of one stage."""
        planned, mesh = self._planned[stage], self._pipeline.stages[stage].world.mesh
        strategy = Strategy(graph, mesh, planned, self._batch_placeholders)
        follow_assigned(strategy, planned)
        for operator in graph:
            if operator.is_variable:
                planned.setdefault(operator.name, strategy.configurations[operator.name])
        return strategy

    def home(self, variable: str) -> int:
        """Return the stage of a variable. The first answer holds from then on."""
        planned = self._pipeline.stage_of.get(variable, self._pipeline.last)
        return self._homes.setdefault(variable, planned)

    def divide(self, graph: Graph, roots: Sequence[str]) -> DividedStep:
        """Divide a graph over the stages and their ranks.

        Args:
            graph: the part of the script's graph that the roots need.
            roots: names of the operators that are run or fetched.

        Raises:
            GraphError: if the graph does not divide into microbatches or stages.
        """
        if self._pipeline.last == 0:
            return DividedStep.of_one(self._in_one_stage(graph, roots))
        strategies = [self.strategy(graph, stage) for stage in range(len(self._planned))]
        step = self._in_stages(graph, roots, strategies)
        for operator in graph:
            if operator.is_variable:
                self._check_home(operator, step.stage_of[operator.name])
        keep_as_planned = _keep_as_planned(step, graph)
        pinned = (
            PinnedStrategy(
                step.of_stage(stage),
                strategy.mesh,
                strategy.configurations,
                self._batch_placeholders,
                keep_as_planned,
            )
            for stage, strategy in enumerate(strategies)
        )
        return DividedStep(step, tuple(pinned))

    def _in_one_stage(self, graph: Graph, roots: Sequence[str]) -> Strategy:
        strategy, pipeline = self.strategy(graph), self._pipeline
        microbatches = pipeline.microbatches
        if microbatches == 1 or not self._trains_on_a_batch(graph):
            return strategy
        batch = self._batch_placeholders
        return in_microbatches(strategy, roots, batch, microbatches, pipeline.made)

    def _in_stages(
        self, graph: Graph, roots: Sequence[str], strategies: Sequence[Strategy]
    ) -> StagedStep:
        pipeline = self._pipeline
        planned, last = pipeline.stage_of, pipeline.last
        stage_of = {**planned, **self._homes}
        variables = [op.name for op in graph if op.is_variable]
        homes = {name: stage_of[name] for name in variables if name in stage_of}
        if not self._trains_on_a_batch(graph):
            return staged_at_once(graph, assign_at_once(graph, planned, homes, last), last)
        batch = self._batch_placeholders
        cut = cut_along_batch(graph, batch, pipeline.microbatches, pipeline.made)
        stages = assign_forward(cut, planned, last)

        def slot(copied: Operator, number: int) -> object:
            strategy = strategies[stages[copied.copy_of]]
            whole = strategy.configurations[copied.copy_of]
            derivation = derivation_under(copied, whole)
            return input_slot(derivation, fitted(whole, derivation, strategy.mesh), number)

        recompute = [n for n, stage in enumerate(pipeline.stages) if stage.recomputes]
        return staged(cut, stages, roots, pipeline.schedule, slot, homes, recompute)

    def _trains_on_a_batch(self, graph: Graph) -> bool:
        """Whether a graph computes gradients from a batch."""
        fed = any(op.name in self._batch_placeholders for op in graph)
        return fed and any(op.gradient is not None for op in graph)

    def _check_home(self, variable: Operator, stage: int) -> None:
        home = self._homes.setdefault(variable.name, stage)
        if home != stage:
            raise GraphError(
                "a variable is in the same stage of a pipeline in all runs. Got "
                f"{variable.name!r} in stage {home} in earlier runs, and in a run that changes it "
                f"together with operators of stage {stage}."
            )


def _keep_as_planned(step: StagedStep, graph: Graph) -> frozenset[str]:
    """The script's operators whose copies keep only the tensors that the plan says."""
    if differentiates_gradients(graph):
        return frozenset()
    return frozenset(operator.copy_of for operator in step.graph if operator.copy_of)
