"""Runs of a model's step in which each rank has a whole batch of its own.

Some costs of a batch do not depend on its examples, such as the calls of operators and of Python.
Ranks that each run one batch of several pay them once; ranks that run a share of each batch pay
them for every batch. Predictions are those of one process. Metrics add up the changes of their
variables by all batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives import Group
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.runtime.dry_run import describe_own
from tensoropt.frontend.job.job import Job, Running, current
from tensoropt.frontend.keras_models.added_variables import added_variables
from tensoropt.frontend.session.executor_selection import running_for
from tensoropt.frontend.session.fetches import fetched_operators
from tensoropt.frontend.session.session import executor_of
from tensoropt.frontend.steps.parallel_step import ParallelStep
from tensoropt.frontend.steps.step_graph import Captured
from tensoropt.frontend.steps.traced_step import TracedStep
from tensoropt.frontend.steps.variable_values import bring_up_to_date
from tensoropt.graph.operator import VARIABLE_TYPES
from tensoropt.plan import Plan

__all__ = ["OwnBatches", "own_batch_bytes"]

Array = np.ndarray[Any, Any]


class OwnBatches:
    """Runs batches of a step in rounds: in a round, each rank runs one batch. All ranks make the
    same calls.

    Args:
        step: the step.
    """

    def __init__(self, step: ParallelStep) -> None:
        self._step = step
        self._job: Job | None = None
        self._asked: Any = None
        self._answer: tuple[TracedStep, tuple[Captured, ...]] | None = None
        self._before: list[Array] = []

    def trace(self, args: tuple[Any, ...], specs: tuple[Any, ...]) -> TracedStep | None:
        """Return the trace that runs batches in rounds; None if they must be run one by one.

        The step only adds to variables, all variables are whole on each rank, and the memory of a
        whole batch fits.

        Args:
            args: arguments with a batch; only their shapes matter.
            specs: see `ParallelStep.on_elements`.
        """
        traced, values = self._step.prepared(self._step.arguments(args, specs))
        shapes = {name: tuple(value.shape) for name, value in values.items()}
        if self._job is not current() or self._asked != (traced, shapes):
            self._job, self._asked = current(), (traced, shapes)
            self._answer = _answer(traced, shapes)
        return None if self._answer is None else self._answer[0]

    def run(
        self, args: tuple[Any, ...], specs: tuple[Any, ...] | None, is_first: bool, is_last: bool
    ) -> list[Any]:
        """Run a round.

        Args:
            args: arguments with this rank's batch, as shares with all rows.
            specs: see `ParallelStep.on_elements`.
            is_first: whether no round is before it. Variables have the same values on all ranks.
            is_last: whether no round is after it. Then they have the same values again.

        Returns:
            The outputs for the batch of each rank, by rank. A step that adds to variables returns
            sums, which are not complete: they are the first rank's for all batches.
        """
        if is_first and self.variables:
            self._before = self._values()
        ranks = current().group.size
        needed = 1 if self.variables else ranks
        outputs = self._step.run_own(self._step.arguments(args, specs), needed)
        if is_last and self.variables:
            self._add_up()
        return outputs * (ranks // needed)

    @property
    def variables(self) -> list[Any]:
        """The script's variables to which the step adds, if it runs batches in rounds."""
        return [] if self._answer is None else [each.variable for each in self._answer[1]]

    def _values(self) -> list[Array]:
        """The values of the step's sums on this rank."""
        bring_up_to_date(self.variables)
        return [np.asarray(variable.numpy()) for variable in self.variables]

    def _add_up(self) -> None:
        """Add what all ranks have added to the variables since the first round."""
        job = current()
        # Ranks wait for the others here, where they sleep.
        job.agreement.check("the sums of the batches of all ranks")
        pairs = zip(self._before, self._values(), strict=True)
        sums = _summed(job.group, [_exact(value) - _exact(before) for before, value in pairs])
        for variable, before, added in zip(self.variables, self._before, sums, strict=True):
            variable.assign((before + added).astype(before.dtype))


def _exact(value: Array) -> Array:
    """A value in a type in which sums of many batches are exact to its own digits."""
    is_floating = tf.as_dtype(value.dtype).is_floating
    return value.astype(np.float64) if is_floating else value


def _summed(group: Group, values: Sequence[Array]) -> list[Array]:
    """The sums of the values of all ranks, which are sent together."""
    sums: dict[int, Array] = {}
    for dtype in dict.fromkeys(value.dtype for value in values):
        places = [place for place, value in enumerate(values) if value.dtype == dtype]
        flat = np.concatenate([values[place].reshape(-1) for place in places])
        total = group.allgather(flat[np.newaxis]).sum(axis=0, dtype=dtype)
        ends = np.cumsum([values[place].size for place in places])
        for place, part in zip(places, np.split(total, ends[:-1]), strict=True):
            sums[place] = part.reshape(values[place].shape)
    return [sums[place] for place in range(len(values))]


def _answer(
    traced: TracedStep, shapes: dict[str, tuple[int, ...]]
) -> tuple[TracedStep, tuple[Captured, ...]] | None:
    """The trace and the variables that its runs add to; None if there are no rounds."""
    if traced.trains or traced.lookups.outputs:
        return None
    added = added_variables(traced)
    if added is None:
        return None
    roots = fetched_operators(traced.fetched, traced.operations)
    running = running_for(traced.graph, roots, shapes)
    if not running.executor.runs_own(traced.fetched, traced.operations, shapes):
        return None
    return (traced, added) if _fits(traced, running, roots, shapes) else None


def _fits(
    traced: TracedStep, running: Running, roots: Sequence[str], shapes: dict[str, tuple[int, ...]]
) -> bool:
    """Whether a rank has the memory for a whole batch. A run that is not planned has one anyway."""
    plan = running.forward.get(tuple(roots))
    if plan is None:
        return True
    held = _variable_bytes(plan)
    sums = held + plan.devices * max(0, plan.memory_bytes - held)
    return plan.fits(sums, None) and plan.fits(sums, own_batch_bytes(traced, plan, shapes))


def own_batch_bytes(traced: TracedStep, plan: Plan, shapes: dict[str, tuple[int, ...]]) -> int:
    """Predict the most memory of a rank that runs whole batches of a step by itself, in bytes.

    The program of such a run is emitted, and followed kernel by kernel. If it runs batches of any
    size, the peak is estimated: besides variables, a batch takes the number of ranks times what a
    share takes. All ranks call this.

    Args:
        traced: the step.
        plan: the plan in which each rank has a share of a batch.
        shapes: the shapes of fed values, by `fed_operator`.
    """
    with executor_of(traced.graph) as executor:
        program = executor.own_program(traced.fetched, traced.operations, shapes)
        described = describe_own(program, executor.world.mesh)
    if described is not None:
        return program_peak(described).bytes
    held = _variable_bytes(plan)
    return held + plan.devices * max(0, (plan.peak_bytes or plan.memory_bytes) - held)


def _variable_bytes(plan: Plan) -> int:
    return sum(each.memory_bytes for each in plan.operators if each.type in VARIABLE_TYPES)
