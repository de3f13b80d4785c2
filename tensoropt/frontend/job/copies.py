"""Guards against training outside of a plan, where each rank would silently train its own copy.

In a job of several ranks it is an error to train in plain TensorFlow: to run an optimizer's update
in a session, or to update a variable by which a gradient tape has differentiated (`eager_copies`).
An update in a session without an optimizer may serve another purpose, so it is an error only at the
end, if the job ran no plan. Computation without training may run in plain sessions, and so may
training that Horovod reduces.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from tensoropt.errors import StateError
from tensoropt.frontend.job import eager_copies
from tensoropt.frontend.job.settings import is_switched_on
from tensoropt.graph.from_tensorflow import (
    GRADIENT_ATTRIBUTE,
    called_functions,
    function_closure,
    needed_operations,
)
from tensoropt.launched import several_ranks
from tensoropt.tensorflow_private import session as session_module

__all__ = [
    "ALLOW_VARIABLE",
    "are_allowed",
    "are_refused",
    "check_end",
    "check_replicated_run",
    "decide",
    "install",
    "install_before_init",
    "remove",
]

ALLOW_VARIABLE = "TENSOROPT_ALLOW_COPIES"
"""Environment variable: 1 if ranks are meant to train copies."""

_ASSIGNMENT = re.compile(r"(Resource)?(Assign|Scatter)(?!VariableShape)\w*")
_UPDATE = re.compile(r"Assign(Add|Sub)(VariableOp)?")

_ALLOWED = f"or set {ALLOW_VARIABLE}=1, or init(allow_copies=True), where copies are meant."
_Session = session_module.BaseSession
_HOOKED: dict[str, Callable[..., Any]] = {
    name: getattr(_Session, name)
    for name in ("run", "make_callable", "_make_callable_from_options")
}
# The state of the process, as the hooks are on TensorFlow's own session class.
_ranks = 0  # of the job while copies are refused, else 0
_suspect = ""  # the name of an operator that may have trained a copy


class _Training(NamedTuple):
    """Whether a run trains, and the name of the operator that shows it."""

    kind: Literal["none", "update", "training"]
    operator: str = ""


_trainings: weakref.WeakKeyDictionary[tf.Graph, dict[tuple[str, ...], _Training]]
_trainings = weakref.WeakKeyDictionary()


def are_allowed(argument: bool | None) -> bool:
    """Whether ranks may train copies, by `init`'s argument or else by the environment.

    Raises:
        OptionError: if the environment variable is neither 0 nor 1.
    """
    rule = "is 1 where ranks are meant to train copies, or 0"
    return is_switched_on(argument, ALLOW_VARIABLE, rule)


def are_refused() -> bool:
    """Whether training a copy is an error now."""
    return bool(_ranks)


def install(ranks: int) -> None:
    """From now on, refuse training of copies on this number of ranks."""
    global _ranks, _suspect
    _ranks, _suspect = ranks, ""
    for name, hook in (("run", _run), ("make_callable", _make_callable), (_OPTIONS, _from_options)):
        setattr(_Session, name, hook)
    eager_copies.install(ranks, _ALLOWED)


def decide(is_mpi: bool, ranks: int, argument: bool | None) -> None:
    """Refuse training of copies, or allow it, whatever was installed before `init`."""
    if is_mpi and not are_allowed(argument):
        install(ranks)
    else:
        remove()


def install_before_init() -> None:
    """Refuse copies if a launcher has started several ranks, until `init` decides."""
    ranks = several_ranks()
    if ranks and not are_allowed(None):
        install(ranks)


def remove() -> None:
    """Restore TensorFlow's own functions."""
    global _ranks
    _ranks = 0
    for name, original in _HOOKED.items():
        setattr(_Session, name, original)
    eager_copies.remove()
    eager_copies.forget_marks()


def check_replicated_run(script: tf.Graph, roots: Sequence[str]) -> None:
    """Refuse a run that trains without a plan, in one of TensorOpt's sessions.

    Raises:
        StateError: if the run trains, in a job of several ranks.
    """
    if not _ranks:
        return
    training = _training(script, tuple(roots))
    if training.kind == "training":
        raise StateError(
            "training is planned by its gradients, which are recorded from the first use of a "
            f"name of TensorOpt on. Got {training.operator!r} without a recorded gradient: each of "
            f"{_ranks} ranks would train a copy. Call tensoropt.enable_graph_mode() before the "
            f"gradients are made, and make them by tf.gradients or an optimizer; {_ALLOWED}"
        )
    _note(training)


