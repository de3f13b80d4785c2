"""``in_shares``: the input of a loop over a parallel step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.execution.agreement.fed_values import ReadArrays
from tensoropt.execution.world.shares import RowsTable
from tensoropt.frontend.inputs.batches.shared_draws import share_draws
from tensoropt.frontend.inputs.batches.sources import SharedBatches
from tensoropt.frontend.inputs.batches.waiting import InputWait, Lines
from tensoropt.frontend.job.job import started

__all__ = ["in_shares"]


def in_shares(dataset: tf.data.Dataset, step: Any) -> Any:
    """Return the batches of a data set, of which each rank makes only the rows that it reads.

    Iterate over the result as over the data set, and call the step with the parts of an element::

        step = tensoropt.parallelize(train_step)
        for images, labels in tensoropt.in_shares(dataset, step):
            step(images, labels)

    The batches are those of the data set, in the same order in each iteration. Maps below the last
    batching operator run only for this rank's examples, where TensorFlow's random state allows it.
    Where a data set cannot be split, for example a generator of Python, the first rank of each
    machine makes the batches and sends the other ranks their rows; a line says so.

    Args:
        dataset: the data set of global batches, the same on all ranks.
        step: the step of `parallelize` that is called with the elements.

    Returns:
        An iterable. The parts of its elements are `Share` objects, whose shape is that of the
        global batch, or whole arrays. In a job of one process it is the data set itself.

    Raises:
        OptionError: if the step is not one of `parallelize`, or the data set not a
            ``tf.data.Dataset``.
    """
    if not hasattr(step, "rows_of_batch") or not isinstance(dataset, tf.data.Dataset):
        raise OptionError(
            "in_shares takes a tf.data.Dataset and a step of tensoropt.parallelize. Got "
            f"{type(dataset).__name__} and {type(step).__name__}; Keras models read shares in "
            "fit, evaluate and predict by themselves."
        )
    return dataset if started().group.size == 1 else _StepInput(dataset, step)


class _StepInput:
    """A data set in a loop of the script; a `Reader`."""

    def __init__(self, dataset: tf.data.Dataset, step: Any) -> None:
        self._batches = SharedBatches(dataset, self)
        self._step = step
        self.compared: defaultdict[str, ReadArrays] = defaultdict(ReadArrays)
        self.lines = Lines()
        self.step = f"{getattr(step, '__name__', 'a step')}(...)"
        self.label = f"in_shares for {self.step}"
        self.function = self
        self.wait = InputWait()
        self.is_sent = self.takes_rounds = False

    @property
    def element_spec(self) -> Any:
        """The specification of global batches."""
        return self._batches.dataset.element_spec

    def __iter__(self) -> Iterator[Any]:
        yield from iter(self._batches)
        self.report()
        if self.is_sent:
            share_draws(f"the end of {self.label}")
            self.is_sent = False

    def rows_of_batch(self, element: Any, spec: Any) -> RowsTable | None:
        """See `ParallelStep.rows_of_batch`."""
        is_tuple = type(spec) is tuple
        args, specs = (element, spec) if is_tuple else ((element,), (spec,))
        rows: RowsTable | None = self._step.rows_of_batch(tuple(args), tuple(specs))
        return rows

    def report(self) -> None:
        """Tell once how long steps waited for input. All ranks call this."""
        self.lines.tell_wait(self.label, self.wait, self._step.running)
