"""Checkpoints of TensorFlow 2 in slices: each rank writes those of the variables that it holds.

``tf.train.Checkpoint`` makes a list of names and values on the first rank. A variable whose newest
value a step's graph has gives a mark in place of the value. All ranks then write the slices of the
marked variables, and the first rank writes the other values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.checkpoints import files as files
from tensoropt.frontend.saving.first_rank_reads import ask_all, is_sliced, saved_tensor
from tensoropt.frontend.session.session import executor_of
from tensoropt.frontend.steps.step_graph import StepGraph
from tensoropt.frontend.steps.variable_values import newest_of

__all__ = ["Marks", "SlicedWrite"]


class Marks:
    """The marks of variables of one graph of steps: of the first one that is asked for."""

    def __init__(self) -> None:
        self._home: StepGraph | None = None
        self._marked: dict[int, tuple[tf.Tensor, Any]] = {}

    def __call__(self, variable: Any) -> tf.Tensor | None:
        """Return a mark for a variable; None if its value is needed."""
        newest = newest_of(variable)
        if newest is None or not is_sliced(variable) or self._home not in (None, newest[0]):
            return None
        self._home = newest[0]
        mark = tf.constant("tensoropt")
        self._marked[id(mark)] = mark, variable
        return mark

    def variable(self, tensor: Any) -> Any:
        """Return the variable of a mark; None for another tensor."""
        return self._marked.get(id(tensor), (None, None))[1]


class SlicedWrite:
    """One save in slices.

    Args:
        is_beside: whether the slices are copied now, and written later by threads of all ranks.

    Attributes:
        later: the function that writes this rank's copies; None if nothing is to be written later.
    """

    def __init__(self, is_beside: bool) -> None:
        self._is_beside = is_beside
        self._values: dict[str, Any] = {}
        self.later: Callable[[threading.Event], None] | None = None

    def begin(self, path: str, names: Sequence[str], tensors: Sequence[Any], marks: Marks) -> None:
        """Write a checkpoint, or copy it to write it later. The first rank calls this.

        Args:
            path: the name of the checkpoint.
            names: the names of the tensors in the checkpoint.
            tensors: their values, or marks.
            marks: the marks.
        """
        marked = [(name, marks.variable(each)) for name, each in zip(names, tensors, strict=True)]
        self._values = {
            name: np.array(tensor.numpy(), object if tensor.dtype == tf.string else None)
            for (name, variable), tensor in zip(marked, tensors, strict=True)
            if variable is None
        }

        def question(variables: Sequence[Any]) -> Any:
            numbers = {id(variable): number for number, variable in enumerate(variables)}
            entries = [(name, numbers[id(each)]) for name, each in marked if each is not None]
            return {"path": files.absolute(path), "tensors": entries}

        ask_all(question)

    def answer(self, asked: Any, variables: Sequence[Any]) -> None:
        """Write or copy this rank's slices; see `on_first_rank_alone`."""
        entries = [(name, newest_of(variables[number])) for name, number in asked["tensors"]]
        saved = [saved_tensor(newest[1], name) for name, newest in entries if newest is not None]
        values = self._values or {"": np.zeros(())}  # of the other ranks, none is written
        graph = next(newest[0].graph for _, newest in entries if newest is not None)
        with executor_of(graph) as executor:
            if self._is_beside:
                self.later = executor.copied(saved, values, asked["path"])
            else:
                executor.save(saved, values, asked["path"])
        self._values = {}
