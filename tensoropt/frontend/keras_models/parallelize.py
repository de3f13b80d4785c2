"""``parallelize``: a Keras model, or a training step, planned and run on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, overload

from tensoropt.errors import OptionError, StateError
from tensoropt.frontend.inputs.batches.shared_draws import share_draws
from tensoropt.frontend.job.job import started
from tensoropt.frontend.keras_models.keras_package import package_of, variables_of
from tensoropt.frontend.keras_models.training_functions import (
    install_training_functions,
    is_installed,
)
from tensoropt.frontend.keras_models.training_loops import loop_on_all_ranks
from tensoropt.frontend.saving.tensorflow_files import on_first_rank
from tensoropt.frontend.steps.parallel_step import ParallelStep, checked_options
from tensoropt.frontend.steps.parallel_step import parallelize as parallel_step

__all__ = ["parallelize"]

_Model = TypeVar("_Model")

_PredictOn = Literal["all", "first"]


@overload
def parallelize(
    step: Callable[..., Any], predict_on: _PredictOn = "all", **options: Any
) -> ParallelStep: ...


@overload
def parallelize(step: _Model, predict_on: _PredictOn = "all", **options: Any) -> _Model: ...


def parallelize(step: Any, predict_on: _PredictOn = "all", **options: Any) -> Any:
    """Plan a Keras model, or a training step, and run it on all ranks.

    **A model** of Keras 3 or of tf_keras, compiled or not, is changed in place and returned. Use it
    as before, on every rank with the same data: ``fit``, ``evaluate``, ``predict``, and their
    methods for one batch. The first training batch plans it (`find_strategy`). If it is compiled
    again, for example with other trainable layers, it is planned again. The plan is
    ``model.train_function.plan``. The history that ``fit`` returns has predicted and measured costs
    of a step as ``history.tensoropt``, a dictionary like that of `summary`. Evaluations and
    predictions are planned, too: weights stay in the layouts of the training plan, and each rank
    computes its part of a batch. When the model is saved, by ``save``, ``save_weights``, ``export``
    or Keras's callbacks, the first rank writes the files. Only the first rank shows Keras's
    progress.

    **A step** is called as before, on every rank with the *global* batch: arrays, tensors and
    structures of them, including ragged and sparse tensors. It is traced with the shapes of the
    first call, and again for other shapes, as by ``tf.function(reduce_retracing=True)``. The first
    dimension of an array counts examples. The first call plans the computation that
    ``GradientTape.gradient`` differentiates (`find_strategy`), and each rank computes its part. A
    function that loops over a data set runs eagerly, and the body of its loop is the step. The
    step's variables keep their values in the layouts of the plan. When the script reads a variable,
    all ranks must read it, and it is gathered. Values that the script assigns go to the next step.
    A function without gradients, such as an evaluation, uses the variables where the training step
    has them, and is planned for these layouts. If it takes less than about a millisecond, it is not
    planned.

    The job is started if it is not yet (`init`). The first rank's state of the random generators of
    Python, NumPy and TensorFlow is copied to all ranks, here and at the beginning of each ``fit``,
    so that data shuffled afterwards are shuffled alike.

    Args:
        step: a Keras model, or a function, decorated by ``tf.function`` or not, that returns
            tensors, or structures of tensors and None.
        predict_on: the ranks on which a model's ``predict`` and ``predict_on_batch`` return the
            predictions: "all", or "first", so that the memory of other ranks does not hold all
            predictions. The other ranks then return arrays without rows.
        options: options of `find_strategy`, except ``option="profiling"``, and ``shapes``,
            ``fetches`` and ``feed_dict``, which follow from the call; or ``plan``, a plan or the
            file of a saved one (``step.plan.save``), for the same step and number of devices.

    Returns:
        The model; or a function with the same arguments, which returns the same result on every
        rank and has the plan of its last call as ``plan``.

    Raises:
        StateError: in graph mode, which names of the graph API turn on; for a model that is
            parallel already.
        OptionError: for an object that is neither a function nor a model of Keras on TensorFlow;
            for an option that does not exist, follows from the call, stands beside a plan, or has a
            wrong value.
        PlanError: for a file that is no plan.

    The first call, or batch, raises the errors of `find_strategy`, PlanError for a plan of another
    step, and GraphError for a step that computes gradients inside a loop, runs Python code in its
    graph, captures an iterator, or creates variables in every trace.
    """
    package = package_of(step)
    if predict_on not in get_args(_PredictOn):
        raise OptionError.one_of("predict_on", str(predict_on), get_args(_PredictOn))
    if package is None:
        if predict_on != "all":
            raise OptionError(
                f"a function returns its result on all ranks. Got predict_on={predict_on!r} for a "
                "function; pass a Keras model, or drop the option."
            )
        result, name = parallel_step(step, **options), getattr(step, "__name__", "a step")
    else:
        options = checked_options(options)
        _check_model(step, package.backend.backend())
        result, name = step, step.name
    job = started()
    share_draws(f"parallelize({name})")
    if package is not None:
        # Do not warn of small batches: the last one may be as small as a rank's share, and data
        # that differ between ranks are an error anyway.
        job.warned_of_share = True
        install_training_functions(step, options, predict_on == "all")
        loop_on_all_ranks(step)
        _write_on_first_rank(step)
    return result


def _check_model(model: Any, backend: str) -> None:
    """Check that a model runs on TensorFlow and is not parallel yet.

    Raises:
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


_ENDINGS = (".h5", ".hdf5", ".keras")


def _write_on_first_rank(model: Any) -> None:
    """Make a model's ``save``, ``save_weights`` and ``export`` write on the first rank.

    The other ranks send it the variables that it reads. An error of the first rank is raised on all
    ranks.
    """
    for name in ("save", "save_weights", "export"):
        setattr(model, name, _written(model, name, getattr(model, name)))


def _written(model: Any, name: str, write: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        on_first_rank(
            f"model.{name} of {model.name!r}",
            lambda: write(*args, **kwargs),
            variables_of(model),
            keeps=not _is_keras_file(args, kwargs),
        )

    return call


def _is_keras_file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether Keras writes a format of its own, for which it reads each variable once."""
    paths = map(str, (*args[:1], *kwargs.values()))
    return any(path.endswith(_ENDINGS) for path in paths)
