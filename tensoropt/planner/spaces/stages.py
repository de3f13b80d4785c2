"""Steps whose layers are divided into stages, through which microbatches pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensoropt.errors import GraphError, OptionError
from tensoropt.plan.amounts import devices_of
from tensoropt.planner.offers.offer import PIPELINE, Offer
from tensoropt.planner.offers.pipelines import Pipelines
from tensoropt.planner.request import Request
from tensoropt.planner.searches.microbatch_counts import microbatch_counts
from tensoropt.planner.searches.pipeline_bound import PipelineBound
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.planner.spaces.known import Known
from tensoropt.problem.edges.tensor_reuse import FRUGAL, PLAIN

__all__ = [
    "DO_NOT_FIT",
    "MOST_GAIN",
    "NAME",
    "demanded",
    "is_wanted",
    "keeping_all",
    "least_held",
    "may_keep_less",
    "offers",
]

NAME = PIPELINE
DO_NOT_FIT = "variables and their gradients alone do not fit, however they are divided"
MOST_GAIN = 0.5
"""Share of a step's time that stages win at most, where all devices share its work without."""
_LOOK_SECONDS = 0.003
"""Of one core, for each operator of a step that is looked at: 511 take 1.4."""


def is_wanted(request: Request, known: Known, name: str) -> bool:
    """Whether a script leaves stages open, or asks for them, and looking can be worth its time.

    No clock is asked, so that the same request has the same plan on any machine.
    """
    wanted = request.pipeline
    if wanted is None or request.devices == 1:
        return False
    if known.price is None:
        held = least_held(request)
        if held > request.usable_bytes(request.devices):
            known.skipped[name] = DO_NOT_FIT
            return False
    elif not wanted.is_asked:
        worth = request.worth_seconds(known.price, MOST_GAIN)
        if worth <= _LOOK_SECONDS * len(request.graph):
            known.skipped[name] = "looking takes longer than the job's steps can win"
            return False
    return known.has_time(name)


def offers(request: Request, known: Known) -> Iterator[Offer]:
    """Pipelines of any number of stages and microbatches that can be wanted, by bounds."""
    wanted = request.pipeline
    if not is_wanted(request, known, NAME):
        return
    assert wanted is not None, "stages are left open, or asked for"
    devices, limit, bound = request.devices, known.limit, PipelineBound(request)

    def can_be_fast(count: int) -> bool:
        if limit is None:
            return True
        return min(bound.nanoseconds(stages, count) for stages in range(2, devices + 1)) < limit

    number = request.microbatches if request.microbatches > 1 else wanted.microbatches
    examples = min((request.shapes[name][0] for name in request.batch_placeholders), default=1)
    likely = [1 << n for n in range(1, examples.bit_length())] if number is None else [number]
    if not any(map(can_be_fast, likely)):
        known.skipped[NAME] = "by bounds none is faster"
        return
    try:
        counts = microbatch_counts(request, number, devices)
    except GraphError as error:
        known.skipped[NAME] = str(error)
        return
    counts = [count for count in counts if can_be_fast(count)]
    if counts:
        yield from _divided(request, known, counts)


def _divided(request: Request, known: Known, counts: Sequence[int]) -> Iterator[Offer]:
    """Unasked, pipelines that fit the memory and are fast enough; else all of the frontier. Where
    memory is short, those whose stages keep less, too."""
    wanted, devices, within = request.pipeline, request.devices, None
    assert wanted is not None, "stages are left open, or asked for"
    if not wanted.is_asked:
        start = request.cost_model(devices).step_nanoseconds()
        time = None if known.limit is None else known.limit - start
        within = request.usable_bytes(devices), time
    plain = keeping_all(request)
    search = PipelineSearch(plain, devices, (2, devices), counts, within)
    try:
        found = search.frontier
    except GraphError as error:  # fewer operators than stages
        known.skipped[NAME] = str(error)
        return
    if found:
        yield Pipelines(NAME, plain, [(search, each) for each in found])
    if may_keep_less(request, known) and known.has_time(NAME):
        less = replace(request, space=FRUGAL)
        search = PipelineSearch(less, devices, (2, devices), counts, within, search)
        found = search.frontier
        if found:
            yield Pipelines(NAME, less, [(search, each) for each in found])


def keeping_all(request: Request) -> Request:
    """The request for strategies that keep all for the backward pass."""
    return replace(request, space=PLAIN) if request.keeps_less else request


def may_keep_less(request: Request, known: Known) -> bool:
    """Whether strategies are looked at whose stages keep less: asked, or where memory is short."""
    if request.keeps_less:
        return True
    return request.keep_less and known.could_be_faster(request)


def demanded(request: Request) -> Iterator[Offer]:
    """Pipelines of the number of stages that a script demands; where memory is short, those whose
    stages keep less, too.

    Raises:
        OptionError: more stages than devices.
        GraphError: the step cannot be cut into microbatches or stages.
        LayoutError: the cluster cannot give a job this number of devices.
    """
    wanted, devices = request.pipeline, request.devices
    assert wanted is not None, "demanded"
    assert wanted.stages is not None, "demanded"
    request.cluster_at(devices).level_counts(devices)  # raises where there are none
    if wanted.stages > devices:
        raise OptionError(
            "each stage of a pipeline has at least one device. Got "
            f"pipeline={wanted.stages} on {devices_of(devices)}; ask for at most {devices} stages."
        )
    counts = microbatch_counts(request, wanted.microbatches, wanted.stages)
    numbers, plain = (wanted.stages, wanted.stages), keeping_all(request)
    search = PipelineSearch(plain, devices, numbers, counts)
    offer = Pipelines(NAME, plain, [(search, each) for each in search.frontier])
    yield offer
    known = Known(time=offer.points[offer.fitting[0]][1] if offer.fitting else None)
    known.searched(request, offer.points)
    if may_keep_less(request, known):
        less = replace(request, space=FRUGAL)
        search = PipelineSearch(less, devices, numbers, counts, None, search)
        yield Pipelines(NAME, less, [(search, each) for each in search.frontier])


def least_held(request: Request) -> int:
    """Bytes that variables, slots and gradients take of a device at least, however divided."""
    graph = request.graph
    variables = [op for op in graph if op.is_variable]
    names = {op.name for op in variables}
    held = sum(op.value_spec(0).bytes for op in variables)
    for op in graph:
        tag = op.gradient
        if tag is not None and tag.part == "dense" and tag.x.operator in names:
            held += op.outputs[0].bytes
    return held // request.devices
