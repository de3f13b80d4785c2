"""Names of the graph API: looking at a name changes nothing, and its use turns graph mode on.

`hasattr`, `dir`, completion in a shell and tools that walk over modules look names up. A function
turns graph mode on when it is called, and a module when one of its names is used. A class of
TensorFlow cannot tell when it is used, so looking it up turns graph mode on; TensorOpt's own
classes turn it on when an instance is made. Dtypes, errors, protobuf messages and constants never
turn it on.
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
"""Classes that, like their subclasses, need no graph mode."""


def looked_up(owner: Any, name: str, own_classes: tuple[type, ...] = ()) -> Any:
    """The value of a module's name, wrapped so that its first use turns graph mode on.

    If the value cannot be wrapped, graph mode is turned on now.

    Args:
        owner: the module.
        name: the name in it.
        own_classes: classes that turn graph mode on by themselves when one is made.

    Raises:
        AttributeError: if the module has no such name; nothing has changed then.
        StateError: see `enable_graph_mode`.
    """
    value = getattr(owner, name)
    if is_enabled() or _is_value(value, own_classes):
        return value
    if tf.compat.v1.executing_eagerly_outside_functions():
        if isinstance(value, _FUNCTIONS):
            return _called_later(owner, name, value)
        # A lazy loader imports Keras at its first name, and graph mode must be on before that.
        if isinstance(value, ModuleType) and not type(value).__name__.endswith("LazyLoader"):
            return _UsedLater(value)
    enable_graph_mode()
    return getattr(owner, name)  # graph mode may have replaced the value


def _is_value(value: Any, own_classes: tuple[type, ...]) -> bool:
    if isinstance(value, type):
        return issubclass(value, _VALUES) or value in own_classes
    return not callable(value) and not isinstance(value, ModuleType)


def _called_later(owner: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        enable_graph_mode()
        return getattr(owner, name)(*args, **kwargs)

    return call


class _UsedLater(ModuleType):
    """A module of TensorFlow whose names turn graph mode on."""

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
