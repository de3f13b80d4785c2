"""``parallelize``: a training step of eager TensorFlow, planned and run on all ranks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError, StateError
from tensoropt.execution.draws import Draws
from tensoropt.frontend.job.job import current, init, is_initialized
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.frontend.session.executor_selection import needs_gradient, switch_to
from tensoropt.frontend.session.fetches import fetched_operators
from tensoropt.frontend.session.session import run_named
from tensoropt.frontend.steps.traced_step import TracedStep, is_array, traced_as, traced_step
from tensoropt.frontend.steps.variable_values import VariableValues, only_captured
from tensoropt.plan import Plan

__all__ = ["ParallelStep", "check_options", "parallelize"]


def parallelize(step: Callable[..., Any], **options: Any) -> ParallelStep:
    """A training step that runs on all ranks, by a plan; see `tensoropt.parallelize`.

    Raises:
        StateError, OptionError: see there.
    """
    if not callable(step) or hasattr(step, "compile"):
        raise OptionError(
            "a step is a function that computes gradients by a tf.GradientTape and applies them. "
            f"Got {type(step).__name__}; pass a function, or a model of keras or tf_keras."
        )
    check_options(options)
    return ParallelStep(step, options)


def check_options(options: Mapping[str, Any]) -> None:
    """Check what is known before there is a step.

    Raises:
        StateError: in graph mode.
        OptionError: for an option that follows from the call, or one beside a plan.
    """
    if not tf.executing_eagerly():
        raise StateError(
            "a process builds a graph, or runs steps eagerly. Got parallelize in graph mode, which "
            "names of the graph API turn on, such as tensoropt.placeholder; import TensorFlow's "
            "names from tensorflow, or train in a tensoropt.Session."
        )
    for name in ("shapes", "fetches", "feed_dict"):
        if name in options:
            raise OptionError(f"{name} follows from the call of a step. Got {name}=...; drop it.")
    others = sorted(options.keys() - {"plan"})
    if options.get("plan") is not None and others:
        raise OptionError(
            f"a plan says how a step runs. Got plan=... with {', '.join(others)}; leave these out, "
            "or let a strategy be found."
        )
    if options.get("option") == "profiling":
        raise OptionError(
            "a step runs by a plan. Got option='profiling', which makes none; run tensoropt plan "
            "--option profiling, or choose mini_time or mini_parallelism."
        )


class ParallelStep:
    """See `parallelize`.

    Args:
        step: the function.
        options: of `find_strategy`, or a plan.
        count: how many steps the job is going to make, if that is known when one is planned.

    Attributes:
        plan: of the last call that needed one; None before.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        options: Mapping[str, Any],
        count: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._function = getattr(step, "python_function", step)
        self._options = dict(options)
        self._count = count
        given = self._options.pop("plan", None)
        self._given = given if given is None or isinstance(given, Plan) else Plan.load(given)
        self._traced: dict[Any, TracedStep] = {}
        self._draws: dict[tf.Graph, Draws] = {}
        self._planned: set[tf.Graph] = set()
        self._values = VariableValues(run_named)
        self.plan: Plan | None = None
        functools.update_wrapper(self, self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step once, on all ranks."""
        if not is_initialized():
            init()
        traced = self._traced_for(args, kwargs)
        leaves = [value for value in tf.nest.flatten((args, kwargs)) if is_array(value)]
        values = traced.values(leaves)
        self._plan(traced, values)
        self._values.pass_on(traced)
        draws = self._draws.setdefault(traced.graph, Draws(current().draws.unseeded))
        found = run_named(traced.graph, traced.fetched, traced.operations, values, draws)
        self._values.changed(traced)
        return tf.nest.map_structure(
            lambda each: tf.constant(found[each.name]) if tf.is_tensor(each) else each,
            traced.outputs,
        )

    def _traced_for(self, args: Sequence[Any], kwargs: dict[str, Any]) -> TracedStep:
        structure = (tuple(args), kwargs)
        key = _key(structure)
        if key not in self._traced:
            with only_captured():
                self._traced[key] = traced_step(self._function, args, kwargs)
        return self._traced[key]

    def _plan(self, traced: TracedStep, values: Mapping[str, Any]) -> None:
        """Plan a graph that needs gradients, the first time that it runs."""
        if traced.graph in self._planned:
            return
        self._planned.add(traced.graph)
        roots = fetched_operators(traced.fetched, traced.operations)
        if not needs_gradient(traced.graph, roots):
            return
        job = current()
        switch_to(job, traced.graph)
        with traced.graph.as_default():
            shapes = {name: list(value.shape) for name, value in values.items()}
            plan = self._given
            if plan is None:
                options = {"option": "mini_time", "steps": self._count(), **self._options}
                plan = find_strategy(**options, shapes=shapes, fetches=roots)
            assert isinstance(plan, Plan)
            if job.group.rank == 0:
                sys.stderr.write(f"tensoropt: {plan}\n")
            build_execution_graph(plan=plan)
        self.plan = job.plan


def _key(structure: Any) -> Any:
    """Equal for arguments that one trace serves; each call asks for it."""
    leaves = (
        traced_as(value) if is_array(value) else (type(value), value)
        for value in tf.nest.flatten(structure)
    )
    return _form(structure), tuple(leaves)


def _form(value: Any) -> Any:
    """A structure's, without its leaves: TensorFlow's functions take long to pack another one."""
    if type(value) in (list, tuple):
        return type(value), *map(_form, value)
    if type(value) is dict:
        return dict, *((name, _form(each)) for name, each in sorted(value.items()))
    return str(tf.nest.map_structure(lambda _: None, value)) if tf.nest.is_nested(value) else None
