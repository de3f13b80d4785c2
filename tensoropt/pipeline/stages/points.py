"""What a stage costs: the interface between the search of stages and what prices them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import OptionError

__all__ = ["Profile", "StagePoints"]


@dataclass(frozen=True, slots=True, eq=False)
class StagePoints:
    """The ways to run one stage on its devices, none of which need be the best in everything.

    Times are nanoseconds, sizes bytes on one device, all int64[points]; what is left out is 0.

    Attributes:
        forward, backward: computing one microbatch.
        once: per step, after the last microbatch: sums of gradients among replicas, updates.
        fixed: held whatever the schedule: variables, gradients, slots, workspace.
        saved: held of every microbatch in flight for its backward pass.
        inputs: of these what is received: all that stays with recomputation.
        sent: to later stages, of one microbatch.
        received: from earlier stages; as much gradient goes back.
    """

    forward: Int64Array
    backward: Int64Array
    once: Int64Array
    fixed: Int64Array
    saved: Int64Array
    inputs: Int64Array
    sent: Int64Array
    received: Int64Array

    def __post_init__(self) -> None:
        sizes = {getattr(self, each.name).size for each in fields(self)}
        if len(sizes) != 1 or min(getattr(self, each.name).min() for each in fields(self)) < 0:
            raise OptionError(
                "a stage has equally many times and sizes, at least one of each, none negative. "
                f"Got {sorted(sizes)} of them; give every point a number of each."
            )

    @classmethod
    def of(cls, **columns: int | list[int] | Int64Array) -> StagePoints:
        """Points by the names of what is not 0."""
        arrays = {name: np.atleast_1d(np.asarray(v, np.int64)) for name, v in columns.items()}
        size = max(array.size for array in arrays.values())
        zeros = np.zeros(size, dtype=np.int64)
        return cls(**{each.name: arrays.get(each.name, zeros) for each in fields(cls)})

    @classmethod
    def plain(cls, forward: int, backward: int, memory: int) -> StagePoints:
        """One point as RaNNC profiles a stage: its memory is what was measured, come what may."""
        return cls.of(forward=forward, backward=backward, fixed=memory)

    def __len__(self) -> int:
        return int(self.forward.size)


Profile = Callable[[int, int, int, int, int], "StagePoints | None"]
"""``profile(first, last, devices, microbatch, copies)``: what blocks ``first`` to ``last``, both
included, cost on so many devices for a microbatch of so many examples, with so many copies of the
whole pipeline beside; None where they cannot run so (fewer examples than devices)."""
