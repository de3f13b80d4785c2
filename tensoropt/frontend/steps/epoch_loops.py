"""An epoch written as one function: the body of its loop over data is the training step.

The function itself runs eagerly and alike on every rank. AutoGraph turns the body of each loop into
a function, with functions that read and set the variables that the body changes. The body of a loop
over a data set, an iterator or a tensor becomes a step.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.frontend.inputs.step_arguments import Held
from tensoropt.frontend.steps.recorded_tape import GradientInLoopError
from tensoropt.frontend.steps.traced_step import own_error
from tensoropt.tensorflow_private import control_flow

__all__ = ["EpochLoops"]

_DATA = (tf.data.Dataset, tf.data.Iterator, tf.Tensor)
_NUMBERS = (bool, int, float)
_MOST_STEPS = 4
"""Steps kept for one loop: one for each set of objects that the loop's body reads."""


class EpochLoops:
    """A function whose loops over data run step by step.

    Args:
        function: the function.
        make_step: makes a parallel step of a function.
        error: the error of tracing the whole function as a step.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make_step: Callable[..., Any],
        error: GradientInLoopError,
    ) -> None:
        self._function = function
        self._make_step = make_step
        self._error = error
        self._bodies: dict[types.CodeType, dict[Any, _Body | None]] = {}
        self.last: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function.

        Raises:
            GraphError: if it computes gradients outside of the bodies that are steps.
        """
        context = tf.__internal__.autograph.control_status_ctx()
        converted = tf.__internal__.autograph.tf_convert(self._function, context)
        try:
            with _run_by(self._run), _gradients_in_steps_alone(self._refusal):
                return converted(*args, **kwargs)
        except Exception as error:  # AutoGraph's, which names the line of the script
            original = own_error(error)
            if original is None or original is error:
                raise
            raise original from error

    def _run(
        self,
        data: Any,
        goes_on: Callable[[], Any] | None,
        body: Callable[[Any], None],
        get_state: Callable[[], tuple[Any, ...]],
        set_state: Callable[[Sequence[Any]], None],
        names: Sequence[str],
        _: Any,
    ) -> None:
        """Run one loop; AutoGraph calls this with its own arguments."""
        bodies = self._bodies.setdefault(body.__code__, {})
        key = tuple(_constants(body, names))
        known = bodies.pop(key) if key in bodies else _Body(self._make_step, names)
        body_step = bodies[key] = known
        if len(bodies) > _MOST_STEPS:
            oldest = bodies.pop(next(iter(bodies)))
            if oldest is not None:
                oldest.step.close()
        undefined = tuple(
            isinstance(value, control_flow.variables.Undefined) for value in get_state()
        )
        spec = getattr(data, "element_spec", None)
        for element in data:
            if goes_on is not None and not goes_on():
                break
            if body_step is not None:
                before = get_state()
                try:
                    body_step.run(element, spec, body, get_state, set_state, undefined)
                    self.last = body_step.step
                    continue
                except GradientInLoopError as error:  # the bodies of its inner loops are the steps
                    set_state(before)
                    body_step, self._error = None, error
                    bodies[key] = None
            body(element)

    def _refusal(self) -> GraphError:
        """The error for gradients outside of steps."""
        if self._error.in_condition:
            return self._error
        return GraphError(
            "in a function with a loop over data the loop's body is the step, and gradients are "
            "asked for in no further loop of it. Got GradientTape.gradient elsewhere; move the "
            "loop out of the function:\n"
            "    step = tensoropt.parallelize(train_step)  # for one batch\n"
            "    for batch in dataset:\n"
            "        loss = step(batch)"
        )


