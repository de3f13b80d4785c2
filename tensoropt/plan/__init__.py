"""Plans: the result of a search, as a readable, versioned file that execution runs."""

from __future__ import annotations

from tensoropt.plan.operator_plan import OperatorPlan
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.plan import Plan

__all__ = ["OperatorPlan", "ParallelismProfile", "Plan", "ProfilePoint"]
