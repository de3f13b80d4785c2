"""Transfer of variables' values between the script's process and the pieces in steps' graphs.

A step's graph has variables of its own, in the layouts of the plan. The script's variable is
updated only when something reads it; all ranks read it then. Values that the script assigns between
two steps are passed to the next step.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.checkpoints.memory_groups import groups_within
from tensoropt.frontend.job.job import at_shutdown, current
from tensoropt.frontend.steps.step_graph import Captured, StepGraph
from tensoropt.frontend.steps.traced_step import TracedStep
from tensoropt.tensorflow_private import trackable

__all__ = [
    "VariableValues",
    "bring_up_to_date",
    "defer",
    "discard",
    "newest_of",
    "only_captured",
    "only_read",
    "serialized_as",
    "set_value",
    "shared_variables",
    "steps_have_run",
]

_GROUP_BYTES = 64 << 20  # the most of the variables that are passed on at once

Runs = Callable[..., dict[str, Any]]
"""The type of `run_named`: runs tensors and operators of a graph with fed values, all by name, on
all ranks."""


@dataclass(slots=True, eq=False)
class _State:
    """The places that hold the newest value of one variable.

    Attributes:
        newest: the graph whose steps have changed it since the script's variable was set, and its
            entry there; None if the script's variable is up to date.
        known: graphs of steps that hold the newest value.
        run: runs a graph; None before a step has used the variable.
        first: computes the first value, while the script's variable does not have it.
    """

    newest: tuple[StepGraph, Captured] | None = None
    known: weakref.WeakSet[tf.Graph] = field(default_factory=weakref.WeakSet)
    run: Runs | None = None
    first: Callable[[], tf.Tensor] | None = None


class VariableValues:
    """Passes values between the script's variables and steps' graphs."""

    def __init__(self, run: Runs) -> None:
        self._run = run

    def pass_on(self, step: TracedStep) -> None:
        """Copy newest values to the variables of a step's graph that lack them."""
        global _steps_have_run
        _steps_have_run = True
        if _is_as_left(step):
            return
        missing: list[Captured] = []
        for captured in step.captured:
            state = _watched(captured.variable, self._run)
            if step.graph not in state.known:
                missing.append(captured)
        if not missing:
            return
        bring_up_to_date(captured.variable for captured in missing)
        for group in groups_within(_GROUP_BYTES, missing, _whole_bytes):
            feeds = {captured.given: _value(captured.variable) for captured in group}
            assigned = [captured.assign for captured in group]
            self._run(step.graph, [], assigned, feeds, call=_called("assigns", group))
            feeds.clear()
            for captured in group:
                self._passed_on(step, captured)

    def _passed_on(self, step: TracedStep, captured: Captured) -> None:
        """Note that a step's graph has a value. Free the script's value if the step changes it."""
        state = _state_of(captured.variable)
        state.known.add(step.graph)
        if captured.is_written:
            state.newest, state.first = (step.home, captured), None
            discard(captured.variable)

    def changed(self, step: TracedStep) -> None:
        """Note that a step has run: its graph now has the newest values of the variables it writes.

        The script's variables are updated later.
        """
        global _left_by
        if _is_as_left(step):
            return
        _read_since[step.graph] = 0
        for captured in step.captured:
            if captured.is_written:
                state = _state_of(captured.variable)
                state.known.clear()
                state.known.add(step.graph)
                if state.newest is None or state.newest[0] is not step.home:
                    state.newest, state.first = (step.home, captured), None
                    discard(captured.variable)
        _left_by = step

    def leave(self, home: StepGraph) -> None:
        """Before a graph of steps is freed, update the script's variables that only it has."""
        watched = [variable for variable in home.variables if _STATE in variable.__dict__]
        bring_up_to_date(
            variable
            for variable in watched
            if (newest := _state_of(variable).newest) is not None and newest[0] is home
        )


def bring_up_to_date(variables: Iterable[Any]) -> None:
    """Set the script's variables to their newest values, with one run per graph that has some."""
    _touched()
    states = [
        (variable, variable.__dict__[_STATE])
        for variable in variables
        if _STATE in variable.__dict__
    ]
    behind = [(variable, state) for variable, state in states if state.newest is not None]
    while behind:
        home, run = behind[0][1].newest[0], behind[0][1].run
        here = [(variable, state) for variable, state in behind if state.newest[0] is home]
        newest = [state.newest[1] for _, state in here]
        call = _called("reads", newest)
        values = run(home.graph, [captured.value for captured in newest], [], {}, call=call)
        for variable, state in here:
            set_value(variable, values[state.newest[1].value])
            state.newest = state.first = None
        behind = [(variable, state) for variable, state in behind if state.newest is not None]


