"""What a parallel Keras model runs for a batch: a step of TensorOpt's in place of a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.frontend.steps.parallel_step import ParallelStep
from tensoropt.plan import Plan

__all__ = ["install_training_functions", "is_installed"]


def install_training_functions(model: Any, options: Mapping[str, Any]) -> None:
    """Let a model's ``fit``, ``evaluate`` and ``predict`` run steps of TensorOpt's.

    Args:
        model: of Keras 3, without functions of its own as yet.
        options: of `parallelize`.
    """
    for name, of_batches in (
        ("train", _LastOfBatches),
        ("test", _LastOfBatches),
        ("predict", _AllOfBatches),
    ):
        setattr(model, f"{name}_function", None)
        setattr(model, f"make_{name}_function", _Make(model, name, of_batches, options))


def is_installed(model: Any) -> bool:
    """Whether they are a model's."""
    return isinstance(vars(model).get("make_train_function"), _Make)


class _Make:
    """What Keras calls before batches, which sets a model's function to run them where it is None.

    Args:
        model: the model.
        name: "train", "test" or "predict".
        of_batches: what its function is.
        options: of `parallelize`.
    """

    def __init__(
        self, model: Any, name: str, of_batches: type[_OfBatches], options: Mapping[str, Any]
    ) -> None:
        self._model = model
        self._name = name
        self._of_batches = of_batches
        self._options = dict(options)

    def __call__(self, force: bool = False) -> Any:
        """As Keras calls it.

        Raises:
            OptionError: if the model was compiled to run eagerly.
        """
        model, name = self._model, self._name
        if model.run_eagerly:
            raise OptionError(
                "a parallel model runs as a graph. Got model.compile(run_eagerly=True); leave it "
                "out, or debug the model without tensoropt.parallelize."
            )
        if force or getattr(model, f"{name}_function") is None:

            def step(data: Any) -> Any:
                return getattr(model, f"{name}_step")(data)

            # As Keras has it: Python's conditions in a train_step are Python's.
            own = ParallelStep(tf.autograph.experimental.do_not_convert(step), self._options)
            function = self._of_batches(own, model.steps_per_execution)
            setattr(model, f"{name}_function", function)
        return getattr(model, f"{name}_function")


class _OfBatches:
    """Runs a step on one batch after another.

    Args:
        step: of one batch.
        count: on how many at a time, Keras's ``steps_per_execution``.
    """

    def __init__(self, step: ParallelStep, count: int) -> None:
        self._step = step
        self._count = count

    @property
    def plan(self) -> Plan | None:
        """Of the last batch; None before."""
        return self._step.plan

    def _run(self, data: Any) -> Any:
        """Of one batch; without what is absent in it, as Keras writes it."""
        if any(isinstance(each, tf.experimental.Optional) for each in tf.nest.flatten(data)):
            data = tf.nest.map_structure(
                lambda each: None if isinstance(each, tf.experimental.Optional) else each, data
            )
        return self._step(data)


class _LastOfBatches(_OfBatches):
    """Of a training or an evaluation: what the last batch gives."""

    def __call__(self, iterator: Iterator[Any]) -> Any:
        """Run the next batches; StopIteration where there is none."""
        outputs = None
        for _ in range(self._count):
            try:
                data = next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if outputs is None:
                    raise
                break
            outputs = self._run(data)
        return outputs


class _AllOfBatches(_OfBatches):
    """Of a prediction: what all batches give."""

    def __call__(self, batches: list[Any]) -> Any:
        """Run some batches."""
        outputs = [self._run(data) for data in batches]
        if len(outputs) == 1:
            return outputs[0]
        return tf.nest.map_structure(lambda *each: tf.concat(each, axis=0), *outputs)
