"""Resharding: from one layout of a tensor to another, as a sequence of collectives."""

from __future__ import annotations

from typing import TypeAlias

from tensoropt.parallel.resharding.exchange import Exchange
from tensoropt.parallel.resharding.planner import (
    Price,
    plan_reshard,
    step_bytes,
)
from tensoropt.parallel.resharding.step import (
    COLLECTIVE_KINDS,
    KINDS,
    LOCAL_KINDS,
    ReshardStep,
)
from tensoropt.parallel.resharding.traffic import Move, moves, shape_after

__all__ = [
    "COLLECTIVE_KINDS",
    "KINDS",
    "LOCAL_KINDS",
    "Exchange",
    "Move",
    "Price",
    "ReshardStep",
    "Step",
    "moves",
    "plan_reshard",
    "shape_after",
    "step_bytes",
]

Step: TypeAlias = ReshardStep | Exchange
"""What a world does to the pieces of a tensor."""
