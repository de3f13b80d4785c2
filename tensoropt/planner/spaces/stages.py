"""The space of pipelines: layers are divided into stages, through which microbatches pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from tensoropt.errors import GraphError, OptionError
from tensoropt.plan.amounts import devices_of
from tensoropt.planner.offers.offer import PIPELINE, Offer
from tensoropt.planner.offers.pipelines import Pipelines
from tensoropt.planner.request import Request
from tensoropt.planner.searches.microbatch_counts import microbatch_counts
from tensoropt.planner.searches.pipeline_bound import PipelineBound
from tensoropt.planner.searches.pipeline_search import ANY_TIME, PipelineSearch
from tensoropt.planner.searches.step_parts import LEAST_DIVIDING
from tensoropt.planner.spaces.findings import Findings
from tensoropt.problem.edges.tensor_reuse import FRUGAL, PLAIN

__all__ = [
    "DO_NOT_FIT",
    "MOST_GAIN",
    "NAME",
    "can_hold_variables",
    "demanded",
    "is_wanted",
    "keeping_all",
    "least_variable_bytes",
    "offers",
    "searches_keeping_less",
]

NAME = PIPELINE
DO_NOT_FIT = "variables and their gradients alone do not fit, however they are divided"
MOST_GAIN = 0.5
"""The largest share of a step's time that stages win over a step on all devices together."""
_SHORTEST_STEP = 500_000
"""The shortest step, in predicted nanoseconds, for which stages are searched unasked. A session's
own time is not predicted, and exceeds what stages gain: steps of 8 layers of 128 units that were
predicted at 0.45 ms took 1.2 ms."""
_LOOK_SECONDS = 0.003
"""The seconds of one core, for each operator of a step, to search stages. Measured: 1.4 s for 511
operators, with a margin."""


def is_wanted(request: Request, findings: Findings, name: str) -> bool:
    """Whether a script allows stages, and a search of them may be worth its time.

    The time of a search is predicted, not measured, so the same request has the same plan on any
    machine.
    """
    wanted = request.pipeline
    if wanted is None or request.devices == 1:
        return False
    if reason := _contradiction(request):
        findings.skipped[name] = reason
        findings.notes.append(f"not searched: {name} ({reason})")
        return False
    if findings.price is None:
        if not can_hold_variables(request):
            findings.skipped[name] = DO_NOT_FIT
            return False
    elif not wanted.is_asked:
        if findings.price < _SHORTEST_STEP:
            findings.skipped[name] = f"a step takes less than {_SHORTEST_STEP / 1e6} ms"
            return False
        worth = request.worth_seconds(findings.price, MOST_GAIN)
        if worth <= _LOOK_SECONDS * len(request.graph):
            findings.skipped[name] = "looking takes longer than the job's steps can win"
            return False
    return findings.has_time(name, until_one_fits=name == NAME)


def _contradiction(request: Request) -> str:
    """Return why stages cannot keep the dimensions that a script divides by hand; empty if they
    can.

    The machines of a stage, and copies of a pipeline, divide the batch. On one machine a stage has
    some of its devices, and divides dimensions over all of these.
    """
    *outer, inner = request.cluster_at(request.devices).level_counts(request.devices)
    if request.pins.divides and inner < 2 * LEAST_DIVIDING:
        return "with fixed, a stage has at least two devices of a machine"
    fewest = (request.pipeline and request.pipeline.stages) or 2
    if request.pins.divides and LEAST_DIVIDING * fewest > request.devices:
        return f"with fixed, {fewest} stages have at least {LEAST_DIVIDING * fewest} devices"
    is_outer = any(
        pieces not in (1, None) or (pieces is None and count > 1)
        for pins in request.pins.of_operator.values()
        for pin in pins
        for pieces, count in zip(pin.pieces, outer, strict=False)
    )
    if prod(outer) > 1 and (is_outer or request.pins.names_batch):
        return "machines divide the batch of a stage, and fixed says otherwise"
    return ""


def offers(request: Request, findings: Findings) -> Iterator[Offer]:
    """Yield offers with stages, if a lower bound of the step tells that some may be fast enough.

    The search gets all numbers of microbatches, because the blocks of stages depend on the most.
    """
    wanted = request.pipeline
    if not is_wanted(request, findings, NAME):
        return
    assert wanted is not None, "the script allows stages"
    devices, limit, bound = request.devices, findings.limit, PipelineBound(request)

    def can_be_fast(count: int) -> bool:
        if limit is None:
            return True
        return min(bound.nanoseconds(stages, count) for stages in range(2, devices + 1)) < limit

    number = request.microbatches if request.microbatches > 1 else wanted.microbatches
    examples = min((request.shapes[name][0] for name in request.batch_placeholders), default=1)
    possible = [1 << n for n in range(1, examples.bit_length())] if number is None else [number]
    if not any(map(can_be_fast, possible)):
        findings.skipped[NAME] = "by bounds none is faster"
        return
    try:
        counts = microbatch_counts(request, number, devices)
    except GraphError as error:
        findings.skipped[NAME] = str(error)
        return
    yield from _divided(request, findings, counts)


