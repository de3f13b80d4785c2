"""Plans: what crosses from the search to execution, as a readable, versioned file."""

from __future__ import annotations

from tensoropt.plan.plan import OperatorPlan, Plan
from tensoropt.plan.profile import ParallelismProfile, ProfilePoint

__all__ = ["OperatorPlan", "ParallelismProfile", "Plan", "ProfilePoint"]
