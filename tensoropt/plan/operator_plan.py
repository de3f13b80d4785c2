"""An operator of a plan, and a stage: their devices and predicted costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from tensoropt.converters import MeshAxes, Natural, one_of
from tensoropt.parallel.configuration import KEPT
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import types_with

__all__ = ["NAMES_ONLY", "Dimension", "OperatorPlan", "StagePlan", "Variable"]

NAMES_ONLY = types_with(role="names")
"""Types of operators that only name or group other operators' outputs."""

Variable = Literal["", "weights", "slots"]
"""The use of a variable: "weights" if it is trained, "slots" for an optimizer's and for all others;
empty for an operator that is no variable."""


class Dimension(NamedTuple):
    """One index of an operator's iteration space.

    Attributes:
        name: its name for people, such as "batch", "columns" or "dimension 2".
        extent: the number of its values; 0 if it differs between steps.
    """

    name: str
    extent: Natural


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One operator of a plan.

    Attributes:
        name: its name in the script.
        type: TensorFlow's operator type.
        splits: for each index of its iteration space, the mesh axes that split it.
        mesh: its device mesh in the paper's notation, ``[2,2]``.
        inputs: tensor map of each input on that mesh, ``[0,-1]``.
        output: tensor map of its first output.
        time_nanoseconds: predicted time of the operator, forward and backward, without
            resharding.
        memory_bytes: predicted memory per device.
        dimensions: the indices of its iteration space.
        kept: the copies of its outputs that are kept for the backward pass, one of
            `tensoropt.parallel.configuration.KEPT`.
        reads: names of the operators that it reads; for a gradient, of the tensor by which it is.
        shape: whole shape of its first output.
        variable: its use, if it is a variable.
        unsplittable: the reason why it cannot be split at all; empty if it can.
    """

    name: str
    type: str
    splits: tuple[tuple[Natural, ...], ...]
    mesh: str
    inputs: tuple[str, ...]
    output: str
    time_nanoseconds: Natural
    memory_bytes: Natural
    dimensions: tuple[Dimension, ...]
    kept: Annotated[str, one_of(KEPT)] = "both"
    reads: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    variable: Variable = ""
    unsplittable: str = ""

    @property
    def is_split(self) -> bool:
        """Whether the devices share its computation."""
        return any(self.splits)


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
