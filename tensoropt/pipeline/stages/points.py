"""The costs of a stage, which a profile gives to the search of stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import OptionError

__all__ = ["COLUMNS", "Profile", "StagePoints"]


COLUMNS = (
    *("forward", "backward", "once", "fixed", "saved", "inputs"),
    *("sent", "received", "sent_tensors", "received_tensors"),
    *("passed", "returned", "passed_tensors", "returned_tensors"),
)
"""The columns of `StagePoints.values`, which `StagePoints.of` describes."""

Column = int | Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class StagePoints:
    """The ways to run one stage on its devices, with their costs.

    Attributes:
        values: int64[points, 14], a row for each way; the columns are `COLUMNS`.
    """

    values: Int64Array

    def __post_init__(self) -> None:
        shape = self.values.shape
        is_table = self.values.ndim == 2 and shape[0] > 0 and shape[1] == len(COLUMNS)
        if not is_table or self.values.min() < 0:
            raise OptionError(
                "a stage has at least one point of 14 numbers that are not negative. Got an array "
                f"of {list(shape)}{' with negative ones' if self.values.size else ''}; give every "
                "point all 14 numbers."
            )

    @classmethod
    def of(
        cls,
        forward: Column = 0,
        backward: Column = 0,
        once: Column = 0,
        fixed: Column = 0,
        saved: Column = 0,
        inputs: Column = 0,
        sent: Column = 0,
        received: Column = 0,
        sent_tensors: Column = 0,
        received_tensors: Column = 0,
        passed: Column = 0,
        returned: Column = 0,
        passed_tensors: Column = 0,
        returned_tensors: Column = 0,
    ) -> StagePoints:
        """Return points from their columns, each a number or int64[points].

        Args:
            forward: nanoseconds of the forward pass of a microbatch.
            backward: nanoseconds of its backward pass.
            once: nanoseconds after the last microbatch of a step, for sums of gradients among
                replicas and for updates.
            fixed: bytes on a device that do not depend on the schedule: variables, gradients, slots
                and workspace.
            saved: bytes that each microbatch in flight keeps for its backward pass.
            inputs: the received tensors among the saved bytes. With recomputation, they alone stay.
            sent: bytes of a microbatch that a device sends to later stages.
            received: bytes of a microbatch from earlier stages whose gradients are sent back.
            sent_tensors, received_tensors: the numbers of these tensors; each is one message.
            passed: bytes that earlier stages send to later ones past this stage. They count if this
                stage ends where a machine ends.
            returned: bytes of gradients that later stages send to earlier ones past this stage.
                They count if this stage begins where a machine begins.
            passed_tensors, returned_tensors: the numbers of these tensors.
        """
        columns = (
            *(forward, backward, once, fixed, saved, inputs),
            *(sent, received, sent_tensors, received_tensors),
            *(passed, returned, passed_tensors, returned_tensors),
        )
        if all(isinstance(column, int) for column in columns):
            return cls(np.array([columns], dtype=np.int64))
        arrays = np.broadcast_arrays(*(np.atleast_1d(column) for column in columns))
        return cls(np.stack(arrays, axis=1).astype(np.int64))

    @classmethod
    def plain(cls, forward: int, backward: int, memory: int) -> StagePoints:
        """Return one point as RaNNC has it: its memory does not depend on the microbatches."""
        return cls.of(forward, backward, fixed=memory)

    def column(self, name: str) -> Int64Array:
        """Return int64[points]: the named one of `COLUMNS`."""
        return self.values[:, COLUMNS.index(name)]

    def __len__(self) -> int:
        return len(self.values)


Profile = Callable[[int, int, int, int, int], "StagePoints | None"]
"""``profile(first, last, devices, microbatch, copies)`` returns the costs of a stage.

The stage has the blocks ``first`` to ``last``, both included, on ``devices`` devices. A microbatch
has ``microbatch`` examples, and there are ``copies`` copies of the whole pipeline. The result is
None if the stage cannot run so (there are fewer examples than devices)."""
