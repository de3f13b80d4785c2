"""``parallelize``: a training step of eager TensorFlow, planned and run on all ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError, PlanError, StateError
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.world.shares import RowsTable
from tensoropt.frontend.inputs.step_arguments import Arguments
from tensoropt.frontend.job.job import Job, Running, current, is_initialized, started
from tensoropt.frontend.job.plan_executor import close
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.frontend.session.executor_selection import (
    needs_gradient,
    running_for,
    say,
    switch_to,
)
from tensoropt.frontend.session.fetches import fetched_operators
from tensoropt.frontend.session.session import rows_of_run, run_named
from tensoropt.frontend.session.step_draws import draws_of_new_trace
from tensoropt.frontend.steps.epoch_loops import EpochLoops
from tensoropt.frontend.steps.recorded_tape import GradientInLoopError
from tensoropt.frontend.steps.step_graph import StepGraph
from tensoropt.frontend.steps.traced_step import TracedStep
from tensoropt.frontend.steps.traces import Traces
from tensoropt.frontend.steps.variable_values import VariableValues
from tensoropt.plan import Plan
from tensoropt.planner.options.planning_options import PlanningOptions

__all__ = ["ParallelStep", "checked_options", "parallelize"]

_FROM_THE_CALL = frozenset({"feed_dict", "fetches", "shapes"})


def parallelize(step: Callable[..., Any], **options: Any) -> ParallelStep:
    """A training step that runs on all ranks by a plan; see `tensoropt.parallelize`.

    Raises:
        StateError, OptionError: as `tensoropt.parallelize` does.
    """
    if not callable(step) or hasattr(step, "compile"):
        raise OptionError(
            "a step is a function that computes gradients by a tf.GradientTape and applies them. "
            f"Got {type(step).__name__}; pass a function, or a model of keras or tf_keras."
        )
    return ParallelStep(step, checked_options(options))


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options before there is a step; return them with the plan of a file in its place.

    Raises:
        StateError: in graph mode.
        OptionError: for an unknown option, an option that follows from the call, an option beside a
            plan, or an invalid value.
        PlanError: for a file that is no plan.
    """
    if not tf.executing_eagerly():
        raise StateError(
            "a process builds a graph, or runs steps eagerly. Got parallelize in graph mode, which "
            "names of the graph API turn on, such as tensoropt.placeholder; import TensorFlow's "
            "names from tensorflow, or train in a tensoropt.Session."
        )
    for name in _FROM_THE_CALL & options.keys():
        raise OptionError(f"{name} follows from the call of a step. Got {name}=...; drop it.")
    known = {"plan", *(declared.name for declared in fields(PlanningOptions))}
    for name in options.keys() - known:
        raise OptionError.one_of("an option of parallelize", name, sorted(known - _FROM_THE_CALL))
    further = sorted(options.keys() - {"plan"})
    if options.get("plan") is not None and further:
        raise OptionError(
            f"a plan says how a step runs. Got plan=... with {', '.join(further)}; leave these "
            "out, or let a strategy be found."
        )
    if options.get("option") == "profiling":
        raise OptionError(
            "a step runs by a plan. Got option='profiling', which makes none; run tensoropt "
            "profiling, or choose mini_time, mini_parallelism or mini_cost."
        )
    PlanningOptions(**{name: value for name, value in options.items() if name != "plan"})
    plan = options.get("plan")
    return {**options, "plan": plan if plan is None or isinstance(plan, Plan) else Plan.load(plan)}


