"""Names of the graph API, of which looking at one changes nothing: graph mode waits for its use.

`hasattr`, `dir`, completion in a shell and tools that walk over modules look names up. A function
turns graph mode on when it is called, and a module when a name in it does. A class has no such
moment, except TensorOpt's own, so one of TensorFlow's turns graph mode on when it is looked up.
Types, errors, messages and constants never do.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import tensorflow as tf
from google.protobuf.message import Message  # type: ignore[import-untyped]

from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode, is_enabled

__all__ = ["looked_up"]

_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_VALUES = (
    *(BaseException, Message, enum.Enum, tf.DType, tf.TensorShape, tf.compat.v1.Dimension),
    *(tf.TypeSpec, tf.Tensor, tf.Operation, tf.compat.v1.GraphKeys),
)
"""Classes that need no graph mode, and those derived from them."""


def looked_up(owner: Any, name: str, own_classes: tuple[type, ...] = ()) -> Any:
    """A name of a module, as a script may use it; graph mode is turned on where that cannot wait.

    Args:
        owner: a module.
        name: in it.
        own_classes: those that turn graph mode on by themselves when one is made.

    Raises:
        AttributeError: if the module has no such name; nothing has changed then.
        StateError: see `enable_graph_mode`.
    """
    found = getattr(owner, name)
    if is_enabled() or _is_value(found, own_classes):
        return found
    if tf.compat.v1.executing_eagerly_outside_functions():
        if isinstance(found, _FUNCTIONS):
            return _called_later(owner, name, found)
        # Keras is imported by its first name, as graph mode has it.
        if isinstance(found, ModuleType) and not type(found).__name__.endswith("LazyLoader"):
            return _UsedLater(found)
    enable_graph_mode()
    return getattr(owner, name)  # graph mode may have put another in its place


def _is_value(found: Any, own_classes: tuple[type, ...]) -> bool:
    if isinstance(found, type):
        return issubclass(found, _VALUES) or found in own_classes
    return not callable(found) and not isinstance(found, ModuleType)


def _called_later(owner: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        enable_graph_mode()
        return getattr(owner, name)(*args, **kwargs)

    return call


class _UsedLater(ModuleType):
    """Stands for a module of TensorFlow's until graph mode is on."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self)["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return looked_up(vars(self)["_module"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_module"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(vars(self)["_module"], name)

    def __dir__(self) -> list[str]:
        return dir(vars(self)["_module"])
