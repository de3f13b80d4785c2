"""Resharding: sequences of collectives that change the layout of a tensor."""

from __future__ import annotations

from typing import TypeAlias

from tensoropt.parallel.resharding.planner import (
    Price,
    plan_reshard,
    step_bytes,
    steps_of_shape,
)
from tensoropt.parallel.resharding.step import (
    COLLECTIVE_KINDS,
    KINDS,
    LOCAL_KINDS,
    Exchange,
    ReshardStep,
)
from tensoropt.parallel.resharding.traffic import Runs, StepTraffic, shape_after, step_traffic

__all__ = [
    "COLLECTIVE_KINDS",
    "KINDS",
    "LOCAL_KINDS",
    "Exchange",
    "Price",
    "ReshardStep",
    "Runs",
    "Step",
    "StepTraffic",
    "plan_reshard",
    "shape_after",
    "step_bytes",
    "step_traffic",
    "steps_of_shape",
]

Step: TypeAlias = ReshardStep | Exchange
"""A step that the devices apply to their pieces of a tensor."""
