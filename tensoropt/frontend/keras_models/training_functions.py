"""What a parallel Keras model runs for a batch: a step of TensorOpt's in place of a function."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.frontend.keras_models.keras_package import (
    as_called,
    count_batch,
    make_slots,
    planned_steps,
    steps_per_execution,
)
from tensoropt.frontend.steps.parallel_step import ParallelStep
from tensoropt.plan import Plan

__all__ = ["install_training_functions", "is_installed"]

_PARTS = 3
"""Most parts of a batch: inputs, targets and weights."""


def install_training_functions(model: Any, options: Mapping[str, Any]) -> None:
    """Let a model's ``fit``, ``evaluate`` and ``predict`` run steps of TensorOpt's.

    Args:
        model: of Keras, without functions of its own as yet.
        options: of `parallelize`.
    """
    for name in ("train", "test", "predict"):
        setattr(model, f"{name}_function", None)
        setattr(model, f"make_{name}_function", _Make(model, name, options))


def is_installed(model: Any) -> bool:
    """Whether they are a model's."""
    return isinstance(vars(model).get("make_train_function"), _Make)


class _Make:
    """What Keras calls before batches, which sets a model's function to run them where it is None.

    Args:
        model: the model.
        name: "train", "test" or "predict".
        options: of `parallelize`.
    """

    def __init__(self, model: Any, name: str, options: Mapping[str, Any]) -> None:
        self._model = model
        self._name = name
        self._options = dict(options)

    def __call__(self, force: bool = False) -> Any:
        """As Keras calls it.

        Raises:
            OptionError: if the model was compiled to run eagerly, or with a number of batches at a
                time that each rank would choose by its own clock.
        """
        model, name = self._model, self._name
        if getattr(model, "autotune_steps_per_execution", False):
            raise OptionError(
                "all ranks of a parallel model run the same number of batches at a time. Got "
                "model.compile(steps_per_execution='auto'), with which each chooses by its own "
                "clock; give a number."
            )
        if model.run_eagerly:
            raise OptionError(
                "a parallel model runs as a graph. Got model.compile(run_eagerly=True); leave it "
                "out, or debug the model without tensoropt.parallelize."
            )
        if force or getattr(model, f"{name}_function") is None:
            if name == "train":
                make_slots(model)

            def step(x: Any, y: Any, sample_weight: Any, count: int) -> Any:
                given = (x, y, sample_weight)[:count] if count else x
                return getattr(model, f"{name}_step")(given)

            step.__name__ = f"{model.name}.{name}_step"
            own = ParallelStep(
                as_called(model, step), self._options, functools.partial(planned_steps, model)
            )
            setattr(model, f"{name}_function", _OfBatches(own, model, name))
        return getattr(model, f"{name}_function")


class _OfBatches:
    """Runs a model's step on one batch after another.

    Args:
        step: of one batch.
        model: which says on how many at a time.
        name: "train", "test" or "predict".
    """

    def __init__(self, step: ParallelStep, model: Any, name: str) -> None:
        self._step = step
        self._model = model
        self._name = name

    @property
    def plan(self) -> Plan | None:
        """Of the last batch; None before."""
        return self._step.plan

    def __call__(self, batches: Iterable[Any]) -> Any:
        """Run the next batches, or those in a list; StopIteration where there is none.

        Returns:
            Of a prediction what all batches give, one after another; else what the last one gives.
        """
        iterator, found = iter(batches), list[Any]()
        spec = getattr(batches, "element_spec", None)
        for _ in range(steps_per_execution(self._model)):
            try:
                data = next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if not found:
                    raise
                break
            found.append(self._run(data, spec))
        if self._name != "predict" or len(found) == 1:
            return found[-1]
        return tf.nest.map_structure(lambda *each: tf.concat(each, axis=0), *found)

    def _run(self, data: Any, spec: Any) -> Any:
        """Of one batch; without what is absent in it, as Keras writes it.

        Args:
            data: the batch.
            spec: of the data set that it comes from; None where there is none.
        """
        if any(isinstance(each, tf.experimental.Optional) for each in tf.nest.flatten(data)):
            data = tf.nest.map_structure(
                lambda each: None if isinstance(each, tf.experimental.Optional) else each, data
            )
        count = len(data) if type(data) is tuple and len(data) <= _PARTS else 0
        absent = (None,) * (_PARTS - (count or 1))
        parts = (*(data if count else (data,)), *absent, count)
        if spec is None:
            output = self._step(*parts)
        else:
            specs = (*(spec if count else (spec,)), *absent, None)
            output = self._step.on_elements(parts, specs)
        count_batch(self._model, self._name)
        return output
