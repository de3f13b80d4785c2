"""A dry run: a script runs only up to its plan, its check or its training step.

The result is raised as an exception, which ends the script. The exceptions derive from
``BaseException``, so that a script's own ``except Exception`` does not catch them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import tensorflow as tf

from tensoropt.cost.cluster import Cluster
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.planner.explain.explanation import Explanation
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.options.relations import OF_AIMS, not_for
from tensoropt.planner.request import Request
from tensoropt.planner.split_check import Check

__all__ = ["CheckReached", "DryRun", "PlanReached", "ProfilingReached", "StepReached"]


@dataclass(frozen=True, slots=True)
class DryRun:
    """The devices, machine and options of a dry run, in place of the script's.

    Attributes:
        devices: number of devices to plan for.
        cluster: the cluster to plan for; None for this machine.
        options: options of `find_strategy` by name, which replace the script's.
        aim: the end of the dry run: "plan" at `build_execution_graph`, with `PlanReached`; "check",
            "profile" and "profiling" at the first `find_strategy`, with `CheckReached`,
            `StepReached` and `ProfilingReached`.
        points: the most points of the frontier whose plans are made beside the plan.
        explain: the layer to explain; empty for none.
    """

    devices: int
    cluster: Cluster | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    aim: Literal["plan", "check", "profile", "profiling"] = "plan"
    points: int = 0
    explain: str = ""

    def replaced(self, script: PlanningOptions) -> PlanningOptions:
        """The options to plan with, from those of the script.

        Nothing is measured in a dry run. An option that the command line cannot change makes way
        for the command line's options that exclude it.
        """
        changes: dict[str, Any] = {"validate": 0}
        if self.aim == "profiling":
            changes |= {"option": "profiling", "point": None}
            changes |= dict.fromkeys(not_for("profiling"))
        if self.options.get("option", script.option) != script.option:
            changes |= dict.fromkeys(OF_AIMS)
        if "max_step_seconds" in self.options:
            changes |= {"samples": None, "deadline_seconds": None}
        if "samples" in self.options:
            changes["max_step_seconds"] = None
        if "memory_limit_bytes" in self.options:
            changes["memory_limits_bytes"] = None
        if "memory_limits_bytes" in self.options:
            changes["memory_limit_bytes"] = None
        if self.options.get("algorithm", "ft") != "ft":
            changes |= {"epsilon": 0.0, "fixed": None, "rewrite": None}
        return replace(script, **{**changes, **self.options})


@dataclass(eq=False)
class PlanReached(BaseException):
    """A script has reached its `build_execution_graph`.

    Attributes:
        plan: the plan that it would run.
        points: plans of points of its frontier, by number, if the dry run asks for them.
        explanation: the explanation of a layer, if the dry run asks for one.
    """

    plan: Plan
    points: Mapping[int, Plan]
    explanation: Explanation | None


@dataclass(eq=False)
class CheckReached(BaseException):
    """A script that is only checked has reached its first `find_strategy`.

    Attributes:
        check: the check of the step that it would plan.
    """

    check: Check


@dataclass(eq=False)
class StepReached(BaseException):
    """A script that is only profiled has reached its first `find_strategy`.

    Attributes:
        request: the step that it would plan.
        script: its graph.
    """

    request: Request
    script: tf.Graph


@dataclass(eq=False)
class ProfilingReached(BaseException):
    """A script that is profiled for numbers of devices has reached its first `find_strategy`.

    Attributes:
        profile: the profile of the step that it would plan.
    """

    profile: ParallelismProfile
