"""What a stage costs: the interface between the search of stages and what prices them."""

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
"""Of `StagePoints.values`; `StagePoints.of` says what they are."""

Column = int | Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class StagePoints:
    """The ways to run one stage on its devices, none of which need be the best in everything.

    Attributes:
        values: int64[points, 14], by `COLUMNS`.
    """

    values: Int64Array

    def __post_init__(self) -> None:
        shape = self.values.shape
        is_table = self.values.ndim == 2 and shape[0] > 0 and shape[1] == len(COLUMNS)
        if not is_table or self.values.min() < 0:
            raise OptionError(
                "a stage has at least one point of 14 times and amounts, none negative. Got an "
                f"array of {list(shape)}{' with negative ones' if self.values.size else ''}; give "
                "every point a number of each."
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
        """Points by columns, each a number or int64[points].

        Args:
            forward: nanoseconds of computing one microbatch.
            backward: the same of its backward pass.
            once: nanoseconds per step, after the last microbatch: sums of gradients among replicas,
                updates.
            fixed: bytes held on a device whatever the schedule: variables, gradients, slots,
                workspace.
            saved: bytes held of every microbatch in flight for its backward pass.
            inputs: of these what is received: all that stays with recomputation.
            sent: bytes that a device sends to later stages, of one microbatch.
            received: bytes from earlier stages whose gradient goes back.
            sent_tensors, received_tensors: how many tensors these are, each a message.
            passed: bytes that an earlier stage sends to a later one, which count where this one's
                end is that of a machine.
            returned: the same of gradients, where its beginning is.
            passed_tensors, returned_tensors: how many tensors these are.
        """
        columns = (
            *(forward, backward, once, fixed, saved, inputs),
            *(sent, received, sent_tensors, received_tensors),
            *(passed, returned, passed_tensors, returned_tensors),
        )
        if all(isinstance(column, int) for column in columns):
            return cls(np.array([columns], dtype=np.int64))
        every = np.broadcast_arrays(*(np.atleast_1d(column) for column in columns))
        return cls(np.stack(every, axis=1).astype(np.int64))

    @classmethod
    def plain(cls, forward: int, backward: int, memory: int) -> StagePoints:
        """One point as RaNNC profiles a stage: its memory is what was measured, come what may."""
        return cls.of(forward, backward, fixed=memory)

    def column(self, name: str) -> Int64Array:
        """int64[points]: one of `COLUMNS`."""
        return self.values[:, COLUMNS.index(name)]

    def __len__(self) -> int:
        return len(self.values)


Profile = Callable[[int, int, int, int, int], "StagePoints | None"]
"""``profile(first, last, devices, microbatch, copies)``: what blocks ``first`` to ``last``, both
included, cost on so many devices for a microbatch of so many examples, with so many copies of the
whole pipeline beside; None where they cannot run so (fewer examples than devices)."""