def steps_have_run() -> bool:
    """Whether the job has run parallel steps; the same on all ranks, whatever garbage they have."""
    return _steps_have_run


def shared_variables() -> list[Any]:
    """The script's variables that parallel steps use and that every rank still has.

    All ranks must call this. Ranks collect garbage at different times.
    """
    watched = dict(_variables)  # the keys are the same on all ranks
    everyone = current().agreement.gather("the variables of parallel steps", list(watched))
    return [watched[number] for number in sorted(set(watched).intersection(*everyone))]


def _called(verb: str, variables: Sequence[Captured]) -> str:
    """The action of the script, in a line that ranks compare."""
    more = f" and {len(variables) - 1} more" if len(variables) > 1 else ""
    return f"what {verb} {variables[0].variable.name!r}{more}"


def newest_of(variable: Any) -> tuple[StepGraph, Captured] | None:
    """The graph of steps that alone has a variable's newest value, and its entry there."""
    state = variable.__dict__.get(_STATE)
    return None if state is None else state.newest


@contextmanager
def only_read(
    variables: Iterable[Any], read: Callable[[Any], None] | None = None
) -> Iterator[None]:
    """A context in which some ranks read these variables and no rank assigns one.

    Args:
        variables: the variables.
        read: called before a variable is read whose newest value only a step's graph has. Without
            it, all variables are up to date on all ranks.
    """
    global _read_by
    watched = [variable for variable in variables if _STATE in variable.__dict__]
    if read is None:
        bring_up_to_date(watched)
    known = [list(_state_of(variable).known) for variable in watched]
    before, _read_by = _read_by, read
    try:
        yield
    finally:
        _read_by = before
        for variable, graphs in zip(watched, known, strict=True):
            _state_of(variable).known.update(graphs)


@contextmanager
def serialized_as(mark: Callable[[Any], tf.Tensor | None]) -> Iterator[None]:
    """A context in which TensorFlow's savers get marks in place of variables' values.

    Args:
        mark: returns the mark of a variable whose newest value only a step's graph has; None for
            its value.
    """
    global _mark
    before, _mark = _mark, mark
    try:
        yield
    finally:
        _mark = before


@contextmanager
def only_captured() -> Iterator[None]:
    """A context for making graphs, in which variables are captured and not read."""
    global _captures
    before, _captures = _captures, True
    try:
        yield
    finally:
        _captures = before


def _whole_bytes(captured: Captured) -> int:
    """The bytes of a variable's whole value; 0 for an unknown shape."""
    variable = captured.variable
    return int((variable.shape.num_elements() or 0) * variable.dtype.size)


# The state of the process: the script's variables are watched through their classes, and one value
# may lie in the graphs of several steps.
_STATE, _REAL_HANDLE = "_tensoropt_state", "_tensoropt_handle"
_classes: dict[type, type] = {}
_numbers = itertools.count()
_variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_captures = False
_read_by: Callable[[Any], None] | None = None  # see `only_read`
_mark: Callable[[Any], tf.Tensor | None] | None = None  # see `serialized_as`
_steps_have_run = False
_read_since: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()
"""Number of variables that have been read one by one since a step's graph ran."""
_left_by: TracedStep | None = None
"""The last step, unless a watched variable has been read or assigned since."""


def _forget_job() -> None:
    """Update the script's variables, and forget which graphs hold their values.

    If this process handles an exception, the other ranks may not get here. Then values that only
    steps' graphs have are lost, and the variables are set to NaN.
    """
    global _steps_have_run
    is_alone = sys.exc_info()[0] is not None and current().is_mpi
    try:
        if _steps_have_run and not is_alone:
            bring_up_to_date(shared_variables())
    finally:
        _steps_have_run = False
        _touched()
        _read_since.clear()
        for variable in list(_variables.values()):
            state = _state_of(variable)
            if state.newest is not None:
                shape = [extent or 0 for extent in variable.shape]
                set_value(variable, np.full(shape, _bad(variable), variable.dtype.as_numpy_dtype))
            state.newest = None
            state.known.clear()


at_shutdown(_forget_job)


def _touched() -> None:
    global _left_by
    _left_by = None


def _is_as_left(step: TracedStep) -> bool:
    """Whether a step has run last, and no watched variable has been read or assigned since.

    Then another run of the step changes nothing about where the newest values are.
    """
    return _left_by is step


