"""Where the value of a script's variable is: in the script's process, or in the job's pieces.

A step's graph has variables of its own, in the layouts that the plan gives them. The script's is
brought up to date when somebody reads it, and not before; all ranks read it then. What the
script assigns between two steps is passed on to the next one.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.job.job import at_shutdown, current
from tensoropt.frontend.steps.traced_step import Captured, TracedStep

__all__ = [
    "VariableValues",
    "bring_up_to_date",
    "only_captured",
    "only_read",
    "shared_variables",
    "steps_have_run",
]

Runs = Callable[..., dict[str, Any]]
"""Runs a graph's tensors and operators with what is fed, all by name, on all ranks: `run_named`."""


@dataclass(slots=True, eq=False)
class _State:
    """Of one variable.

    Attributes:
        newest: the step's graph that has changed it since the script's own was set, and its part.
        known: step's graphs that hold its present value.
        run: runs a graph.
    """

    newest: tuple[TracedStep, Captured] | None
    known: weakref.WeakSet[tf.Graph]
    run: Runs


class VariableValues:
    """Passes values between the script's variables and steps' graphs.

    Args:
        run: runs a graph.
    """

    def __init__(self, run: Runs) -> None:
        self._run = run

    def pass_on(self, step: TracedStep) -> None:
        """Let a step's graph hold the present value of all its variables."""
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
        bring_up_to_date(each.variable for each in missing)
        feeds = {each.given: _value(each.variable) for each in missing}
        assigned = [each.assign for each in missing]
        self._run(step.graph, [], assigned, feeds, call=_called("assigns", missing))
        for captured in missing:
            _state_of(captured.variable).known.add(step.graph)

    def changed(self, step: TracedStep) -> None:
        """A step has run: what it writes is newest in its graph, and the script's is put off."""
        global _left_by
        if _is_as_left(step):
            return
        _read_since[step.graph] = 0
        for captured in step.captured:
            if captured.is_written:
                state = _state_of(captured.variable)
                state.known.clear()
                state.known.add(step.graph)
                if state.newest is None or state.newest[0] is not step:
                    state.newest = step, captured
                    _poison(captured.variable)
        _left_by = weakref.ref(step.graph)

    def leave(self, step: TracedStep) -> None:
        """A step's graph is given up: the script's variables have the values that only it has."""
        bring_up_to_date(
            each.variable
            for each in step.captured
            if (newest := _state_of(each.variable).newest) is not None and newest[0] is step
        )


def bring_up_to_date(variables: Iterable[Any]) -> None:
    """Give the script's variables their newest values, in one run of each step that has some."""
    _touched()
    states = [(each, each.__dict__[_STATE]) for each in variables if _STATE in each.__dict__]
    behind = [(each, state) for each, state in states if state.newest is not None]
    while behind:
        step, run = behind[0][1].newest[0], behind[0][1].run
        here = [(each, state) for each, state in behind if state.newest[0] is step]
        newest = [state.newest[1] for _, state in here]
        call = _called("reads", newest)
        values = run(step.graph, [each.value for each in newest], [], {}, call=call)
        for variable, state in here:
            _set(variable, values[state.newest[1].value])
            state.newest = None
        behind = [(each, state) for each, state in behind if state.newest is not None]


def steps_have_run() -> bool:
    """Whether the job has run parallel steps: the same on all ranks, whatever is garbage."""
    return _steps_have_run


def shared_variables() -> list[Any]:
    """The script's variables that parallel steps use and every rank still has. Every rank calls.

    Ranks collect garbage at different times.
    """
    watched = dict(_variables)  # by numbers that are the same on all ranks
    everyone = current().agreement.gather("the variables of parallel steps", list(watched))
    return [watched[number] for number in sorted(set(watched).intersection(*everyone))]


def _called(verb: str, variables: Sequence[Captured]) -> str:
    """What the script does, in a line."""
    more = f" and {len(variables) - 1} more" if len(variables) > 1 else ""
    return f"what {verb} {variables[0].variable.name!r}{more}"


@contextmanager
def only_read(variables: Iterable[Any]) -> Iterator[None]:
    """Within, some ranks read variables that are up to date, and none assigns one."""
    watched = [each for each in variables if _STATE in each.__dict__]
    bring_up_to_date(watched)
    known = [list(_state_of(each).known) for each in watched]
    try:
        yield
    finally:
        for variable, graphs in zip(watched, known, strict=True):
            _state_of(variable).known.update(graphs)


