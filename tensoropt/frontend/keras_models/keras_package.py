"""Differences between the packages of a model: Keras 3, or tf_keras, which continues Keras 2."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

__all__ = [
    "as_called",
    "count_batch",
    "make_slots",
    "package_of",
    "planned_steps",
    "steps_per_execution",
    "unsaved_variables",
    "variables_of",
]

_LEGACY = "tf_keras"


def package_of(model: Any) -> ModuleType | None:
    """The package, ``keras`` or ``tf_keras``, whose Model this is; None for other objects."""
    for name in ("keras", _LEGACY):
        package = sys.modules.get(name)
        if package is not None and isinstance(model, package.Model):
            return package
    return None


def steps_per_execution(model: Any) -> int:
    """The number of batches in the next call of a model's function.

    tf_keras lowers it at the end of an epoch.
    """
    if not _is_legacy(model):
        return int(model.steps_per_execution)
    count = model._steps_per_execution
    return 1 if count is None else int(count)


def make_slots(model: Any) -> None:
    """Make the slots of a built model's optimizer, as the first run of Keras's own step does.

    A step that creates variables is traced twice. A custom step may train other variables, so its
    slots are not made.
    """
    package, optimizer = package_of(model), getattr(model, "optimizer", None)
    if package is None or _is_legacy(model) or optimizer is None or optimizer.built:
        return
    if model.built and type(model).train_step is package.Model.train_step:
        optimizer.build(model.trainable_variables)


def planned_steps(model: Any) -> int | None:
    """The number of steps of the current ``fit``; None if it is not known."""
    params = getattr(getattr(model, "history", None), "params", None) or {}
    steps, epochs = params.get("steps"), params.get("epochs")
    return int(steps * epochs) if steps and epochs else None


def as_called(model: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """A model's step in the form that its package calls.

    In Keras 3 Python's conditions stay Python's; in tf_keras conditions of layers become
    TensorFlow's.
    """
    return step if _is_legacy(model) else tf.autograph.experimental.do_not_convert(step)


def count_batch(model: Any, name: str) -> None:
    """Count a batch in the counter that callbacks of tf_keras read."""
    if _is_legacy(model):
        getattr(model, f"_{name}_counter").assign_add(1)


def variables_of(model: Any) -> list[Any]:
    """TensorFlow's variables of a model, its metrics and its optimizer."""
    optimizer = getattr(model, "optimizer", None)
    variables = [variable for metric in model.metrics for variable in metric.variables]
    variables += model.variables
    if not _is_legacy(model):
        variables += [] if optimizer is None else optimizer.variables
        return [variable.value for variable in variables]
    while optimizer is not None:
        slots = optimizer.variables  # a function in older optimizers
        # No optimizer lists its rates; they are among its attributes or in `_hyper`.
        rates = (*vars(optimizer).values(), *getattr(optimizer, "_hyper", {}).values())
        variables += slots() if callable(slots) else slots
        variables += [rate for rate in rates if isinstance(rate, tf.Variable)]
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return variables


def unsaved_variables(model: Any) -> tuple[list[Any], list[Any]]:
    """Keras's variables that files of weights of Keras 3 lack.

    Returns:
        The states of random generators, and the variables of metrics. Metrics have variables once
        the model's step is traced.
    """
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    others = {id(variable) for variable in (*model.weights, *metrics)}
    return [variable for variable in model.variables if id(variable) not in others], metrics


def _is_legacy(model: Any) -> bool:
    package = package_of(model)
    return package is not None and package.__name__ == _LEGACY
