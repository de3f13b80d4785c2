"""What of a model depends on its package: Keras 3, or tf_keras, which goes on with Keras 2."""

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
    "variables_of",
]

_LEGACY = "tf_keras"


def package_of(model: Any) -> ModuleType | None:
    """``keras`` or ``tf_keras``, whose Model it is; None for anything else."""
    for name in ("keras", _LEGACY):
        package = sys.modules.get(name)
        if package is not None and isinstance(model, package.Model):
            return package
    return None


def steps_per_execution(model: Any) -> int:
    """How many batches the next call of a model's function is for; at an epoch's end tf_keras
    lowers it."""
    if not _is_legacy(model):
        return int(model.steps_per_execution)
    count = model._steps_per_execution
    return 1 if count is None else int(count)


def make_slots(model: Any) -> None:
    """Give the optimizer of a built model its slots, as Keras's own step does when it runs first:
    a step that creates variables is traced twice. Another step may train other variables."""
    package, optimizer = package_of(model), getattr(model, "optimizer", None)
    if package is None or _is_legacy(model) or optimizer is None or optimizer.built:
        return
    if model.built and type(model).train_step is package.Model.train_step:
        optimizer.build(model.trainable_variables)


def planned_steps(model: Any) -> int | None:
    """How many steps the ``fit`` that runs is going to make; None where that is not known."""
    params = getattr(getattr(model, "history", None), "params", None) or {}
    steps, epochs = params.get("steps"), params.get("epochs")
    return int(steps * epochs) if steps and epochs else None


def as_called(model: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """A model's step as its package has it: in Keras 3 Python's conditions in it are Python's; in
    tf_keras those of layers are TensorFlow's."""
    return step if _is_legacy(model) else tf.autograph.experimental.do_not_convert(step)


def count_batch(model: Any, name: str) -> None:
    """Count a batch of a training ("train"), an evaluation or a prediction, as callbacks of
    tf_keras read it."""
    if _is_legacy(model):
        getattr(model, f"_{name}_counter").assign_add(1)


def variables_of(model: Any) -> list[Any]:
    """TensorFlow's, of all that may be written: the model's, its metrics' and its optimizer's."""
    optimizer = getattr(model, "optimizer", None)
    found = [variable for metric in model.metrics for variable in metric.variables]
    found += model.variables
    if not _is_legacy(model):
        found += [] if optimizer is None else optimizer.variables
        return [each.value for each in found]
    while optimizer is not None:
        own = optimizer.variables
        # Of older optimizers a function; and none names rates, which are in what describes them.
        rates = (*vars(optimizer).values(), *getattr(optimizer, "_hyper", {}).values())
        found += own() if callable(own) else own
        found += [each for each in rates if isinstance(each, tf.Variable)]
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return found


def _is_legacy(model: Any) -> bool:
    package = package_of(model)
    return package is not None and package.__name__ == _LEGACY
