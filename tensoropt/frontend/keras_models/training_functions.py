"""The functions that run a batch of a parallel Keras model: steps of TensorOpt."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.execution.world.shares import RowsTable
from tensoropt.frontend.inputs.batches.rounds import OwnBatch
from tensoropt.frontend.job.job import Running, current
from tensoropt.frontend.keras_models.keras_package import (
    as_called,
    count_batch,
    make_slots,
    planned_steps,
    steps_per_execution,
)
from tensoropt.frontend.keras_models.own_batches import OwnBatches
from tensoropt.frontend.steps.parallel_step import ParallelStep
from tensoropt.frontend.steps.traced_step import TracedStep
from tensoropt.plan import Plan

__all__ = ["install_training_functions", "is_installed"]

_PARTS = 3
"""Largest number of parts of a batch: inputs, targets and weights."""


def install_training_functions(
    model: Any, options: Mapping[str, Any], predict_on_all: bool = True
) -> None:
    """Make a model's ``fit``, ``evaluate`` and ``predict`` run steps of TensorOpt.

    Args:
        model: a Keras model that has no functions of its own yet.
        options: options of `parallelize`.
        predict_on_all: whether predictions are returned on all ranks, not on the first one alone.
    """
    for name in ("train", "test", "predict"):
        setattr(model, f"{name}_function", None)
        on_all = predict_on_all or name != "predict"
        setattr(model, f"make_{name}_function", _Make(model, name, options, on_all))


def is_installed(model: Any) -> bool:
    """Whether `install_training_functions` has been called for a model."""
    return isinstance(vars(model).get("make_train_function"), _Make)


class _Make:
    """Replaces a model's ``make_train_function`` and its like, which Keras calls before batches.

    It sets the model's function if that is None.

    Args:
        model: the model.
        name: "train", "test" or "predict".
        options: options of `parallelize`.
        returns_on_all: see `_BatchFunction`.
    """

    def __init__(
        self, model: Any, name: str, options: Mapping[str, Any], returns_on_all: bool
    ) -> None:
        self._model = model
        self._name = name
        self._options = dict(options)
        self._returns_on_all = returns_on_all

    def __call__(self, force: bool = False) -> Any:
        """The model's function; Keras calls this.

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
            parallel = ParallelStep(
                as_called(model, step), self._options, functools.partial(planned_steps, model)
            )
            function = _BatchFunction(parallel, model, name, self._returns_on_all)
            setattr(model, f"{name}_function", function)
        return getattr(model, f"{name}_function")


class _BatchFunction:
    """Runs a model's step on one batch after another.

    Args:
        step: the step for one batch.
        model: the model, which knows the number of batches at a time.
        name: "train", "test" or "predict".
        returns_on_all: whether all ranks return the results. Otherwise ranks other than the first
            return results without rows.
    """

    def __init__(self, step: ParallelStep, model: Any, name: str, returns_on_all: bool) -> None:
        self._step = step
        self._model = model
        self._name = name
        self._returns_on_all = returns_on_all
        self._own = OwnBatches(step)
        self._judged: tuple[TracedStep, bool] | None = None
        self._left_out = 0
        self._go_on: Callable[[], object] = lambda: None

    def leave_out(self, batches: int, go_on: Callable[[], object]) -> None:
        """Read batches without a step, since they were trained before.

        Args:
            batches: the number of next batches to read.
            go_on: is called after them, when the step is traced.
        """
        self._left_out, self._go_on = batches, go_on

    @property
    def plan(self) -> Plan | None:
        """The plan of the last batch; None before."""
        return self._step.plan

    @property
    def running(self) -> Running | None:
        """The graph of the last batch; None before."""
        return self._step.running

    def __call__(self, batches: Iterable[Any]) -> Any:
        """Run the next batches of an iterator, or those of a list.

        Returns:
            For a prediction, the results of all batches, concatenated; else those of the last one.
            If all are left out, nothing, and the metrics after the last of them.

        Raises:
            StopIteration, OutOfRangeError: if there is no batch.
        """
        iterator, results = iter(batches), list[Any]()
        spec = getattr(batches, "element_spec", None)
        for _ in range(steps_per_execution(self._model)):
            try:
                data = next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if not results:
                    raise
                break
            if not self._left_out:
                results.append(self._run(data, spec))
                continue
            self._left_out -= 1
            if not self._left_out:
                self.rows_of_batch(data, spec)  # traces the step
                self._go_on()
        if not results:
            return {} if self._left_out else self._model.get_metrics_result()
        if self._name != "predict" or len(results) == 1:
            return results[-1]
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *results)

    def rows_of_batch(self, data: Any, spec: Any) -> RowsTable | None:
        """The rows that this process reads of batches; see `ParallelStep.rows_of_batch`.

        Args:
            data: a batch of the largest size.
            spec: see `_run`.
        """
        parts, specs = _arguments(data, spec)
        return self._step.rows_of_batch(parts, parts if specs is None else specs)

    def runs_own(self, data: Any, spec: Any) -> bool:
        """Whether each rank can run a batch of its own, as `OwnBatches` does.

        A prediction must not depend on the batches before. An evaluation must return nothing but
        metrics, which are sums over batches.

        Args:
            data: a batch.
            spec: see `_run`.
        """
        parts, specs = _arguments(data, spec)
        traced = self._own.trace(parts, parts if specs is None else specs)
        if traced is None or self._name == "predict":
            return traced is not None and not self._own.variables
        if self._judged is None or self._judged[0] is not traced:
            self._judged = traced, self._returns_metrics(traced)
        return self._judged[1]

    def _returns_metrics(self, traced: TracedStep) -> bool:
        """Whether a step returns metrics alone, which are computed here to learn their names."""
        outputs = traced.outputs
        return (
            isinstance(outputs, dict) and outputs.keys() == self._model.get_metrics_result().keys()
        )

    def _run(self, data: Any, spec: Any) -> Any:
        """The result of one batch, or of the next batch of a round."""
        if isinstance(data, OwnBatch):
            if not data.outputs:
                parts, specs = _arguments(data.element, spec)
                data.outputs = self._own.run(parts, specs, data.is_first, data.is_last)
            output = data.outputs.pop(0)
        else:
            parts, specs = _arguments(data, spec)
            output = self._step(*parts) if specs is None else self._step.on_elements(parts, specs)
        count_batch(self._model, self._name)
        if self._returns_on_all or current().group.rank == 0:
            return output
        dense = (tf.Tensor, tf.RaggedTensor)
        return tf.nest.map_structure(
            lambda leaf: leaf[:0] if isinstance(leaf, dense) and leaf.shape.rank else leaf, output
        )


def _arguments(data: Any, spec: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """The arguments of a step for a batch, and their specifications.

    Parts that Keras marks as absent become None.
    """
    if any(isinstance(leaf, tf.experimental.Optional) for leaf in tf.nest.flatten(data)):
        data = tf.nest.map_structure(
            lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, data
        )
    count = len(data) if type(data) is tuple and len(data) <= _PARTS else 0
    absent = (None,) * (_PARTS - (count or 1))
    parts = (*(data if count else (data,)), *absent, count)
    if spec is None:
        return parts, None
    return parts, (*(spec if count else (spec,)), *absent, None)