@contextmanager
def only_captured() -> Iterator[None]:
    """Within, graphs are made, in which variables are captured and not read."""
    global _captures
    before, _captures = _captures, True
    try:
        yield
    finally:
        _captures = before


_STATE, _OWN_HANDLE = "_tensoropt_state", "_tensoropt_handle"
_classes: dict[type, type] = {}
_numbers = itertools.count()
_variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_captures = False
_steps_have_run = False
_read_since: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()
"""How many variables have been read one by one since a step's graph ran."""
_left_by: weakref.ref[tf.Graph] | None = None
"""The step's graph that ran last, unless a watched variable has been read or assigned since."""


def _forget_job() -> None:
    """Let the script's variables have their newest values, and forget who else has them.

    While a process handles an exception its peers may not come here: values are lost, as NaN shows.
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
                _set(variable, np.full(shape, _bad(variable), variable.dtype.as_numpy_dtype))
            state.newest = None
            state.known.clear()


at_shutdown(_forget_job)


def _touched() -> None:
    global _left_by
    _left_by = None


def _is_as_left(step: TracedStep) -> bool:
    """Whether a step has run last, and nothing has touched a watched variable since: where the
    values are has not changed then, and does not by another run."""
    return _left_by is not None and _left_by() is step.graph


def _state_of(variable: Any) -> _State:
    state = variable.__dict__[_STATE]
    assert isinstance(state, _State)
    return state


def _watched(variable: Any, run: Runs) -> _State:
    """The state of a variable, whose handle is watched from now on: all that reads or assigns a
    variable takes it first."""
    if _STATE not in variable.__dict__:
        _touched()
        _variables[next(_numbers)] = variable
        own = type(variable)
        variable.__dict__[_STATE] = _State(None, weakref.WeakSet(), run)
        # TensorFlow's compiled code asks for `_handle` by name, all else for `handle`, which is it.
        variable.__dict__[_OWN_HANDLE] = variable.__dict__.pop("_handle")
        if own not in _classes:
            _classes[own] = type(own.__name__, (own,), {"_handle": property(_handle)})
        variable.__class__ = _classes[own]
    return _state_of(variable)


def _handle(variable: Any) -> Any:
    """The handle of a watched variable: its value is the newest, and may be changed through it."""
    if not _captures or tf.executing_eagerly():
        _touched()
        _fetch(variable)
        _state_of(variable).known.clear()
    return variable.__dict__[_OWN_HANDLE]


def _fetch(variable: Any) -> None:
    """Give the script's variable the newest value.

    Who reads one number reads others, as those of all metrics at the end of an epoch: they are
    brought up to date together. Of larger variables, who has read some reads others: each time as
    many more are brought up to date with it, since what reads one takes as long to emit as what
    reads all.
    """
    state = _state_of(variable)
    if state.newest is None:
        return
    step, captured = state.newest
    if not variable.shape.rank:
        group = [each for each in step.captured if not each.variable.shape.rank]
    else:
        read = _read_since.get(step.graph, 0)
        _read_since[step.graph] = 2 * read + 1
        larger = [each for each in step.captured if each.variable.shape.rank]
        place = larger.index(captured)
        group = larger[place : place + read + 1]
    bring_up_to_date(each.variable for each in group)


def _value(variable: Any) -> Any:
    """The newest value, which nobody changes by this."""
    _fetch(variable)
    with tf.init_scope():
        handle, dtype = variable.__dict__[_OWN_HANDLE], variable.dtype
        return np.array(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype).numpy())


def _set(variable: Any, value: Any) -> None:
    handle = variable.__dict__[_OWN_HANDLE]
    with tf.init_scope():
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, variable.dtype))


def _poison(variable: Any) -> None:
    """Take the script's value away: what has the handle from before, as a function of the script
    that was traced earlier, computes NaN or fails, in place of using an old value."""
    shape = [1] * (len(variable.shape) + 2)
    _set(variable, np.full(shape, _bad(variable), variable.dtype.as_numpy_dtype))


def _bad(variable: Any) -> Any:
    dtype = variable.dtype
    return np.nan if dtype.is_floating or dtype.is_complex else dtype.min if dtype.is_integer else 0