def _state_of(variable: Any) -> _State:
    state = variable.__dict__[_STATE]
    assert isinstance(state, _State)
    return state


def defer(variable: Any, first: Callable[[], tf.Tensor]) -> None:
    """Free the first value of a variable that nothing has used yet; compute it when needed."""
    _watch(variable).first = first
    discard(variable)


def _watched(variable: Any, run: Runs) -> _State:
    """The state of a variable that a step uses."""
    state = _watch(variable)
    if state.run is None:
        _touched()
        _variables[next(_numbers)] = variable
        state.run = run
    return state


def _watch(variable: Any) -> _State:
    """The state of a variable, whose handle is a property from now on.

    Every read and assignment of a variable asks for its handle first.
    """
    if _STATE not in variable.__dict__:
        kind = type(variable)
        variable.__dict__[_STATE] = _State()
        # TensorFlow's compiled code reads `_handle`; other code reads `handle`, which uses it.
        variable.__dict__[_REAL_HANDLE] = variable.__dict__.pop("_handle")
        if kind not in _classes:
            changed = {"_handle": property(_handle), "_serialize_to_tensors": _serialized(kind)}
            _classes[kind] = type(kind.__name__, (kind,), changed)
        variable.__class__ = _classes[kind]
    return _state_of(variable)


def _serialized(kind: type) -> Callable[[Any], dict[str, Any]]:
    """Return the method by which TensorFlow's savers ask a watched variable for its value."""

    def serialize_to_tensors(variable: Any) -> dict[str, Any]:
        if _mark is not None and newest_of(variable) is not None:
            mark = _mark(variable)
            if mark is not None:
                return {trackable.VARIABLE_VALUE_KEY: mark}
        tensors: dict[str, Any] = kind._serialize_to_tensors(variable)  # type: ignore[attr-defined]
        return tensors

    return serialize_to_tensors


def _handle(variable: Any) -> Any:
    """The handle of a watched variable, after an update: its holder may read and assign it."""
    if not _captures or tf.executing_eagerly():
        _touched()
        _fetch(variable)
        _state_of(variable).known.clear()
    return variable.__dict__[_REAL_HANDLE]


def _fetch(variable: Any) -> None:
    """Set the script's variable to its newest value, with other variables that it predicts.

    A script that reads one scalar usually reads the others, such as all metrics at the end of an
    epoch: all scalars are updated together. A script that has read some larger variables usually
    reads more: each read updates twice as many as the one before, because the emission of a run
    that reads one variable takes as long as for all of them.
    """
    state = _state_of(variable)
    if state.first is not None:
        set_value(variable, _first(variable))
        state.first = None
    if state.newest is None:
        return
    if _read_by is not None:
        _read_by(variable)
        return
    home = state.newest[0]
    if not variable.shape.rank:
        group = [each for each in home.variables if not each.shape.rank]
    else:
        read = _read_since.get(home.graph, 0)
        _read_since[home.graph] = 2 * read + 1
        larger = [each for each in home.variables if each.shape.rank]
        place = next(number for number, each in enumerate(larger) if each is variable)
        group = larger[place : place + read + 1]
    bring_up_to_date(group)


def _value(variable: Any) -> Any:
    """The newest value of a variable; unlike a use of the handle, this cannot change it."""
    if _state_of(variable).first is not None:
        return np.asarray(_first(variable))
    _fetch(variable)
    with tf.init_scope():
        handle, dtype = variable.__dict__[_REAL_HANDLE], variable.dtype
        return np.asarray(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype).numpy())


def _first(variable: Any) -> tf.Tensor:
    """Compute the first value of a variable."""
    first = _state_of(variable).first
    assert first is not None, "the script's variable does not have it"
    with tf.init_scope():
        return first()


def set_value(variable: Any, value: Any) -> None:
    """Set the script's variable on this rank, without a change of where the newest value is."""
    handle = variable.__dict__[_REAL_HANDLE]
    with tf.init_scope():
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, variable.dtype))


def discard(variable: Any) -> None:
    """Free and overwrite the script's value, which is out of date.

    A function of the script that was traced earlier has the real handle; it now computes NaN or
    fails instead of using the old value.
    """
    shape = [1] * (len(variable.shape) + 2)
    set_value(variable, np.full(shape, _bad(variable), variable.dtype.as_numpy_dtype))


def _bad(variable: Any) -> Any:
    dtype = variable.dtype
    return np.nan if dtype.is_floating or dtype.is_complex else dtype.min if dtype.is_integer else 0