class ParallelStep:
    """A training step that runs on all ranks; see `parallelize`.

    Args:
        step: the function.
        options: `checked_options`.
        count: returns the number of steps of the job; None if it is not known.

    Attributes:
        running: the graph of the last call that needed a plan; None before.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        options: Mapping[str, Any],
        count: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._traces = Traces(step)
        self._options = dict(options)
        self._count = count
        self._given: Plan | None = self._options.pop("plan", None)
        self._draws: dict[TracedStep, Draws] = {}
        self._planned: set[TracedStep] = set()
        self._values = VariableValues(run_named)
        self._job: Job | None = None
        self._loops: EpochLoops | None = None
        self.running: Running | None = None
        functools.update_wrapper(self, self._traces.function)
        self._call = f"{getattr(self, '__name__', 'a step')}(...)"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step once on all ranks; a function that loops over data runs step by step."""
        if self._loops is None:
            try:
                return self.run(self._traces.arguments(args, kwargs))
            except GradientInLoopError as error:
                self._loops = EpochLoops(self._traces.function, self._step_of, error)
        result = self._loops(*args, **kwargs)
        if self._loops.last is not None:
            self.running = self._loops.last.running
        return result

    def _step_of(self, body: Callable[..., Any]) -> ParallelStep:
        return ParallelStep(body, {**self._options, "plan": self._given}, self._count)

    @property
    def plan(self) -> Plan | None:
        """The plan of the last call that needed one; None before."""
        return None if self.running is None else self.running.plan

    def close(self) -> None:
        """Free the step's graphs and their variables; another call traces and plans it again."""
        for traced in self._traces.clear():
            if is_initialized() and self._job is current():
                self._forget(traced)

    def on_elements(self, args: tuple[Any, ...], specs: tuple[Any, ...]) -> Any:
        """Run the step on elements of data sets.

        Args:
            args: the arguments.
            specs: for each argument its data set's ``element_spec``, whose shapes the trace has;
                for an argument that is not an element, any other value.
        """
        return self.run(self.arguments(args, specs))

    def arguments(self, args: tuple[Any, ...], specs: tuple[Any, ...] | None) -> Arguments:
        """Describe a call with elements of data sets, or, without specifications, any call; see
        `on_elements`."""
        return self._traces.arguments(args, {}, None if specs is None else (specs, {}))

    def rows_of_batch(self, args: tuple[Any, ...], specs: tuple[Any, ...]) -> RowsTable | None:
        """Return the rows that this process reads of batches, as `Executor.rows_of_batch` does.

        All ranks call this. The step is planned if it is not yet; it does not run.

        Args:
            args: arguments with a batch of the largest size; only their shapes matter.
            specs: see `on_elements`.

        Returns:
            The rows; None if the step looks up in tables, or reads texts, in whole batches.
        """
        given = self.arguments(args, specs)
        if self._traces.serving(given).lookups.sources is None:
            return None
        traced, values = self.prepared(given)
        return rows_of_run(traced.graph, traced.fetched, traced.operations, values)

    def prepared(self, given: Arguments) -> tuple[TracedStep, dict[str, Any]]:
        """Trace and plan the step for a call; return the trace and the values that the call
        feeds."""
        self._begin_in(started())
        traced = self._traces.serving(given)
        values = traced.values(given.fed)
        self._plan(given, traced, values)
        return traced, values

    def run(self, given: Arguments) -> Any:
        """Run the step once, on all ranks."""
        traced, results = self._run(given, own=False)
        return _outputs(traced, results)

    def run_own(self, given: Arguments, ranks: int) -> list[Any]:
        """Run the step once for a batch of each rank; see `Executor.run`.

        Args:
            given: the arguments on this rank: shares with all rows.
            ranks: the number of ranks whose outputs are needed.

        Returns:
            The outputs for the batches of the first of the ranks.
        """
        traced, results = self._run(given, own=True)
        return [
            _outputs(traced, {name: values[rank] for name, values in results.items()})
            for rank in range(ranks)
        ]

    def _run(self, given: Arguments, own: bool) -> tuple[TracedStep, dict[str, Any]]:
        """Run the step once. Return its trace, and the values of the tensors that it returns."""
        traced, values = self.prepared(given)
        self._values.pass_on(traced)
        while self._traces.left:
            self._free(self._traces.left.pop())
        if traced not in self._draws:
            self._draws[traced] = draws_of_new_trace(self._call)
        draws = self._draws[traced]
        fetched, operations = traced.fetched, traced.operations
        results = run_named(traced.graph, fetched, operations, values, draws, self._call, own)
        self._values.changed(traced)
        for replaced in self._traces.replaced:
            self._forget(replaced)
        self._traces.replaced.clear()
        switch_to(current(), traced.graph)
        return traced, results

    def _begin_in(self, job: Job) -> None:
        """Forget the plans and draws of a job that has been shut down."""
        if self._job is not job:
            self._job, self.running = job, None
            self._planned.clear()
            self._draws.clear()

    def _forget(self, traced: TracedStep) -> None:
        """Forget a trace that no call runs any more; free its graph if no other trace keeps it."""
        self._draws.pop(traced, None)
        self._planned.discard(traced)
        if traced.is_owner:
            traced.home.owners -= 1
            if not traced.home.owners:
                self._free(traced.home)

    def _free(self, home: StepGraph) -> None:
        """Free a graph and its variables."""
        self._values.leave(home)
        home.close()
        close(current(), home.graph)

    def _fits_given(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Start with the given plan, if there is one and it is for the default graph.

        Args:
            shapes: the shapes to plan for.

        Raises:
            PlanError: if it does not fit the first trace.
        """
        if self._given is None:
            return False
        planned = {name: tuple(shape) for name, shape in self._given.shapes.items()}
        if self.plan is not None and planned != {n: tuple(shape) for n, shape in shapes.items()}:
            return False  # other shapes need other plans
        try:
            build_execution_graph(plan=self._given)
        except PlanError:
            if self.plan is None:
                raise
            return False  # another trace with the same shapes
        say(current(), self._given)
        return True

    def _plan(self, given: Arguments, traced: TracedStep, values: Mapping[str, Any]) -> None:
        """Plan a step before its first run, and before its graph gets values of variables."""
        if traced in self._planned:
            return
        roots = fetched_operators(traced.fetched, traced.operations)
        if needs_gradient(traced.graph, roots):
            self._start(given, traced, values, roots)
        else:
            shapes = {name: value.shape for name, value in values.items()}
            limit = self._options.get("memory_limit_bytes")
            running_for(traced.graph, roots, shapes, limit)
        self._planned.add(traced)

    def _start(
        self,
        given: Arguments,
        traced: TracedStep,
        values: Mapping[str, Any],
        roots: Sequence[str],
    ) -> None:
        """Start with the given plan, or find one."""
        job = current()
        job.agreement.check(self._call)
        switch_to(job, traced.graph)
        shapes = self._traces.planned_shapes(given, traced, values)
        with traced.graph.as_default():
            fits = self._fits_given(shapes)
        if not fits:
            options = {"option": "mini_time", "steps": self._count(), **self._options}
            if options.get("validate"):  # Candidates start from the values in the step's graph.
                self._values.pass_on(traced)
            with traced.graph.as_default():
                plan = find_strategy(**options, shapes=shapes, fetches=roots)
                assert isinstance(plan, Plan)
                say(job, plan)
                build_execution_graph(plan=plan)
        self.running = job.running


def _outputs(traced: TracedStep, results: Mapping[str, Any]) -> Any:
    """The structure that a step returns, of the values of its tensors."""
    return tf.nest.map_structure(
        lambda item: tf.constant(results[item.name]) if tf.is_tensor(item) else item,
        traced.outputs,
        expand_composites=True,
    )
