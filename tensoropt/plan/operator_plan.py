"""An operator of a plan: its split, and its predicted costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tensoropt.converters import Natural, one_of
from tensoropt.parallel.configuration import KEPT
from tensoropt.tdl import types_with

__all__ = ["NAMES_ONLY", "OperatorPlan"]

NAMES_ONLY = types_with(role="names")
"""Types of operators that only name or group other operators' outputs."""


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
        kept: the copies of its outputs that are kept for the backward pass, one of
            `tensoropt.parallel.configuration.KEPT`.
    """

    name: str
    type: str
    splits: tuple[tuple[Natural, ...], ...]
    mesh: str
    inputs: tuple[str, ...]
    output: str
    time_nanoseconds: Natural
    memory_bytes: Natural
    kept: Annotated[str, one_of(KEPT)] = "both"

    @property
    def is_split(self) -> bool:
        """Whether the devices share its computation."""
        return any(self.splits)
