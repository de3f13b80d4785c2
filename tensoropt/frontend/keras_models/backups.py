"""Backups of Keras's ``BackupAndRestore``, from which ``fit`` goes on within an epoch.

Keras 3 writes the weights and then a file with the epoch and the batch, of which it reads the epoch
alone. Here one file has everything, and takes the place of the one before in one go: the weights,
the epoch and the batch, the position in the data, the states of random generators, and the values
of metrics. It is Keras's file of weights with one more entry, so Keras alone reads it, too.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from tensoropt.converters import Natural, from_values, to_values
from tensoropt.elastic.rank_variables import tell_checkpoint
from tensoropt.frontend.inputs.batches.counted import CountedBatches
from tensoropt.frontend.inputs.batches.shared_draws import generator_states, set_generators
from tensoropt.frontend.job.job import current
from tensoropt.frontend.keras_models.keras_package import unsaved_variables, variables_of
from tensoropt.frontend.saving.tensorflow_files import on_first_rank
from tensoropt.frontend.session.step_draws import go_on_from, step_counters
from tensoropt.json_files import write_json
from tensoropt.tensorflow_private import context

__all__ = ["Backups"]

_KIND = "BackupAndRestore"
_ENTRY = "tensoropt"  # of Keras's file of weights
_RULE, _REMEDY = "a backup has a position in the data", "Remove the folder of backups."
_LOADED = "_maybe_load_initial_counters_from_ckpt"  # of a model of tf_keras
_OF_BATCHES = ("on_train_batch_begin", "on_batch_begin", "on_train_batch_end", "on_batch_end")


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a training in its epochs and its data.

    Attributes:
        epoch: the current epoch, from 0.
        batch: the batches of the epoch that are trained.
        iterators: iterators of the data that were made and left.
        batches: batches that were read from the iterator after them.
        seed: TensorFlow's global seed; None if there is none.
        generators: the states of Python's and NumPy's generators at the beginning of the epoch, as
            JSON.
        draws: the counters of random operators in steps, as JSON (`step_counters`).
        states: the states of the model's random generators, as JSON.
        metrics: the values of its metrics' variables, as JSON.
    """

    epoch: Natural
    batch: Natural
    iterators: Natural
    batches: Natural
    seed: int | None
    generators: str
    draws: str
    states: str
    metrics: str