def _divided(request: Request, findings: Findings, counts: Sequence[int]) -> Iterator[Offer]:
    """Yield offers with stages, for the given numbers of microbatches.

    If the script does not ask for stages, only pipelines that fit the memory and are fast enough
    are searched; otherwise the whole frontier is. If memory is short, there is a second offer with
    stages that keep fewer tensors.
    """
    wanted, devices, within = request.pipeline, request.devices, None
    assert wanted is not None, "the script allows stages"
    if not wanted.is_asked:
        start = request.cost_model(devices).step_nanoseconds()
        any_time = ANY_TIME if findings.fits else None
        time = any_time if findings.limit is None else findings.limit - start
        within = request.usable_bytes(devices), time
    plain = keeping_all(request)
    search = PipelineSearch(plain, devices, (2, devices), counts, within)
    try:
        pipelines = search.frontier
    except GraphError as error:  # the step has fewer operators than stages
        findings.skipped[NAME] = str(error)
        return
    if pipelines:
        yield _offer(plain, search)
    elif search.ended_by == "time":
        findings.ended_early(NAME)
    if searches_keeping_less(request, findings) and findings.has_time(NAME):
        less = replace(request, space=FRUGAL)
        search = PipelineSearch(less, devices, (2, devices), counts, within, search)
        if search.frontier:
            yield _offer(less, search)
        elif search.ended_by == "time" and not pipelines:
            findings.ended_early(NAME)


def _offer(request: Request, search: PipelineSearch) -> Pipelines:
    """Return the offer of a search's frontier."""
    return Pipelines(NAME, request, [(search, pipeline) for pipeline in search.frontier])


def keeping_all(request: Request) -> Request:
    """Return the request for strategies that keep all tensors for the backward pass."""
    return replace(request, space=PLAIN) if request.keeps_less else request


def searches_keeping_less(request: Request, findings: Findings) -> bool:
    """Whether stages that keep fewer tensors are searched: if asked for, or if memory is short."""
    if request.keeps_less:
        return True
    return request.keep_less and findings.could_be_faster(request)


def demanded(request: Request) -> Iterator[Offer]:
    """Yield offers with the number of stages that a script demands.

    If memory is short, there is a second offer with stages that keep fewer tensors.

    Raises:
        OptionError: the script demands more stages than there are devices.
        GraphError: the step cannot be cut into microbatches or stages.
        LayoutError: the cluster cannot give a job this number of devices.
    """
    wanted, devices = request.pipeline, request.devices
    assert wanted is not None, "the script demands stages"
    assert wanted.stages is not None, "the script demands stages"
    request.cluster_at(devices).level_counts(devices)  # raises the LayoutError
    if reason := _contradiction(request):
        got = ", ".join(map(repr, map(str, request.pins.words)))
        raise OptionError(
            f"stages of a pipeline divide as fixed says. Got pipeline={wanted.stages} and fixed "
            f"{got}: {reason}. Leave one of the two out."
        )
    if wanted.stages > devices:
        raise OptionError(
            "each stage of a pipeline has at least one device. Got "
            f"pipeline={wanted.stages} on {devices_of(devices)}; ask for at most {devices} stages."
        )
    counts = microbatch_counts(request, wanted.microbatches, wanted.stages)
    numbers, plain = (wanted.stages, wanted.stages), keeping_all(request)
    search = PipelineSearch(plain, devices, numbers, counts)
    offer = _offer(plain, search)
    yield offer
    findings = Findings(price=offer.points[offer.fitting[0]][1] if offer.fitting else None)
    findings.searched(request, offer.points)
    if searches_keeping_less(request, findings):
        less = replace(request, space=FRUGAL)
        yield _offer(less, PipelineSearch(less, devices, numbers, counts, None, search))


def can_hold_variables(request: Request) -> bool:
    """Whether all devices together can hold the variables, slots and gradients."""
    devices = request.devices
    usable = sum(request.limits(devices)) / request.cluster_at(devices).safety_factor
    return least_variable_bytes(request) <= int(usable / devices)


def least_variable_bytes(request: Request) -> int:
    """Return the least bytes of variables, slots and gradients on a device: an equal share."""
    graph = request.graph
    variables = [op for op in graph if op.is_variable]
    names = {op.name for op in variables}
    total = sum(op.value_spec(0).bytes for op in variables)
    for op in graph:
        tag = op.gradient
        if tag is not None and tag.part == "dense" and tag.x.operator in names:
            total += op.outputs[0].bytes
    return total // request.devices
