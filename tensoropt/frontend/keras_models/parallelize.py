"""``parallelize``: a Keras model, or a training step, planned and run on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from tensoropt.errors import OptionError, StateError
from tensoropt.frontend.job.job import current, init, is_initialized
from tensoropt.frontend.keras_models.keras_package import package_of
from tensoropt.frontend.keras_models.on_all_ranks import write_on_first_rank
from tensoropt.frontend.keras_models.shared_draws import share_draws
from tensoropt.frontend.keras_models.training_functions import (
    install_training_functions,
    is_installed,
)
from tensoropt.frontend.keras_models.training_loops import loop_on_all_ranks
from tensoropt.frontend.steps.parallel_step import ParallelStep, check_options
from tensoropt.frontend.steps.parallel_step import parallelize as parallel_step

__all__ = ["parallelize"]

_Model = TypeVar("_Model")


@overload
def parallelize(step: Callable[..., Any], **options: Any) -> ParallelStep: ...


@overload
def parallelize(step: _Model, **options: Any) -> _Model: ...


def parallelize(step: Any, **options: Any) -> Any:
    """A Keras model that trains on all ranks, or a training step that runs on them, by a plan.

    **A model** of Keras 3, or of tf_keras, compiled or not, is the one given, which is used as
    before, on every rank with the same data: ``fit``, ``evaluate``, ``predict``, and what they do
    of one batch. The first batch of a training plans it (`find_strategy`); compiling it again, as
    for other trainable layers, plans it again. Its plan is ``model.train_function.plan``; what
    ``fit`` returns has predicted and measured costs of a step as ``history.tensoropt``, a
    dictionary as of `summary`. Evaluations and predictions are computed whole on every rank. Where
    the model is saved, by its ``save``, ``save_weights`` and ``export`` or by Keras's callbacks,
    the first rank writes; it alone shows Keras's progress.

    **A step** is called as before, on every rank with the *global* batch: arrays, tensors and
    structures of them, ragged and sparse tensors too. It is traced with the shapes of the first
    call, and again where others come, as by ``tf.function(reduce_retracing=True)``; the first
    dimension of an array counts examples. What ``GradientTape.gradient`` differentiates in
    it is planned by the first call (`find_strategy`), and each rank computes its part. A function
    that loops over a data set is run eagerly, and the body of its loop is the step. Variables
    that it reads keep their values in the layouts of the plan; where the script reads one, it is
    put together, on all ranks: they all read it. What the script assigns goes to the next step.
    A function without gradients, as an evaluation, is not planned: every rank computes all of it.

    The job is started where it is not (`init`). Random numbers of Python, NumPy and TensorFlow go
    on from the first rank's on all ranks, from here on and from the beginning of each ``fit``: data
    that are shuffled afterwards are shuffled alike.

    Args:
        step: a Keras model, or a function, decorated by ``tf.function`` or
            not, that returns tensors, or structures of tensors and None.
        options: of `find_strategy`, but for ``option="profiling"``, ``shapes``, ``fetches`` and
            ``feed_dict``, which follow from the call; or ``plan``, a plan or a file that one was
            saved to (``step.plan.save``), which is for the same step and number of devices.

    Returns:
        The model; or a function of the same arguments, which returns the same on every rank, and
        has the plan of its last call as ``plan``.

    Raises:
        StateError: in graph mode, which names of the graph API turn on; for a model that is
            parallel.
        OptionError: for what is neither a function nor a model of Keras on TensorFlow, an option
            that there is not, that follows from the call or is beside a plan, or a wrong value.
            The first call, or batch, raises what `find_strategy` does, PlanError for a plan of
            another step, and GraphError for a step that asks for gradients inside a loop, runs
            Python code in its graph, captures an iterator, or creates variables each time that it
            is traced.
    """
    package = package_of(step)
    if package is None:
        made, name = parallel_step(step, **options), getattr(step, "__name__", "a step")
    else:
        check_options(options)
        _check_model(step, package.backend.backend())
        made, name = step, step.name
    if not is_initialized():
        init()
    share_draws(f"parallelize({name})")
    if package is not None:
        # A last batch may be as small as a share, and data that differ are an error.
        current().warned_of_share = True
        install_training_functions(step, options)
        loop_on_all_ranks(step)
        write_on_first_rank(step)
    return made


def _check_model(model: Any, backend: str) -> None:
    """Raises:
    StateError, OptionError: see `parallelize`.
    """
    if backend != "tensorflow":
        raise OptionError(
            "TensorOpt trains Keras models on TensorFlow. Got one on Keras's backend "
            f"{backend!r}; set KERAS_BACKEND=tensorflow."
        )
    if is_installed(model):
        raise StateError(
            f"a model is made parallel once. Got {model.name!r} again; keep the first call."
        )
