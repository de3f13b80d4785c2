"""Guards against updates of trained variables outside of a parallel step, in eager TensorFlow.

A derivative changes nothing, so tapes stay allowed, and so do metrics, averages, restored weights
and target networks. A tape marks the variables that it differentiates by. Three updates of a marked
variable are refused, because each rank would train its own copy: an optimizer that is applied to
it, an addition to it, and assignments in a loop that alternate with gradients.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from tensoropt.errors import StateError
from tensoropt.tensorflow_private import func_graph, resource_variable_ops

__all__ = ["OPTIMIZER_KERNELS", "TRUSTED", "forget_marks", "install", "remove", "updates_allowed"]

OPTIMIZER_KERNELS = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
"""Types of operators with which optimizers update a variable."""

TRUSTED = ("tensoropt.", "collectives.", "horovod.")
"""Modules whose gradients and updates are the same on all ranks."""

_AUTOGRAPH = "tensorflow.python.autograph."
_INSIDE_TENSORFLOW = "tensorflow.python.ops."  # recompute_grad and similar functions use tapes
_LIBRARIES = ("keras.", "tf_keras.", "tensorflow.")  # restore weights by `assign`
_MARK = "_tensoropt_differentiated"
_NOTHING, _DIFFERENTIATED, _ASSIGNED, _AGAIN = range(4)
# Marks of a variable: no gradient; a gradient; then an assignment; then a gradient again.
_ADDITIONS = (
    *("assign_add", "assign_sub", "scatter_add", "scatter_sub"),
    *("scatter_nd_add", "scatter_nd_sub"),
)
_OPTIMIZERS = (
    ("keras", "optimizers.Optimizer", "apply"),
    ("tf_keras", "optimizers.Optimizer", "apply_gradients"),
    ("tf_keras", "optimizers.legacy.Optimizer", "apply_gradients"),
    ("tensorflow", "compat.v1.train.Optimizer", "apply_gradients"),
)
"""Package, class of optimizers in it, and the method that updates variables."""

_VARIABLES = resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable

# The state of the process, as the hooks are on TensorFlow's and Keras's own classes.
_ranks = 0
_remedy = ""
_allowed_depth = 0
_marks = object()
"""The identity of the current job's marks; marks of an earlier job have another one."""
_originals: list[tuple[Any, str, Any]] = []
_waiting: list[tuple[str, str, str]] = []  # entries of _OPTIMIZERS that are not hooked yet
_gradient_operators: weakref.WeakKeyDictionary[tf.Graph, set[str]] = weakref.WeakKeyDictionary()


def install(ranks: int, remedy: str) -> None:
    """Refuse updates outside of steps from now on.

    Args:
        ranks: number of processes, for the error.
        remedy: the end of the error, which says how to allow copies.
    """
    global _ranks, _remedy
    remove()
    _ranks, _remedy = ranks, remedy
    _replace(tf.GradientTape, "gradient", _noting)
    wrappers: dict[str, Callable[[Any], Any]] = {"assign": _assigning}
    wrappers |= {name: functools.partial(_adding, name) for name in _ADDITIONS}
    for kind in _VARIABLES:
        for name, wrapper in wrappers.items():
            if name in vars(kind):  # the second class overrides some methods of the first
                _replace(kind, name, wrapper)
    for name in dir(tf.raw_ops):
        if OPTIMIZER_KERNELS.fullmatch(name):
            _replace(tf.raw_ops, name, functools.partial(_kernel, name))
    _waiting[:] = _OPTIMIZERS
    _hook_optimizers()


def remove() -> None:
    """Restore the methods of TensorFlow and Keras."""
    while _originals:
        setattr(*_originals.pop())


def forget_marks() -> None:
    """Forget all variables that tapes have differentiated by."""
    global _marks
    _marks = object()


@contextmanager
def updates_allowed() -> Iterator[None]:
    """A context for tracing a parallel step, or for an optimizer that has been checked."""
    global _allowed_depth
    _allowed_depth += 1
    try:
        yield
    finally:
        _allowed_depth -= 1


