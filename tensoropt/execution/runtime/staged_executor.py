"""The executor of a pipeline: each variable is in one stage, and programs run on all of them.

A training step runs by microbatch, in the schedule's order. What has no gradients (initial values,
an evaluation) runs once, each operator in the stage of what it is of. Where each process emits one
stage, what scripts see is on every rank all the same: values come from the stage that has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import GraphError, RankMismatchError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.name_counters import level
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.runtime.program import Program
from tensoropt.execution.runtime.script_part import ScriptPart
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.stages.staged import StagedEmitter
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.configuration import fitted, input_slot
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.parallel.strategy import Strategy, derivation_under
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import assign_at_once, assign_forward
from tensoropt.transformations.staged.stage_graph import StagedStep
from tensoropt.transformations.staged.staged import staged, staged_at_once

__all__ = ["StagedExecutor"]


class StagedExecutor(Executor):
    """Runs fetches of a script's graph on a pipeline.

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
        self._stage = next(n for n, each in enumerate(pipeline.stages) if each.world.ranks)
        self.world = pipeline.stages[self._stage].world

    @property
    def stage(self) -> int | None:
        """See `Executor.stage`."""
        return None if self._pipeline.everyone is None else self._stage

    def program(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Program:
        """See `Executor.program`."""
        count = len(self._programs)
        program = super().program(tensors, operations, shapes)
        if len(self._programs) != count:
            self._level("the programs of stages")
        return program

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        """See `Executor.values`."""
        found = super().values()
        self._level("the reads of stages")
        return found

    def assign(self, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """See `Executor.assign`."""
        super().assign(values)
        self._level("the changes of stages")

    def check_replicas(self) -> None:
        """See `Executor.check_replicas`: what differs in one stage is an error on all ranks."""
        error = ""
        try:
            super().check_replicas()
        except RankMismatchError as found:
            error = str(found)
        said = self._agreement.gather("the check that replicas are equal", error)
        self._level("the reads of stages")
        first = next(filter(None, said), "")
        if first:
            raise RankMismatchError(first)

    def _drop_programs(self) -> None:
        super()._drop_programs()
        self._level("the variables of stages")

    def _level(self, what: str) -> None:
        """After stages have emitted what differs between them."""
        if self._pipeline.everyone is not None:
            level(self._agreement, what)

    def _fed(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is fed: of what is no batch the first rank's value, in all stages."""
        everyone = self._pipeline.everyone
        names = sorted(name for name in feeds if name not in self._batch_placeholders)
        if everyone is None or not names:
            return feeds
        values = [np.asarray(feeds[name], order="C") for name in names]
        shared = everyone.share(values, tuple(range(len(everyone.mesh.axes))))
        return {**feeds, **dict(zip(names, shared, strict=True))}

    def _shared(
        self, call: str, values: dict[str, Any], owners: Mapping[str, int]
    ) -> dict[str, Any]:
        """Values on every rank: those of each from the rank that owns them."""
        everyone = self._pipeline.everyone
        if everyone is None or not owners:
            return values
        rank = everyone.rank
        own = {name: np.asarray(values[name]) for name in owners if owners[name] == rank}
        said = self._agreement.gather(call, {name: _described(x) for name, x in own.items()})
        found: dict[str, Any] = {}
        for name, owner in owners.items():
            dtype, shape, texts = said[owner][name]
            if texts is not None:
                value = np.empty(len(texts), object)
                value[:] = [bytes.fromhex(text) for text in texts]
                value = value.reshape(shape)
            else:
                value = own.get(name, np.empty(shape, tf.as_dtype(dtype).as_numpy_dtype))
                value = np.asarray(everyone.group.broadcast(value, owner))
            found[name] = value if shape or call == "variables" else value[()]
        return found

    def _agree_on(self, call: str, records: Sequence[str]) -> None:
        self._agreement.check_parts(call, self._stage, records)

    def _home(self, variable: str) -> int:
        last = len(self._stages) - 1
        return self._homes.setdefault(variable, self._pipeline.stage_of.get(variable, last))

    def _emitter(
        self,
        part: ScriptPart,
        roots: Sequence[str],
    ) -> StagedEmitter:
        graph = part.graph
        strategies = [self.strategy(graph, stage) for stage in range(len(self._stages))]
        step = self._step(graph, roots, strategies)
        for operator in graph:
            if operator.is_variable:
                self._check_home(operator, step.stage_of[operator.name])
        emitter = StagedEmitter(
            self.script,
            step,
            self._stages,
            [strategy.configurations for strategy in strategies],
            self._batch_placeholders,
            self._variables,
            self._seed,
            self._target,
            part.unset,
            part.checked,
            self._pipeline.everyone,
            part.reads,
            _made_again(step, graph),
        )
        if self._agreement.compares:
            self._agreement.check("the order of a pipeline's step", emitter.lines())
        return emitter

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
            whole = strategy.configurations[copied.copy_of]
            derivation = derivation_under(copied, whole)
            return input_slot(derivation, fitted(whole, derivation, strategy.mesh), number)

        again = [n for n, stage in enumerate(self._pipeline.stages) if stage.recomputes]
        return staged(cut, stages, roots, self._pipeline.schedule, alike, homes, again)

    def _check_home(self, variable: Operator, stage: int) -> None:
        home = self._homes.setdefault(variable.name, stage)
        if home != stage:
            raise GraphError(
                "a variable is in one stage of a pipeline in all runs. Got "
                f"{variable.name!r} in stage {home} before, and changed with what is in stage "
                f"{stage} now."
            )


def _made_again(step: StagedStep, graph: Graph) -> frozenset[str]:
    """The script's operators whose copies keep what is planned for the backward pass."""
    if differentiates_gradients(graph):
        return frozenset()
    return frozenset(operator.copy_of for operator in step.graph if operator.copy_of)


def _described(value: np.ndarray[Any, Any]) -> tuple[str, list[int], list[str] | None]:
    """Type and shape of a value, and its elements where they are strings."""
    texts = None
    if value.dtype.kind in "OSU":
        texts = [tf.compat.as_bytes(text).hex() for text in value.reshape(-1)]
    return ("string" if texts is not None else value.dtype.name), list(value.shape), texts