class Backups:
    """The backups of one ``fit``. All ranks make one."""

    def __init__(self, model: Any, arguments: dict[str, Any]) -> None:
        given = arguments.get("callbacks")
        given = getattr(given, "callbacks", given)
        self._callbacks = list(given) if isinstance(given, (list, tuple)) else [given]
        self._model = model
        self._keeps_iterator = arguments.get("steps_per_epoch") is not None
        self._data: CountedBatches | None = None
        self._epoch = self._batch = 0
        self._generators = generator_states()
        # The position of the last backup, until the first epoch of this `fit` has ended.
        self._last: _Position | None = None

    def read_last(self) -> None:
        """Read the position of the last backup, and take over its TensorFlow seed, by which data
        are ordered."""
        files = [Path(each._weights_path) for each in self._of("_save_model")]
        found = _read(files[0]) if files and current().group.rank == 0 else None
        if not files:
            return
        label = f"the backup of {self._model.name!r}"
        values = current().agreement.gather(label, found)[0]
        if values is None:
            return
        self._last = from_values(_Position, values, _RULE, _REMEDY)
        if self._last.seed is not None and self._last.seed != context.global_seed():
            tf.random.set_seed(self._last.seed)
        go_on_from(json.loads(self._last.draws))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A context for ``fit``, whose first epoch goes on from the last backup."""
        with ExitStack() as stack:

            def replace(owner: Any, name: str, call: Callable[..., Any]) -> None:
                """Let ``call`` replace a method, which comes before its arguments."""
                is_own, before = name in vars(owner), getattr(owner, name)
                setattr(owner, name, partial(call, before))
                if is_own:
                    stack.callback(setattr, owner, name, before)
                else:
                    stack.callback(delattr, owner, name)

            if self._last is not None and self._last.batch:
                for callback in self._callbacks:
                    for name in _OF_BATCHES:
                        replace(callback, name, self._batch_heard)
            for backup in self._of("_backup"):  # of tf_keras
                replace(backup, "_backup", _told)
                if hasattr(self._model, _LOADED):
                    replace(self._model, _LOADED, self._loaded)
            for number, backup in enumerate(self._of("_save_model")):
                replace(backup, "_save_model", partial(self._save, backup))
                if number == 0:
                    replace(backup, "on_epoch_begin", self._epoch_begins)
                    replace(backup, "on_train_batch_end", self._batch_ends)
                    replace(backup, "on_epoch_end", self._epoch_ends)
            yield

    def counted(self, dataset: Any) -> Any:
        """Return the first data set, which is the training data, as one that counts its batches.

        Other data sets are returned as they are.
        """
        if self._data is not None or not (self._of("_save_model") or self._of("_backup")):
            return dataset
        self._data = CountedBatches(dataset)
        return self._data

    def _of(self, method: str) -> list[Any]:
        """The callbacks that back up by this method."""
        return [
            each
            for each in self._callbacks
            if hasattr(each, method) and any(kind.__name__ == _KIND for kind in type(each).__mro__)
        ]

    # Calls of callbacks

    def _batch_heard(
        self, before: Callable[..., Any], batch: int, *args: Any, **kwargs: Any
    ) -> None:
        """Leave out a call about a batch that was trained before."""
        if self._last is None or batch >= self._last.batch:
            before(batch, *args, **kwargs)

    def _epoch_begins(self, before: Callable[..., Any], epoch: int, *args: Any) -> None:
        self._epoch, self._batch = epoch, 0
        if self._last is not None:
            self._go_on(self._last)
        self._generators = generator_states()
        before(epoch, *args)

    def _batch_ends(
        self, before: Callable[..., Any], batch: int, *args: Any, **kwargs: Any
    ) -> None:
        self._batch = batch + 1
        before(batch, *args, **kwargs)

    def _epoch_ends(self, before: Callable[..., Any], epoch: int, *args: Any) -> None:
        self._last = None
        self._epoch, self._batch = epoch + 1, 0
        self._generators = generator_states()
        before(epoch, *args)

    def _loaded(
        self, before: Callable[..., tuple[int, int]], steps: int | None, first: int
    ) -> tuple[int, int]:
        """The epoch and batch at which ``fit`` of tf_keras begins; the data begin there, too."""
        epoch, batch = map(int, before(steps, first))
        if self._data is not None:
            self._data.go_on_at(epoch - first, int(steps or 0), batch)
        return epoch, batch

    def _go_on(self, last: _Position) -> None:
        """Go on from a backup, at the beginning of the first epoch. Its weights are loaded."""
        model = self._model
        set_generators(last.generators)
        if self._data is not None:
            self._data.go_on(last.iterators, max(0, last.batches - last.batch))
        states, _ = unsaved_variables(model)
        _assign(states, last.states)
        if last.batch:
            model.train_function.leave_out(
                last.batch, lambda: _assign(unsaved_variables(model)[1], last.metrics)
            )

    def _position(self) -> _Position:
        data, has_left = self._data, not self._batch and not self._keeps_iterator
        made, read = (1, self._batch) if data is None else (data.iterators, data.batches)
        states, metrics = map(_values, unsaved_variables(self._model))
        return _Position(
            self._epoch,
            self._batch,
            made if has_left else made - 1,
            0 if has_left else read,
            context.global_seed(),
            self._generators,
            json.dumps(step_counters()),
            states,
            metrics,
        )

    def _save(self, backup: Any, _: Callable[..., Any]) -> None:
        """Back up in place of Keras. All ranks call this, and the first one writes."""
        path = Path(backup._weights_path)
        described = {"epoch": self._epoch, "batch": self._batch}  # for Keras alone

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            made = path.with_name("saving.weights.h5")
            self._model.save_weights(str(made), overwrite=True)
            _write(made, self._position())
            if getattr(backup, "double_checkpoint", False) and path.exists():
                shutil.copyfile(path, backup._prev_weights_path)
            made.replace(path)
            write_json(Path(backup._training_metadata_path), described)

        label = f"the backup of {self._model.name!r}"
        on_first_rank(label, write, variables_of(self._model), keeps=False)
        if current().group.rank == 0:
            tell_checkpoint()


def _told(before: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    before(*args, **kwargs)
    if current().group.rank == 0:
        tell_checkpoint()


def _values(variables: Sequence[Any]) -> str:
    """The values of variables, as JSON."""
    return json.dumps([np.asarray(variable).tolist() for variable in variables])


def _assign(variables: Sequence[Any], values: str) -> None:
    """Assign values of `_values`, if they are of these variables: a script may change metrics."""
    arrays = [np.array(value) for value in json.loads(values)]
    if [array.shape for array in arrays] == [tuple(variable.shape) for variable in variables]:
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array.astype(variable.dtype))


def _write(path: Path, position: _Position) -> None:
    """Write a position into a file of weights, and the file to the disk."""
    text = json.dumps(to_values(position)).encode()
    with h5py.File(path, "r+") as file:
        file[_ENTRY] = np.frombuffer(text, np.uint8)
    with path.open("rb") as written:
        os.fsync(written.fileno())


def _read(path: Path) -> Any:
    """The JSON values of a file's position; None if there is no such file, or Keras alone wrote it.

    A damaged file is left to Keras, which takes the one before.
    """
    try:
        with h5py.File(path, "r") as file:
            return json.loads(file[_ENTRY][()].tobytes()) if _ENTRY in file else None
    except OSError:
        return None