def check_end(ran_plan: bool) -> None:
    """Refuse the end of a script that has only trained copies.

    Raises:
        StateError: if the script updated variables and ran no plan, in a job of several ranks.
    """
    if _ranks and _suspect and not ran_plan:
        raise StateError(
            "ranks train together, by a plan. Got the end of the script without one, and updates "
            f"by {_suspect!r}: each of {_ranks} ranks trained a copy. Let an optimizer, or "
            f"tf.gradients, make the update, and run it in a session of TensorOpt's; {_ALLOWED}"
        )


def _run(self: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
    _check_session(self, lambda: _names(self.graph, fetches))
    return _HOOKED["run"](self, fetches, *args, **kwargs)


def _make_callable(self: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
    _check_session(self, lambda: _names(self.graph, fetches))
    return _HOOKED["make_callable"](self, fetches, *args, **kwargs)


_OPTIONS = "_make_callable_from_options"


def _from_options(self: Any, callable_options: Any) -> Any:
    named = [*callable_options.fetch, *callable_options.target]
    _check_session(self, lambda: [name.partition(":")[0] for name in named])
    return _HOOKED[_OPTIONS](self, callable_options)


def _check_session(session: Any, names: Callable[[], list[str]]) -> None:
    if _caller(2).startswith(eager_copies.TRUSTED):
        return
    training = _training(session.graph, tuple(names()))
    if training.kind == "training":
        raise StateError(
            "training runs in a session of TensorOpt's, in parallel. Got "
            f"{training.operator!r} in a session of TensorFlow's: each of {_ranks} ranks would "
            "train a copy. Take the session from `import tensoropt as tf` (tf.Session, tf.run), "
            f"{_ALLOWED}"
        )
    _note(training)


def _caller(depth: int = 1) -> str:
    """The name of the module that called a hook, which is ``depth`` calls from here."""
    return str(sys._getframe(depth + 1).f_globals.get("__name__", ""))


def _note(training: _Training) -> None:
    global _suspect
    _suspect = _suspect or training.operator


def _names(graph: tf.Graph, fetches: Any) -> list[str]:
    """The names of the operators that compute some fetches."""
    handler = session_module._FetchHandler(graph, fetches, {})
    return [tensor.op.name for tensor in handler.fetches()] + [op.name for op in handler.targets()]


def _training(graph: tf.Graph, roots: tuple[str, ...]) -> _Training:
    known = _trainings.setdefault(graph, {})
    if roots not in known:
        known[roots] = _looked_up(graph, roots)
    return known[roots]


def _looked_up(graph: tf.Graph, roots: tuple[str, ...]) -> _Training:
    """Whether a run of some operators trains without a reduction by Horovod."""
    needed = list(needed_operations(graph, roots))
    types = [(op.name, kind) for op in needed for kind in _types(graph, op)]
    if any(kind.startswith("Horovod") for _, kind in types):
        return _Training("none")
    for name, kind in types:
        if eager_copies.OPTIMIZER_KERNELS.fullmatch(kind):
            return _Training("training", name)
    variables = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    trained = {v.handle.op.name if hasattr(v, "handle") else v.op.name for v in variables}
    suspect = _Training("none")
    for op in needed:
        if not (_ASSIGNMENT.fullmatch(op.type) and op.inputs[0].op.name in trained):
            continue
        if any(GRADIENT_ATTRIBUTE in before.node_def.attr for before in _before(graph, op)):
            return _Training("training", op.name)
        if _UPDATE.fullmatch(op.type) and op.inputs[1].dtype.is_floating:
            suspect = _Training("update", op.name)
    return suspect


def _types(graph: tf.Graph, operation: tf.Operation) -> Iterator[str]:
    """The types of an operator and of the operators in functions that it calls."""
    yield operation.type
    called = called_functions(operation.node_def.attr)
    for function in function_closure(graph, called).values():
        yield from (node.op for node in function.node_def)


def _before(graph: tf.Graph, operation: tf.Operation) -> Iterator[tf.Operation]:
    return (op for op in needed_operations(graph, [operation.name]) if op.type == "Identity")
