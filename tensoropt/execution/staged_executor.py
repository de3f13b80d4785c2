"""The executor of a pipeline: each variable is in one stage, and programs run on all of them.

A training step runs by microbatch, in the schedule's order. What has no gradients (initial values,
an evaluation) runs once, each operator in the stage of what it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.agreement import Agreement
from tensoropt.execution.executor import Executor
from tensoropt.execution.stage_ranks import Pipeline
from tensoropt.execution.staged import StagedEmitter
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.configuration import fitted, input_slot
from tensoropt.parallel.strategy import Strategy, derivation_of
from tensoropt.pipeline.microbatches.cut import cut_along_batch
from tensoropt.pipeline.staged.assignment import assign_at_once, assign_forward
from tensoropt.pipeline.staged.stage_graph import StagedStep
from tensoropt.pipeline.staged.staged import staged, staged_at_once

__all__ = ["StagedExecutor"]


class StagedExecutor(Executor):
    """Runs fetches of a script's graph on a pipeline, all of whose ranks are in this process.

    Args:
        script: the script's graph.
        pipeline: its stages.
        batch_placeholders: placeholders loaded data parallel.
        agreement: asks all ranks before each run.
        seed: the job's.
        arguments: further ones of `Executor`.
    """

    def __init__(
        self,
        script: tf.Graph,
        pipeline: Pipeline,
        batch_placeholders: frozenset[str],
        agreement: Agreement,
        seed: int,
        **arguments: Any,
    ) -> None:
        first, *others = pipeline.stages
        super().__init__(
            script,
            first.world,
            first.configurations,
            batch_placeholders,
            first.plan_steps,
            agreement,
            seed,
            others=others,
            **arguments,
        )
        self._pipeline = pipeline
        self._homes: dict[str, int] = {}

    def _home(self, variable: str) -> int:
        last = len(self._stages) - 1
        return self._homes.setdefault(variable, self._pipeline.stage_of.get(variable, last))

    def _emitter(
        self,
        graph: Graph,
        roots: Sequence[str],
        unset: frozenset[str],
        checked: frozenset[str],
    ) -> StagedEmitter:
        del checked  # in one process all ranks fail together
        strategies = [self._strategy(graph, stage) for stage in range(len(self._stages))]
        step = self._step(graph, roots, strategies)
        for operator in graph:
            if operator.is_variable:
                self._check_home(operator, step.stage_of[operator.name])
        return StagedEmitter(
            self.script,
            step,
            self._stages,
            [strategy.configurations for strategy in strategies],
            self._batch_placeholders,
            self._variables,
            self._seed,
            self._target,
            unset,
        )

    def _step(
        self, graph: Graph, roots: Sequence[str], strategies: Sequence[Strategy]
    ) -> StagedStep:
        planned, last = self._pipeline.stage_of, len(self._stages) - 1
        known = {**planned, **self._homes}
        homes = {op.name: known[op.name] for op in graph if op.is_variable and op.name in known}
        if not self._trains_on_a_batch(graph):
            return staged_at_once(graph, assign_at_once(graph, planned, homes, last), last)
        cut = cut_along_batch(graph, self._batch_placeholders, self._pipeline.microbatches)
        stages = assign_forward(cut, planned, last)

        def alike(copied: Operator, number: int) -> object:
            strategy = strategies[stages[copied.copy_of]]
            derivation = derivation_of(copied)
            whole = strategy.configurations[copied.copy_of]
            return input_slot(derivation, fitted(whole, derivation, strategy.mesh), number)

        return staged(cut, stages, roots, self._pipeline.schedule, alike, homes)

    def _check_home(self, variable: Operator, stage: int) -> None:
        home = self._homes.setdefault(variable.name, stage)
        if home != stage:
            raise GraphError(
                "a variable is in one stage of a pipeline in all runs. Got "
                f"{variable.name!r} in stage {home} before, and changed with what is in stage "
                f"{stage} now."
            )
