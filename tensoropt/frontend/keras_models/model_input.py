"""The input of Keras's loops: this process's rows of each batch, in place of whole batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from tensoropt.execution.agreement.fed_values import ReadArrays
from tensoropt.frontend.inputs.batches.shared_draws import share_draws
from tensoropt.frontend.inputs.batches.sources import SharedBatches
from tensoropt.frontend.inputs.batches.waiting import InputWait, Lines
from tensoropt.frontend.job.job import current
from tensoropt.frontend.keras_models.array_input import arrays_in_order

__all__ = ["ModelInput"]


_FUNCTIONS = {"fit": "train", "evaluate": "test", "predict": "predict"}


class ModelInput:
    """The data sets that a model's loops read.

    While a loop runs, Keras gets a data set whose iterators give shares to the model's function. An
    iterator is made whenever Keras makes one, so shuffles draw as in one process.

    Args:
        model: the model, whose functions run batches.

    Attributes:
        compared: see `Reader`.
        lines: lines about the input.
        is_sent: whether the first rank has sent rows in the outermost loop.
        takes_rounds: whether the current loop may run batches in rounds.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._loops: list[str] = []
        self.compared: defaultdict[str, ReadArrays] = defaultdict(ReadArrays)
        self.lines = Lines()
        self.is_sent = self.takes_rounds = False
        self._waits: dict[str, InputWait] = {}

    @contextmanager
    def loop(
        self,
        name: str,
        counted: Callable[[Any], Any] | None = None,
        takes_rounds: bool = False,
    ) -> Iterator[None]:
        """A context in which Keras reads data sets for ``fit``, ``evaluate`` or ``predict``.

        Args:
            name: the loop.
            counted: makes a data set that Keras gets of each one that it would get.
            takes_rounds: see above.
        """
        job = current()
        is_shared = job.is_mpi and job.group.size > 1
        if tf.distribute.has_strategy() or (not is_shared and counted is None):
            yield
            return
        counted = counted or (lambda dataset: dataset)
        self._loops.append(name)
        took_rounds, self.takes_rounds = self.takes_rounds, takes_rounds
        self._waits[name] = InputWait()
        strategy = tf.distribute.get_strategy()
        before = vars(strategy).get("experimental_distribute_dataset")
        strategy.experimental_distribute_dataset = lambda dataset, *_: counted(
            SharedBatches(dataset, self) if is_shared else dataset
        )
        try:
            with arrays_in_order() if is_shared else nullcontext():
                yield
            if is_shared:
                self.report()
            if self.is_sent and len(self._loops) == 1:
                # The other ranks have not drawn what the first rank has drawn.
                share_draws(f"the end of {self.label}")
                self.is_sent = False
        finally:
            self._loops.pop()
            self.takes_rounds = took_rounds
            if before is None:
                del strategy.experimental_distribute_dataset
            else:
                strategy.experimental_distribute_dataset = before

    @property
    def label(self) -> str:
        """The current loop as the script calls it."""
        return f"model.{self._loops[-1]} of {self._model.name!r}"

    @property
    def step(self) -> str:
        """The current loop's step, as errors name it."""
        return f"{self._model.name}.{_FUNCTIONS[self._loops[-1]]}_step(...)"

    @property
    def function(self) -> Any:
        """The model's function of the current loop; None before Keras has made it."""
        return getattr(self._model, f"{_FUNCTIONS[self._loops[-1]]}_function", None)

    @property
    def wait(self) -> InputWait:
        """The time that steps of the current loop have waited for input."""
        return self._waits[self._loops[-1]]

    def report(self) -> None:
        """Tell once how long the steps of ``fit`` waited for input. All ranks call this."""
        if self._loops[-1] == "fit":
            running = getattr(self.function, "running", None)
            self.lines.tell_wait(self.label, self.wait, running)
