"""Facts of a plan for people, which a run does not need."""

from __future__ import annotations

from tensoropt.plan.details.details import Details, OtherStrategy, TimePart
from tensoropt.plan.details.move import Move, MoveStep, Purpose

__all__ = ["Details", "Move", "MoveStep", "OtherStrategy", "Purpose", "TimePart"]
