"""The costs of stages on devices of several speeds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.profile import ReplicatedProfile
from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.pipeline.stages.points import Profile, StagePoints
from tensoropt.pipeline.stages.unlike_devices import StageKind, UnlikeDevices
from tensoropt.planner.meshes import meshes_of
from tensoropt.planner.request import Request
from tensoropt.planner.searches.step_parts import StepParts

__all__ = ["evenly", "faster_profiles", "priced_stage", "unlike_devices"]


def unlike_devices(request: Request, devices: int, parts: StepParts) -> UnlikeDevices | None:
    """Return the devices of a job if they differ in speed or memory; else None."""
    kinds = map(StageKind, request.cluster_at(devices).speeds(devices), request.limits(devices))
    unlike = UnlikeDevices(tuple(kinds), parts.links.machine)
    return unlike if len(set(unlike.kinds)) > 1 else None


def faster_profiles(
    request: Request, unlike: UnlikeDevices, parts: StepParts, profile: SplitProfile
) -> Mapping[float, SplitProfile]:
    """Return the profiles of the speeds of devices above the least.

    Args:
        request: the step.
        unlike: the devices.
        parts: the components of the step on them.
        profile: the profile of the least speed, whose strategies are priced anew.
    """
    devices, profiles = len(unlike.kinds), {}
    for speed in sorted({kind.speed for kind in unlike.kinds})[1:]:
        cost = request.cost_model(devices, speed=speed)
        costs = parts.costs.priced_by(cost)
        replicated = ReplicatedProfile(costs, profile.block, cost, parts.links)
        priced = partial(priced_stage, request, devices, speed=speed)
        profiles[speed] = profile.priced_by(priced, replicated)
    return profiles


def priced_stage(
    request: Request, devices: int, stage_devices: int, speed: float | None = None
) -> tuple[ClusterCostModel, Mesh]:
    """Return the cost model and the mesh of a stage on one machine.

    Args:
        request: the step.
        devices: the devices of the job.
        stage_devices: the devices of the stage.
        speed: their speed; None for that of the slowest device.
    """
    mesh = meshes_of(request.graph, request.cluster_at(devices), stage_devices)[0].mesh
    return request.cost_model(devices, mesh, speed), mesh


def evenly(profile: SplitProfile) -> Profile:
    """Return the profile of stages whose devices share the work evenly, without communication."""

    @cache
    def on_one_device(first: int, last: int, *rest: int) -> StagePoints | None:
        return profile.replicated(first, last, 1, *rest)

    def even(first: int, last: int, devices: int, *rest: int) -> StagePoints | None:
        on_one = on_one_device(first, last, *rest)
        return None if on_one is None else StagePoints(on_one.values // devices)

    return even
