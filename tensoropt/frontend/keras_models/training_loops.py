"""Keras's loops on all ranks: only the first rank shows progress and keeps callbacks' files."""

from __future__ import annotations

import functools
import inspect
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tensoropt.frontend.inputs.batches.shared_draws import share_draws
from tensoropt.frontend.job.job import current
from tensoropt.frontend.keras_models.backups import Backups
from tensoropt.frontend.keras_models.keras_package import package_of
from tensoropt.frontend.keras_models.model_input import ModelInput
from tensoropt.frontend.measuring.run_summary import costs
from tensoropt.temporary_folder import temporary_folder

__all__ = ["loop_on_all_ranks"]


def loop_on_all_ranks(model: Any) -> None:
    """Let all ranks call a model's ``fit``, ``evaluate``, ``predict``, and their methods for one
    batch."""
    model_input = ModelInput(model)
    for name in ("fit", "evaluate", "predict"):
        setattr(model, name, _looped(model, name, getattr(model, name), model_input))
    for name in ("train_on_batch", "test_on_batch", "predict_on_batch"):
        setattr(model, name, _agreed(model, name, getattr(model, name)))


def _looped(
    model: Any, name: str, loop: Callable[..., Any], model_input: ModelInput
) -> Callable[..., Any]:
    signature = inspect.signature(loop)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        label = f"model.{name} of {model.name!r}"
        backups = Backups(model, given.arguments) if name == "fit" else None
        if backups is not None:
            backups.read_last()
            share_draws(label)
        else:
            current().agreement.check(label)
        with ExitStack() as stack:
            if current().group.rank > 0:
                stack.enter_context(_silent(package_of(model), given.arguments))
            if current().group.local_rank() > 0:
                stack.enter_context(_idle_workers(package_of(model), given.arguments))
            if backups is not None:
                stack.enter_context(backups.watched())
            counted = None if backups is None else backups.counted
            takes_rounds = _takes_rounds(package_of(model), name, given.arguments)
            stack.enter_context(model_input.loop(name, counted, takes_rounds))
            result = loop(*given.args, **given.kwargs)
        running = getattr(model.train_function, "running", None)
        if name == "fit" and result is not None and running is not None:
            result.tensoropt = {"ranks": running.plan.devices, **costs(running)}
        return result

    return call


def _takes_rounds(keras: Any, name: str, arguments: dict[str, Any]) -> bool:
    """Whether a loop may run batches side by side: it reads all of its data, and no callback reads
    the metrics between the batches of an evaluation."""
    if name == "fit" or arguments.get("steps") is not None:
        return False
    kinds = keras.callbacks
    given = arguments.get("callbacks")
    given = getattr(given, "callbacks", given)
    callbacks = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
    return name == "predict" or all(
        isinstance(callback, (kinds.ProgbarLogger, kinds.History))
        or all(
            getattr(getattr(callback, method), "__func__", None) is getattr(kinds.Callback, method)
            for method in ("on_test_batch_begin", "on_test_batch_end")
        )
        for callback in callbacks
    )


def _agreed(model: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        current().agreement.check(f"model.{name} of {model.name!r}")
        return function(*args, **kwargs)

    return call


@contextmanager
def _idle_workers(keras: Any, arguments: dict[str, Any]) -> Iterator[None]:
    """A context for ranks that get their rows from the first rank of their machine: Keras starts no
    workers that would make batches ahead."""
    if "workers" in arguments:  # of tf_keras
        arguments["workers"] = 1
    kind = getattr(keras.utils, "PyDataset", ())
    given = [arguments.get(name) for name in ("x", "validation_data")]
    before = [(each, each.workers) for each in given if isinstance(each, kind)]
    for each, _ in before:
        each.workers = 1
    try:
        yield
    finally:
        for each, workers in before:
            each.workers = workers


@contextmanager
def _silent(keras: Any, arguments: dict[str, Any]) -> Iterator[None]:
    """A context for ranks other than the first: they show nothing, and Keras's callbacks write to a
    folder that is removed.

    The callbacks run because they read the model's variables, which all ranks must do together.
    """
    arguments["verbose"] = 0
    given = arguments.get("callbacks")
    if isinstance(given, keras.callbacks.CallbackList):
        callbacks = list(given.callbacks)
    else:
        callbacks = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
        sends = keras.callbacks.RemoteMonitor
        arguments["callbacks"] = [
            callback for callback in callbacks if not isinstance(callback, sends)
        ]
    shows = keras.utils.is_interactive_logging_enabled()
    keras.utils.disable_interactive_logging()
    with ExitStack() as stack:
        for callback in callbacks:
            stack.enter_context(_elsewhere(keras, callback))
        try:
            yield
        finally:
            if shows:
                keras.utils.enable_interactive_logging()


@contextmanager
def _elsewhere(keras: Any, callback: Any) -> Iterator[None]:
    """A context in which a callback of Keras writes to a temporary folder, with a copy of its
    backups."""
    paths = {
        keras.callbacks.ModelCheckpoint: "filepath",
        keras.callbacks.CSVLogger: "filename",
        keras.callbacks.TensorBoard: "log_dir",
        keras.callbacks.BackupAndRestore: "backup_dir",
    }
    named = [attribute for kind, attribute in paths.items() if isinstance(callback, kind)]
    if not named:
        yield
        return
    before = str(getattr(callback, named[0]))
    kept = {name: value for name, value in vars(callback).items() if isinstance(value, str)}
    kept = {name: value for name, value in kept.items() if value.startswith(before)}
    with temporary_folder() as folder:
        after = str(folder / Path(before).name)
        if isinstance(callback, keras.callbacks.BackupAndRestore) and Path(before).is_dir():
            shutil.copytree(before, after)
        for name, value in kept.items():
            setattr(callback, name, after + value.removeprefix(before))
        try:
            yield
        finally:
            for name, value in kept.items():
                setattr(callback, name, value)