class _Body:
    """The body of a loop as a step.

    Args:
        make_step: makes a parallel step of a function.
        names: names of the variables that the body changes.
    """

    def __init__(self, make_step: Callable[..., Any], names: Sequence[str]) -> None:
        def traced(
            element: Any, state: list[Any], captured: dict[str, Any], undefined: tuple[bool, ...]
        ) -> list[Any]:
            return self._traced(element, state, captured, undefined)

        vars(traced)["autograph_info__"] = {}  # AutoGraph does not convert a function with this
        self.step = make_step(traced)
        self._names = names
        self._now: tuple[Any, ...] = ()

    def run(
        self,
        element: Any,
        spec: Any,
        body: Callable[[Any], None],
        get_state: Callable[[], tuple[Any, ...]],
        set_state: Callable[[Sequence[Any]], None],
        undefined: tuple[bool, ...],
    ) -> None:
        """Run the body on an element; see `EpochLoops`.

        Args:
            element: the element of the data.
            spec: the element's specification; None if the data has none.
            body: the loop's body in this call of the function.
            get_state: returns the values of the variables that the body changes.
            set_state: sets them.
            undefined: for each of these variables, whether it has no value before the loop; the
                body then sets it before it reads it.
        """
        tensors = {name: cell for name, cell in _read(body, self._names) if _is_tensor(cell)}
        captured = {name: cell.cell_contents for name, cell in tensors.items()}
        before = get_state()
        self._now = body, get_state, set_state, before, tensors
        state = [
            tf.convert_to_tensor(value) if isinstance(value, _NUMBERS) else value
            for value, is_undefined in zip(before, undefined, strict=True)
            if not is_undefined
        ]
        given = element, state, captured, undefined
        try:
            after = self.step.on_elements(given, (element if spec is None else spec, *given[1:]))
        finally:
            set_state(before)
            for name, cell in tensors.items():
                cell.cell_contents = captured[name]
        set_state([new[0] if new else old for old, new in zip(before, after, strict=True)])

    def _traced(
        self, element: Any, state: list[Any], captured: dict[str, Any], undefined: tuple[bool, ...]
    ) -> list[Any]:
        """Trace the body; returns (value,) for each variable, () for one without a value."""
        body, get_state, set_state, before, cells = self._now
        left = iter(state)
        set_state(
            [
                old if is_undefined else next(left)
                for old, is_undefined in zip(before, undefined, strict=True)
            ]
        )
        for name, cell in cells.items():
            cell.cell_contents = captured[name]
        body(element)
        no_value = control_flow.variables.Undefined
        return [() if isinstance(value, no_value) else (value,) for value in get_state()]


def _is_tensor(cell: Any) -> bool:
    return _has_value(cell) and isinstance(cell.cell_contents, tf.Tensor)


def _has_value(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # an empty cell: the variable has no value yet
        return False


def _read(body: Callable[[Any], None], changed: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The variables that a body reads and does not change, as (name, cell)."""
    pairs = zip(body.__code__.co_freevars, body.__closure__ or (), strict=True)
    return ((name, cell) for name, cell in pairs if name not in changed)


def _constants(body: Callable[[Any], None], changed: Sequence[str]) -> Iterator[Any]:
    """Keys of the objects, numbers and functions that a body reads; tensors are fed instead."""
    for _, cell in _read(body, changed):
        if _has_value(cell) and not isinstance(cell.cell_contents, tf.Tensor):
            yield _constant(cell.cell_contents, ())


def _constant(value: Any, around: tuple[Any, ...]) -> Any:
    """A key that is equal for the same object, and for functions that AutoGraph makes again.

    Args:
        value: the object.
        around: codes of the functions that read it, outermost first.
    """
    if isinstance(value, (*_NUMBERS, str)):
        return type(value), value
    if isinstance(value, types.MethodType):
        return _constant(value.__func__, around), Held(value.__self__)
    if isinstance(value, types.FunctionType):
        code = value.__code__
        cells = () if code in around else value.__closure__ or ()
        inside = [cell.cell_contents for cell in cells if _has_value(cell)]
        return code, *(_constant(content, (*around, code)) for content in inside)
    return None if type(value).__name__ == "FunctionScope" else Held(value)


class _Registry:
    """AutoGraph's registry of functions that run loops.

    Args:
        run: the function that runs a loop over data.
    """

    def __init__(self, run: Callable[..., None]) -> None:
        self._run = run

    def lookup(self, data: Any) -> Callable[..., None]:
        """The function that runs a loop over data; LookupError to run the loop as written."""
        if not tf.executing_eagerly() or not isinstance(data, _DATA):
            return _LOOPS.lookup(data)  # type: ignore[no-any-return]
        return self._run


_LOOPS = control_flow.for_loop_registry


@contextmanager
def _run_by(run: Callable[..., None]) -> Iterator[None]:
    control_flow.for_loop_registry = _Registry(run)
    eagerly = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Even though the `tf.config.experimental_run_func")
            yield
    finally:
        control_flow.for_loop_registry = _LOOPS
        tf.config.run_functions_eagerly(eagerly)


@contextmanager
def _gradients_in_steps_alone(refusal: Callable[[], GraphError]) -> Iterator[None]:
    """Refuse gradients outside of steps, with which each rank would train a copy."""
    before = tf.GradientTape.gradient

    def refused(*args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():  # a step is being traced
            return before(*args, **kwargs)
        raise refusal()

    tf.GradientTape.gradient = refused
    try:
        yield
    finally:
        tf.GradientTape.gradient = before
