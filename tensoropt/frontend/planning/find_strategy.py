"""``find_strategy``: search the frontier of a training step, and choose one of its points."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import tensorflow as tf

from tensoropt.elastic.rank_variables import PLAN_VARIABLE
from tensoropt.errors import OptionError
from tensoropt.frontend.inputs.sample_batch import fed_batch, fed_batch_shapes
from tensoropt.frontend.job.dry_run import ProfilingReached
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.measuring.links import know_links
from tensoropt.frontend.measuring.rank_paces import know_paces
from tensoropt.frontend.planning.ahead.steps import note_step
from tensoropt.frontend.planning.budget import budget_of
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.frontend.planning.plan_compatibility import demanded_plan
from tensoropt.frontend.planning.search_progress import interruptible, others_ignore_interrupt
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.garbage import collected_later
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.parallel.buckets import Compression
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.options.relations import BUDGETED
from tensoropt.planner.request import Request
from tensoropt.problem.edges.tensor_reuse import FRUGAL, PLAIN
from tensoropt.quiet.standard_error import write_note
from tensoropt.report.parallelism_profile_table import profile_table
from tensoropt.report.text_table import write
from tensoropt.transformations.staged.order_of_passes import Schedule

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in typing from Python 3.11 on

__all__ = ["find_strategy", "plan_and_frontier", "request_of"]

_SECONDS = 30.0  # longest search with search_seconds="auto"
_STEPS = 1000  # steps that a job is assumed to make, where ``steps`` is not given
_NO_TRAINING = (
    "plans no training: the graph has no gradients; call find_strategy after minimize, or after "
    "tf.gradients"
)
_MAY_DIFFER = frozenset({"batch_size", "feed_dict", "fetches", "shapes", "steps"})
"""Options that may differ between ranks that plan the same step."""
_SAME_GRAPH = "Build the graph from the same arguments, data and versions on every rank."


class _Keywords(TypedDict, total=False):
    """The fields of `PlanningOptions` but ``option``, for mypy; a test compares them."""

    batch_size: int | None
    shapes: Mapping[Any, Sequence[int]] | None
    fetches: Sequence[Any] | None
    memory_limit_bytes: int | None
    parallelism: Iterable[int] | None
    memory_limits_bytes: Iterable[int] | None
    device_hour_cost: float | None
    max_step_seconds: float | None
    samples: float | None
    deadline_seconds: float | None
    algorithm: str
    epsilon: float
    search_seconds: float | Literal["auto"] | None
    steps: int | None
    save_memory: bool | None
    validate: int
    feed_dict: Mapping[Any, Any] | None
    batch_norm: BatchNorm
    compression: Compression | None
    microbatches: int | None
    pipeline: bool | int | Literal["auto"] | None
    schedule: Schedule | None
    rewrite: bool | None
    point: int | str | None
    fixed: Mapping[str, Mapping[str | int, str | Sequence[str] | None]] | None


@overload
def find_strategy(
    option: Literal["mini_time", "mini_parallelism", "mini_cost"] = ...,
    **options: Unpack[_Keywords],
) -> Plan: ...


@overload
def find_strategy(
    option: Literal["profiling"], **options: Unpack[_Keywords]
) -> ParallelismProfile: ...


@overload
def find_strategy(option: str, **options: Unpack[_Keywords]) -> Plan | ParallelismProfile: ...


def find_strategy(
    option: str = "mini_time", **keywords: Unpack[_Keywords]
) -> Plan | ParallelismProfile:
    """Search the frontier between time and memory, and choose the point that ``option`` asks for.

    Args:
        option: the aim; see `PlanningOptions.option`.
        keywords: the other `PlanningOptions`.

    One search compares all combinations of ``save_memory``, ``microbatches``, ``pipeline`` and
    ``rewrite``. Algorithms other than "ft" consider only those that are demanded.

    A search of more than a second shows its progress. Ctrl-C ends the search with the best frontier
    so far; a second Ctrl-C ends the job. More devices than have four or five prime axes (16, or 32
    if all tensors are matrices) are searched from coarse meshes to finer ones, see
    `tensoropt.search.multilevel.coarse_to_fine`; a note of the plan lists the strategies that were
    not searched.

    If the environment variable ``TENSOROPT_PLAN`` names a plan file, the first step has its plan
    without a search, except for "profiling" and in dry runs; `tensoropt run --plan` sets it. Other
    steps are searched, and so is the first one after `tensoropt run` has lost devices.

    Returns:
        A plan, the same on every rank; for "profiling" a table, which rank 0 also prints.

    Raises:
        OptionError: an unknown argument; a value that an option does not take; options that exclude
            one another; a shape that contradicts its placeholder; more stages than devices; a
            ``point`` that is not on the frontier; a measured step that fails.
        FeedError: a value of ``feed_dict`` does not fit.
        GraphError: a placeholder's shape stays unknown; ``batch_norm="local"`` and the script makes
            a gradient of batch normalisation without ``tf.gradients``; several ``microbatches`` of
            a step that mixes examples, or a number of them that does not divide the batch; a
            ``pipeline`` of a step that mixes examples, or of more stages than it has operators.
        InfeasibleError: no strategy fits the memory limit, predicted or measured; the ``point``
            does not fit it; no plan meets the deadline of "mini_cost".
        PlanError: the plan of ``TENSOROPT_PLAN`` is for another step or number of devices.
        RankMismatchError: the ranks have built different graphs.
    """
    known = {declared.name for declared in fields(PlanningOptions)}
    OptionError.refuse(keywords.keys() - known, find_strategy)
    options = asked = PlanningOptions(option, **keywords)
    job = current()
    if job.dry_run is not None:
        options = job.dry_run.replaced(asked)
    know_links(job)
    know_paces(job)
    request = request_of(job, options)
    _check_agreement(job, options, request)
    if options.option == "profiling":
        limits = tuple(options.memory_limits_bytes or ())
        return _parallelism_profile(job, request, limits or (None,))
    demanded = _demanded_plan(job, request)
    if demanded is not None:
        plan = demanded
    elif options.validate:
        plan = _validated_plan(job, request, options)
    else:
        plan = _searched_plan(job, request, options.option, options.point)
    plan = replace(plan, notes=(*plan.notes, *_notes(request, asked, options)))
    # No other plan may take the place of one that is demanded, by the script or a file.
    is_searched = options.point is None and demanded is None
    job.searched = (plan, request) if is_searched else None
    note_step(job, options, request)
    _write_notes(job, plan)
    return plan


find_strategy.__signature__ = inspect.signature(PlanningOptions).replace(  # type: ignore[attr-defined]
    return_annotation="Plan | ParallelismProfile"
)
find_strategy.__doc__ = f"{find_strategy.__doc__}\n{PlanningOptions.__doc__}"


def request_of(job: Job, options: PlanningOptions) -> Request:
    """The request for the strategies that the options allow."""
    if options.feed_dict and options.batch_size is None and options.shapes is None:
        script = tf.compat.v1.get_default_graph()
        options = replace(options, shapes=fed_batch_shapes(script, options.feed_dict))
    seconds, steps = options.search_seconds, None
    if seconds == "auto":
        seconds, steps = _SECONDS, _STEPS if options.steps is None else options.steps
    is_tracked = options.is_tracked
    request = replace(
        step_request(job, options),
        algorithm=options.algorithm,
        space=FRUGAL if options.save_memory else PLAIN,
        epsilon=options.epsilon,
        search_seconds=seconds,
        steps=steps,
        rewrite=options.rewrite if is_tracked else False,
        keep_less=is_tracked and options.save_memory is None,
        accumulate=is_tracked and options.microbatches is None,
        saves_dry_runs=job.dry_run is None and not options.validate,
        results={} if job.dry_run is not None and job.dry_run.explain else None,
    )
    if options.option not in BUDGETED:
        return request
    return replace(request, budget=budget_of(request, options))


def _check_agreement(job: Job, options: PlanningOptions, request: Request) -> None:
    """Check that all ranks plan the same step with the same options.

    Raises:
        RankMismatchError: if they do not.
    """
    values = {
        declared.name: getattr(options, declared.name)
        for declared in fields(PlanningOptions)
        if declared.name not in _MAY_DIFFER
    }
    job.agreement.check(
        f"find_strategy(option={options.option!r}, algorithm={options.algorithm!r}, "
        f"validate={options.validate})",
        [
            *request.graph.summaries(),
            *(f"{name}={value!r}" for name, value in values.items()),
            f"{PLAN_VARIABLE}={os.environ.get(PLAN_VARIABLE)}",
        ],
        _SAME_GRAPH,
    )


def _demanded_plan(job: Job, request: Request) -> Plan | None:
    """The plan of the file that the environment names, which the first rank reads for all."""
    path = os.environ.get(PLAN_VARIABLE)
    if not path or job.dry_run is not None:
        return None

    def read() -> Any:
        plan = demanded_plan(job, path, request.graph_digest)
        return None if plan is None else plan.to_json()

    values = on_first_rank(job.group, read)
    return None if values is None else Plan.from_json(values)


def _validated_plan(job: Job, request: Request, options: PlanningOptions) -> Plan:
    """The plan that is measured as the fastest of some points of the frontier."""
    from tensoropt.frontend.planning.candidate_measurement import validated_plan

    script = tf.compat.v1.get_default_graph()
    feeds = fed_batch(script, options.feed_dict or {}, request.shapes)
    return validated_plan(job, script, request, options.option, options.validate, feeds)


def _notes(request: Request, asked: PlanningOptions, options: PlanningOptions) -> Iterator[str]:
    """Notes about options that had no effect on a plan."""
    if asked.validate > options.validate:
        yield f"validate={asked.validate} is for when the script runs: nothing was measured"
    if options.fetches is None and all(operator.gradient is None for operator in request.graph):
        yield _NO_TRAINING


def _parallelism_profile(
    job: Job, request: Request, limits: Sequence[int | None]
) -> ParallelismProfile:
    """The least time for each number of devices and memory limit.

    The first rank searches and prints them.

    Raises:
        ProfilingReached: in a dry run for this profile.
    """
    from tensoropt.planner.choose import profiling

    counts = request.budget.parallelism
    with collected_later(), others_ignore_interrupt(job.group):
        search = interruptible(lambda: profiling(request, counts, limits).to_json())
        profile = ParallelismProfile.from_json(on_first_rank(job.group, search))
    if job.dry_run is not None and job.dry_run.aim == "profiling":
        raise ProfilingReached(profile)
    if job.group.rank == 0:
        write(profile_table(profile))
    return profile


def _searched_plan(job: Job, request: Request, option: str, point: int | str | None) -> Plan:
    """The plan of an option, or of a point of its frontier.

    The first rank reads the plan that an earlier start has kept, or searches.
    """
    kept: Plan | None = None

    def planned() -> Any:
        nonlocal kept
        file = KeptPlan.of(request, option, job.transport)
        search = interruptible(
            lambda: plan_and_frontier(request, option), lambda result: file.write(*result)
        )
        if point is not None:
            return file.of_point(point, search).to_json()
        kept = file.read()
        if kept is not None:
            return kept.to_json()
        return search()[0].to_json()

    with collected_later(), others_ignore_interrupt(job.group):
        values = on_first_rank(job.group, planned)
        return Plan.from_json(values) if kept is None else kept


def plan_and_frontier(request: Request, option: str) -> tuple[Plan, Mapping[str, Any]]:
    """Search, and return the plan and the values of its frontier to keep.

    The imports are local: a start that finds a kept plan does not load the search.
    """
    from tensoropt.planner.choose import chosen

    market, plan = chosen(request, option)
    return plan, market.kept(plan).to_json()


def _write_notes(job: Job, plan: Plan) -> None:
    """Write a plan's notes and measurements as notes of the first rank, see `write_note`."""
    if job.group.rank == 0:
        measured = [] if plan.validation is None else str(plan.validation).splitlines()
        several = [plan.looked_at] if len(set(plan.frontier_ways)) > 1 else []
        for note in [*plan.notes, *several, *measured]:
            write_note(note)
