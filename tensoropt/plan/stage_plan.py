"""A stage of a plan: its devices, what it computes, and what that is predicted to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tensoropt.parallel.mesh import Mesh

__all__ = ["StagePlan"]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Consecutive layers on devices of their own, side by side with the other stages of a plan.

    Attributes:
        mesh_axes: sizes of its mesh axes, slowest link first. Which devices these are
            `Plan.devices_of_stage` says: they follow those of the stage before.
        operators: names of its operators. What is in no stage every stage has that reads it.
        forward_nanoseconds: predicted, of one microbatch, with sending on what it makes.
        backward_nanoseconds: the same of its backward pass.
        once_nanoseconds: predicted, once per step: sums of gradients, updates.
        memory_bytes: predicted per device, the sum that the search adds up.
        recompute: whether only what it receives stays for its backward pass, before which it runs
            its forward pass again; the backward time has it, too.
        peak_bytes: predicted peak per device; None where it is unknown.
    """

    mesh_axes: tuple[int, ...]
    operators: tuple[str, ...]
    forward_nanoseconds: int
    backward_nanoseconds: int
    once_nanoseconds: int
    memory_bytes: int
    recompute: bool = False
    peak_bytes: int | None = None

    @property
    def mesh(self) -> Mesh:
        """Its devices as mesh axes."""
        return Mesh(self.mesh_axes)

    def busy_nanoseconds(self, microbatches: int) -> int:
        """Predicted, of a step of so many microbatches: all but waiting for other stages."""
        passes = self.forward_nanoseconds + self.backward_nanoseconds
        return microbatches * passes + self.once_nanoseconds

    def to_json(self) -> dict[str, Any]:
        """The stage as JSON values, as the schema has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> StagePlan:
        """The inverse of `to_json`."""
        fields = dict(values)
        for name in ("mesh_axes", "operators"):
            fields[name] = tuple(fields[name])
        return cls(**fields)