def _replace(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _originals.append((owner, name, original))
    setattr(owner, name, functools.wraps(original)(wrapper(original)))


def _hook_optimizers() -> None:
    """Hook the optimizers of packages that are imported by now.

    A tape calls this: a script that has a gradient has also imported its optimizer's package.
    """
    for entry in [entry for entry in _waiting if entry[0] in sys.modules]:
        package, path, method = entry
        kind: Any = sys.modules[package]
        for part in path.split("."):
            kind = getattr(kind, part, None)
        if kind is not None:  # else the package is still being imported
            _waiting.remove(entry)
            _replace(next(base for base in kind.__mro__ if method in vars(base)), method, _applying)


# Wrappers of TensorFlow's and Keras's methods


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = original(self, target, sources, *args, **kwargs)
        inside = (*TRUSTED, _INSIDE_TENSORFLOW)
        if not _allowed_depth and not _caller(sys._getframe(1)).startswith(inside):
            _hook_optimizers()
            for source, derivative in zip(
                tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=True
            ):
                if derivative is not None:
                    _note(source, derivative)
        return gradients

    return gradient


def _adding(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def add(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _marked(self) and _trains(sys._getframe(1)):
            _refuse(f"{name} of {self.name!r}, which a tape has differentiated by,")
        return original(self, *args, **kwargs)

    return add


def _assigning(original: Callable[..., Any]) -> Callable[..., Any]:
    def assign(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if _marked(self) and isinstance(value, tf.Tensor):
            frame = sys._getframe(1)
            if _trains(frame):
                _check_assignment(self, value, _caller(frame))
        return original(self, value, *args, **kwargs)

    return assign


def _kernel(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _trains(sys._getframe(1)):
            _refuse(f"the optimizer's kernel {name}")
        return original(*args, **kwargs)

    return kernel


def _applying(original: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper of ``apply(grads, variables)`` or ``apply_gradients(grads_and_vars)``."""
    signature = inspect.signature(original)

    def apply(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        variables = _updated(args[0], given.arguments)
        if _trains(sys._getframe(1)):
            for variable in map(_tensorflow_variable, variables):
                if variable is not None and _marked(variable):
                    call = f"{type(args[0]).__name__}.{original.__name__}"
                    _refuse(f"{call}, of {variable.name!r},")
        with updates_allowed():
            return original(*given.args, **given.kwargs)

    return apply


def _updated(optimizer: Any, arguments: dict[str, Any]) -> list[Any]:
    """The variables that an optimizer updates; iterators among the arguments become lists."""
    if "grads_and_vars" in arguments:
        pairs = arguments["grads_and_vars"] = list(arguments["grads_and_vars"])
        return [variable for _, variable in pairs]
    if arguments.get("trainable_variables") is None:
        return list(optimizer._trainable_variables)
    variables = arguments["trainable_variables"] = list(arguments["trainable_variables"])
    return variables


# Questions that the wrappers ask


def _caller(frame: FrameType | None) -> str:
    """The module of a frame, without AutoGraph's frames in between."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(_AUTOGRAPH):
            return name
        frame = frame.f_back
    return ""


def _trains(frame: FrameType) -> bool:
    """Whether a frame's update is a script's own, and no operator adds up gradients over ranks.

    Updates in a graph of TensorFlow 1 are checked when a session runs them.
    """
    if _allowed_depth or _caller(frame).startswith(TRUSTED):
        return False
    if tf.executing_eagerly():
        return True
    graph = tf.compat.v1.get_default_graph()
    is_function = isinstance(graph, func_graph.FuncGraph)
    while isinstance(graph, func_graph.FuncGraph):
        if any(operation.type.startswith("Horovod") for operation in graph.get_operations()):
            return False
        graph = graph.outer_graph
    return is_function


def _tensorflow_variable(source: Any) -> Any:
    """TensorFlow's variable inside a variable of Keras; None if the source is not a variable."""
    while source is not None and not isinstance(source, _VARIABLES):
        inner = getattr(source, "value", None)
        source = getattr(source, "_variable", None) if callable(inner) else inner
    return source


def _marked(variable: Any) -> int:
    """The mark of a variable in this job."""
    marks, mark = variable.__dict__.get(_MARK, (None, _NOTHING))
    return int(mark) if marks is _marks else _NOTHING


def _mark(variable: Any, mark: int) -> None:
    variable.__dict__[_MARK] = _marks, mark


def _note(source: Any, derivative: Any) -> None:
    """Mark a variable that a tape has differentiated by, and record its gradient's operator."""
    variable = _tensorflow_variable(source)
    if variable is None:
        return
    _mark(variable, _AGAIN if _marked(variable) > _DIFFERENTIATED else _DIFFERENTIATED)
    tensor = derivative.values if isinstance(derivative, tf.IndexedSlices) else derivative
    if tf.is_symbolic_tensor(tensor):
        _gradient_operators.setdefault(tensor.graph, set()).add(tensor.op.name)


def _check_assignment(variable: Any, value: tf.Tensor, caller: str) -> None:
    """Refuse an assignment that trains.

    In a function, the value reads a gradient. Eagerly, it is the second assignment, with a gradient
    before each.
    """
    if not tf.executing_eagerly():
        if tf.is_symbolic_tensor(value) and _reads_gradient(value):
            _refuse(f"assign of {variable.name!r}, by its gradient,")
    elif not caller.startswith(_LIBRARIES):
        if _marked(variable) == _AGAIN:
            _refuse(f"assign of {variable.name!r} after each gradient by it,")
        _mark(variable, _ASSIGNED)


def _reads_gradient(value: tf.Tensor) -> bool:
    gradients = _gradient_operators.get(value.graph, set())
    waiting, seen = [value.op], set[str]()
    while waiting:
        operation = waiting.pop()
        if operation.name in gradients:
            return True
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs]
    return False


def _refuse(update: str) -> None:
    raise StateError(
        "ranks train together what a step of tensoropt.parallelize updates, or the script's graph "
        f"in a session of TensorOpt's. Got {update} outside of them on each of {_ranks} ranks, "
        "which would train a copy each, as Keras's fit does; pass the model, before it is "
        "compiled, or the step to tensoropt.parallelize, or build the graph with `import tensoropt "
        f"as tf`, {_remedy}"
    )
