"""A stage of a plan: its devices, its operators, and their predicted costs."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.converters import MeshAxes, Natural
from tensoropt.parallel.mesh import Mesh

__all__ = ["StagePlan"]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Consecutive layers on devices of their own, beside the other stages of a plan.

    Attributes:
        mesh_axes: sizes of its mesh axes, slowest link first. `Plan.devices_of_stage` has its
            devices, which follow those of the stage before.
        operators: names of its operators. An operator in no stage is in every stage that reads it.
        forward_nanoseconds: predicted time of one microbatch's forward pass, including sending.
        backward_nanoseconds: the same for its backward pass.
        once_nanoseconds: predicted time of work done once per step: sums of gradients, updates.
        memory_bytes: predicted memory per device, the search's sum.
        recompute: whether it keeps only received tensors for its backward pass, and runs its
            forward pass again before it. The backward time includes this.
        peak_bytes: predicted peak per device; None if it is unknown.
    """

    mesh_axes: MeshAxes
    operators: tuple[str, ...]
    forward_nanoseconds: Natural
    backward_nanoseconds: Natural
    once_nanoseconds: Natural
    memory_bytes: Natural
    recompute: bool = False
    peak_bytes: Natural | None = None

    @property
    def mesh(self) -> Mesh:
        """Its devices as mesh axes."""
        return Mesh(self.mesh_axes)

    def busy_nanoseconds(self, microbatches: int) -> int:
        """Predicted time of a step without waiting for other stages."""
        passes = self.forward_nanoseconds + self.backward_nanoseconds
        return microbatches * passes + self.once_nanoseconds
