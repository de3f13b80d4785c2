"""A dry run: a script runs only up to its plan, its check or its training step.

The result is raised as an exception, which ends the script. The exceptions derive from
``BaseException``, so that a script's own ``except Exception`` does not catch them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from tensoropt.cost.cluster import Cluster
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.planner.request import Request
from tensoropt.planner.split_check import Check
from tensoropt.transformations.staged.schedule import Schedule

__all__ = ["CheckReached", "DryRun", "PlanReached", "ProfilingReached", "StepReached"]


@dataclass(frozen=True, slots=True)
class DryRun:
    """The devices, machine and options of a dry run, in place of the script's.

    Attributes:
        devices: number of devices to plan for.
        cluster: the cluster to plan for; None for this machine.
        batch_size: first dimension of placeholders that leave it unknown; None for the script's.
        memory_limit_bytes: of one device; None for the script's, or the cluster's.
        algorithm: the strategies to consider; None for the script's.
        batch_norm: the statistics of batch normalisation; None for the script's.
        search_seconds: time limit of a search, infinite for none; None for the script's.
        pipeline: number of stages, or "auto"; None for the script's.
        microbatches: number of equal parts of the batch; None for the script's.
        schedule: order of the microbatches of a pipeline; None for the script's.
        point: number of the frontier point to plan; None for the script's.
        parallelism: for "profiling", the numbers of devices; empty for the script's.
        memory_limits: for "profiling", bytes of one device; empty for the script's.
        device_hour_cost: for "profiling", of one device; None for the script's, or the cluster's.
        aim: the end of the dry run: "plan" at `build_execution_graph`, with `PlanReached`; "check",
            "profile" and "profiling" at the first `find_strategy`, with `CheckReached`,
            `StepReached` and `ProfilingReached`.
    """

    devices: int
    cluster: Cluster | None = None
    batch_size: int | None = None
    memory_limit_bytes: int | None = None
    algorithm: str | None = None
    batch_norm: BatchNorm | None = None
    search_seconds: float | None = None
    pipeline: int | Literal["auto"] | None = None
    microbatches: int | None = None
    schedule: Schedule | None = None
    point: int | None = None
    parallelism: tuple[int, ...] = ()
    memory_limits: tuple[int, ...] = ()
    device_hour_cost: float | None = None
    aim: Literal["plan", "check", "profile", "profiling"] = "plan"


class PlanReached(BaseException):
    """A script has reached its `build_execution_graph`.

    Attributes:
        plan: the plan that it would run.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.plan = plan


class CheckReached(BaseException):
    """A script that is only checked has reached its first `find_strategy`.

    Attributes:
        check: the check of the step that it would plan.
    """

    def __init__(self, check: Check) -> None:
        super().__init__(check)
        self.check = check


class StepReached(BaseException):
    """A script that is only profiled has reached its first `find_strategy`.

    Attributes:
        request: the step that it would plan.
        script: its graph.
    """

    def __init__(self, request: Request, script: tf.Graph) -> None:
        super().__init__(request)
        self.request = request
        self.script = script


class ProfilingReached(BaseException):
    """A script that is profiled for numbers of devices has reached its first `find_strategy`.

    Attributes:
        profile: the profile of the step that it would plan.
    """

    def __init__(self, profile: ParallelismProfile) -> None:
        super().__init__(profile)
        self.profile = profile
