"""From pipelines to a plan: the fastest that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tensoropt.errors import InfeasibleError, LayoutError, OptionError
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.plan.amounts import bytes_of, devices_of
from tensoropt.plan.parallelism_profile import ParallelismProfile, ProfilePoint
from tensoropt.plan.plan import Plan
from tensoropt.planner.pipeline_peak import Candidate, fitting_plan
from tensoropt.planner.plans.from_pipeline import executed_nanoseconds, plan_for_pipeline
from tensoropt.planner.prices.fewer_devices import fewer_devices
from tensoropt.planner.request import Request
from tensoropt.planner.spaces.microbatch_counts import microbatch_counts
from tensoropt.planner.spaces.pipeline_search import PipelineSearch

__all__ = ["choose_pipeline", "pipeline_candidates", "pipeline_notes", "profile_pipelines"]


def choose_pipeline(request: Request, option: str) -> Plan:
    """The plan of the fastest pipeline that fits the memory limit.

    Args:
        request: with ``pipeline``.
        option: "mini_time", on all devices; "mini_parallelism", on the fewest that suffice.

    Raises:
        OptionError: more stages than devices.
        GraphError: the step cannot be cut into microbatches or stages.
        InfeasibleError: none fits.
    """
    if option != "mini_parallelism":
        return _choose(request, option)
    _check_devices(request, request.devices)
    for devices in range(_stages(request), request.devices):
        try:
            request.cluster_at(devices).level_counts(devices)
            return _choose(replace(request, devices=devices), option)
        except (InfeasibleError, LayoutError):
            continue
    return _choose(request, option)


def profile_pipelines(request: Request, parallelism: Sequence[int]) -> ParallelismProfile:
    """The least time of a step of a pipeline at each number of devices.

    Raises:
        OptionError: more stages than devices.
        GraphError: the step cannot be cut into microbatches or stages.
    """
    points = []
    for devices in parallelism:
        search = _search(request, devices)
        fits = _fitting(search.frontier, request.usable_bytes(devices))
        if fits:
            own = replace(request, devices=devices)
            time = executed_nanoseconds(own, search, fits[-1])
            points.append(ProfilePoint(devices, time / 1e9, fits[-1].memory))
        else:
            points.append(ProfilePoint(devices, None, search.frontier[0].memory))
    return ParallelismProfile(tuple(points))


def pipeline_candidates(request: Request, option: str) -> list[Candidate]:
    """What `choose_pipeline` chooses from on all devices, the fastest first.

    Raises:
        InfeasibleError: none fits the memory limit by the memory that the search adds up.
    """
    search = _search(request, request.devices)
    every = search.frontier
    fits = _fitting(every, request.usable_bytes(request.devices))
    if not fits:
        raise InfeasibleError(_too_little(request, every[0]))
    start = search.step_nanoseconds
    points = [(each.memory, each.time + start) for each in every]

    def maker(pipeline: Pipeline) -> Callable[[], Plan]:
        notes = pipeline_notes(search)
        return lambda: plan_for_pipeline(request, search, pipeline, points, option, notes)

    return [Candidate(each.memory, maker(each)) for each in reversed(fits)]


def _choose(request: Request, option: str) -> Plan:
    plan, failures = fitting_plan(request, pipeline_candidates(request, option)), list[str]()
    times = fewer_devices(request, None, failures)
    return replace(plan, fewer_devices=times, notes=(*plan.notes, *failures))


def _search(request: Request, devices: int) -> PipelineSearch:
    _check_devices(request, devices)
    stages = _stages(request)
    assert request.pipeline is not None, "asked for"
    counts = microbatch_counts(request, request.pipeline.microbatches, stages)
    return PipelineSearch(request, devices, (stages, stages), counts)


def _stages(request: Request) -> int:
    assert request.pipeline is not None, "asked for"
    assert request.pipeline.stages is not None, "a number of them"
    return request.pipeline.stages


def _check_devices(request: Request, devices: int) -> None:
    stages = _stages(request)
    request.cluster_at(devices).level_counts(devices)  # raises where there are none
    if stages > devices:
        raise OptionError(
            "each stage of a pipeline has at least one device. Got "
            f"pipeline={stages} on {devices_of(devices)}; ask for at most {devices} stages."
        )


def _fitting(pipelines: Sequence[Pipeline], usable: int) -> list[Pipeline]:
    """Those that fit the memory, the slowest first."""
    return [each for each in pipelines if each.memory <= usable]


def pipeline_notes(search: PipelineSearch) -> tuple[str, ...]:
    """What is not proven of its frontier."""
    gap = (
        "approximate frontier, no proven gap: a stage is split as the whole step is on as many "
        "devices"
    )
    if search.ended_by:
        by = "interrupted" if search.ended_by == "interruption" else "ended by search_seconds"
        gap += f"; that search was {by}"
    return (gap,)


def _too_little(request: Request, least: Pipeline) -> str:
    usable = request.usable_bytes(request.devices)
    wanted = request.pipeline
    assert wanted is not None, "asked for"
    more = "" if wanted.microbatches is None else "more microbatches, "
    return (
        f"a pipeline takes at most the memory limit of a device, {bytes_of(usable)} after division "
        f"by the safety factor {request.cluster_at(request.devices).safety_factor}. Got a least "
        f"memory of {bytes_of(least.memory)} with {wanted.stages} stages and "
        f"{least.microbatches} microbatches on {devices_of(request.devices)}. Use {more}more "
        "stages or devices, or raise the limit."
    )
