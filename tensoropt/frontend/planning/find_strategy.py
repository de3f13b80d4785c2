"""``find_strategy``: search the frontier of a training step, and choose a point of it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, overload

import tensorflow as tf

from tensoropt.errors import OptionError
from tensoropt.frontend.inputs.sample_batch import fed_batch, fed_batch_shapes
from tensoropt.frontend.job.dry_run import ProfilingReached
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.planning.budget import BUDGETED, BudgetArguments
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.frontend.planning.option_checks import (
    check_options,
    check_point,
    check_schedule,
    check_validate,
)
from tensoropt.frontend.planning.search_progress import interruptible, others_ignore_interrupt
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.garbage import collected_later
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.problem.edges.tensor_reuse import FRUGAL, PLAIN
from tensoropt.report.parallelism_profile_table import profile_table
from tensoropt.transformations.staged.schedule import SCHEDULES, Schedule

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in typing from Python 3.11 on

__all__ = ["check_values", "find_strategy"]

_SECONDS, _STEPS = 30.0, 1000
"""For how long is searched at most, and how many steps a job is taken to make, unless told."""
_NO_TRAINING = (
    "plans no training: the graph has no gradients; call find_strategy after minimize, or after "
    "tf.gradients"
)
_SAME_GRAPH = "Build the graph from the same arguments, data and versions on every rank."


class _Options(TypedDict, total=False):
    """The arguments of `find_strategy` that do not decide what it returns."""

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
    microbatches: int | None
    pipeline: bool | int | Literal["auto"] | None
    schedule: Schedule | None
    rewrite: bool | None
    point: int | None


@overload
def find_strategy(
    option: Literal["mini_time", "mini_parallelism", "mini_cost"] = ..., **options: Unpack[_Options]
) -> Plan: ...


@overload
def find_strategy(
    option: Literal["profiling"], **options: Unpack[_Options]
) -> ParallelismProfile: ...


@overload
def find_strategy(option: str, **options: Unpack[_Options]) -> Plan | ParallelismProfile: ...


def find_strategy(
    option: str = "mini_time",
    *,
    batch_size: int | None = None,
    shapes: Mapping[Any, Sequence[int]] | None = None,
    fetches: Sequence[Any] | None = None,
    memory_limit_bytes: int | None = None,
    parallelism: Iterable[int] | None = None,
    memory_limits_bytes: Iterable[int] | None = None,
    device_hour_cost: float | None = None,
    max_step_seconds: float | None = None,
    samples: float | None = None,
    deadline_seconds: float | None = None,
    algorithm: str = "ft",
    epsilon: float = 0.0,
    search_seconds: float | Literal["auto"] | None = "auto",
    steps: int | None = None,
    save_memory: bool | None = None,
    validate: int = 0,
    feed_dict: Mapping[Any, Any] | None = None,
    batch_norm: BatchNorm = "global",
    microbatches: int | None = None,
    pipeline: bool | int | Literal["auto"] | None = None,
    schedule: Schedule | None = None,
    rewrite: bool | None = None,
    point: int | None = None,
    **unknown: NoReturn,
) -> Plan | ParallelismProfile:
    """Track the frontier between time and memory, and pick its point for an option.

    Args:
        option: what to find (TensorOpt, section 4.1): "mini_time", the fastest strategy on
            all devices that fits the memory limit; "mini_parallelism", the fastest on the fewest
            devices that fit; "profiling", the minimal time per step at each number of devices,
            without running anything. Besides, "mini_cost", the fastest on the number of devices
            whose steps cost least, of those that meet a deadline.
        batch_size: the first dimension of placeholders that leave it unknown.
        shapes: shapes of placeholders with other unknown dimensions.
        fetches: what one training step runs; by default what the script's optimizers made.
        memory_limit_bytes: memory of one device; by default the cluster's. A plan takes at most
            this divided by the cluster's safety factor (1.1 in the paper).
        parallelism: for "profiling" and "mini_cost", the numbers of devices; by default 1, 2, 4,
            ... up to the job's, and the job's. "mini_cost" passes over those above the job's.
        memory_limits_bytes: for "profiling", several limits in place of ``memory_limit_bytes``.
        device_hour_cost: for "profiling" and "mini_cost", the price of one device for an hour, in
            any currency; by default the cluster's, if its file has one.
        max_step_seconds: for "mini_cost", how long a step may take, as predicted.
        samples: for "mini_cost", how many samples, with ``deadline_seconds`` for all of them, in
            place of ``max_step_seconds``.
        deadline_seconds: see ``samples``.
        algorithm: which strategies are looked at: "ft", all of them, by frontier tracking; those of
            other systems (section 5.1), "data_parallel", "optcnn", "tofu" (every tensor split over
            all devices), "tofu_recursive" (Tofu's own search), "mesh_tensorflow"; "brute_force",
            all of them one by one, for graphs of a few operators. All but the first two are in
            the repository, and not in the installed package.
        epsilon: for "ft", how far from exact the frontier may be: for every strategy it has a
            point of at most 1 + ``epsilon`` times its memory and its time, and the search ends as
            soon as that is proven. 0.01 is one per cent. A plan's ``within`` is the proven gap.
        search_seconds: for "ft", after how many seconds a search ends with the best frontier that
            it has, and its proven gap, as at Ctrl-C; None for no limit. Every search ends by itself
            at last, most of them sooner. The first frontier is waited for, however long it takes,
            and working out costs does not count but on many devices. "mini_parallelism",
            "mini_cost" and "profiling" search each number of devices for as long. All that is
            looked at beside the batch at once has as long once more. A frontier that ends by itself
            is the same on every machine; of one that time has ended, a note of the plan says so.
            "auto" is 30, or less where what is left to win in the job's ``steps`` takes less than
            the search has taken: at most what its proven gap allows, in each of them. Stages and
            rewritten graphs are then not looked at, unless they are demanded, where looking would
            take longer than they can win.
        steps: how many steps the job is going to make, for ``search_seconds="auto"``; None where
            that is not known, which counts as 1,000. Of a model of Keras ``fit`` tells it.
        save_memory: whether strategies keep less for the backward pass: a tensor only before or
            only after resharding (section 4.2), or not at all, its operator being computed again.
            None, the default, searches such strategies, too, where memory is short. True searches
            them everywhere, which takes longer. False forbids them, in stages of a ``pipeline``,
            too, which may still recompute as a whole.
        validate: how many points of the frontier are measured before one is adopted, and data
            parallelism beside them: they run a few steps each, in turns, on variables of their
            own; the fastest on the slowest rank is returned, with what was measured in its
            ``validation``. One that exceeds the memory limit is dropped for the next point.
        feed_dict: a global batch for these steps; missing inputs are generated. Its shapes are
            planned for where neither ``batch_size`` nor ``shapes`` is given.
        batch_norm: whose mean and variance normalises in training, of ``tf.nn.fused_batch_norm``:
            with "global" the whole batch's, as on one device, for two collectives a layer; with
            "local" that of each device's own shard, for none, as in data parallelism with Horovod.
            Losses then depend on the number of devices and on the plan, whose notes say so. The
            mean and variance that the script reads are averages over the devices, for one
            collective of all layers, so that moving averages agree on all devices, see
            `tensoropt.graph.batch_norm`. With ``microbatches`` or a ``pipeline`` a shard is that of
            a microbatch, as where plain TensorFlow accumulates gradients.
        microbatches: in how many equal parts of the batch a step computes its gradients, one part
            after another, before they are summed over devices and variables are updated, once: a
            step keeps for its backward pass what one part needs. Losses, updates and fetches are
            those of the whole batch. None, the default, searches 2, 4, ... parts where memory is
            short, and with stages the number of the fastest step. A number demands so many parts; 1
            forbids parts. What mixes examples other than by a final sum or mean (batch
            normalisation in training by "global" statistics) is an error that names it, if more
            than one part is demanded.
        pipeline: in how many stages the layers are divided, each on devices of its own, through
            which microbatches pass one after another, forward and back; see the user guide and
            `tensoropt.pipeline`. Losses, updates and fetches are those of the whole batch. None,
            the default, searches the most promising stages, and branches side by side, where
            nothing else fits the memory limit, or where a step takes 5 ms or more and by bounds
            stages can be 3 % faster. "auto" searches all numbers of stages and microbatches that
            bounds leave. A number from 2 demands so many stages: all ways to make them and to split
            each over its own devices are searched, and nothing else. False, or 1, forbids stages
            and branches.
        schedule: in which order microbatches pass the stages of a ``pipeline``: "1f1b", backward
            passes as soon as they can be, which holds fewer activations; "gpipe", all forward
            passes first. None is the one of the plan that is chosen among both, and among branches
            side by side, for which neither is.
        rewrite: whether graphs are searched that compute the same in another way, by proven
            substitutions, as two products that share a factor are one product; see
            `tensoropt.rewriting`. None, the default, searches graphs that are estimated to be 3 %
            faster, where the job's ``steps`` can win more than looking takes. True searches all
            graphs that are about as fast as the script's. False forbids rewriting. A rewritten
            graph is planned where its step is predicted to take at least 3 % less time, or nothing
            else fits; it may be in microbatches, keep less or have stages. Variables, slots,
            checkpoints and what is fetched stay as the script has them; sums are in another order.
        point: the number of a point of the frontier, its place in ``Plan.frontier``, as
            `tensoropt show` lists it: the plan is that of this point, in place of the option's.
            Nothing is searched where an earlier start with the same options has kept its frontier,
            see the user guide.

    One frontier has all that is searched. ``save_memory``, ``microbatches``, ``pipeline`` and
    ``rewrite`` go together. Algorithms other than "ft" look at nothing that is not demanded.

    A search of more than a second shows its progress; Ctrl-C ends it with the best found so far, a
    second one ends the job. More devices than have four or five prime axes (16, or 32 where all
    tensors are matrices) are searched from coarse meshes to finer ones, see
    `tensoropt.search.multilevel.coarse_to_fine`; a note of the plan
    lists what was not searched.

    Returns:
        A plan, the same on every rank; for "profiling" a table, which rank 0 also prints.

    Raises:
        OptionError: an argument of another name; unknown option, algorithm or ``batch_norm``; a
            negative epsilon, or one for others than "ft"; ``search_seconds`` that are not above
            0; a memory limit, number of devices or of ``microbatches`` below 1; a shape
            that contradicts its placeholder; a step that fails while strategies are measured, or
            nothing to measure; a ``pipeline`` of more stages than devices, with one microbatch, or
            with another algorithm than "ft"; ``rewrite`` with another one; a ``schedule`` where no
            stages are looked at; a ``point`` that the frontier lacks, or with "profiling" or
            ``validate``; an argument about numbers of devices, their price or a deadline with an
            option that does not take it, or with one that it contradicts.
        FeedError: a value of ``feed_dict`` does not fit.
        GraphError: a placeholder's shape stays unknown; ``batch_norm="local"`` where the script
            makes a gradient of batch normalisation without ``tf.gradients``; several
            ``microbatches`` of a step that mixes examples, or that do not divide the batch; a
            ``pipeline`` of such a step, or of more stages than it has operators.
        InfeasibleError: no strategy fits the memory limit, predicted or measured, or the ``point``
            does not; no plan meets the deadline of "mini_cost".
        RankMismatchError: the ranks have built different graphs.
    """
    OptionError.refuse(unknown, find_strategy)
    budget = BudgetArguments.of(
        parallelism,
        memory_limits_bytes,
        device_hour_cost,
        max_step_seconds,
        samples,
        deadline_seconds,
    )
    job = current()
    dry_run = job.dry_run
    if dry_run is not None:
        microbatches, pipeline = dry_run.microbatches or microbatches, dry_run.pipeline or pipeline
        schedule = dry_run.schedule or schedule
        if dry_run.aim == "profiling":
            option, validate, point = "profiling", 0, None
            budget = budget.of_dry_run(dry_run)
            memory_limit_bytes = None if budget.memory_limits_bytes else memory_limit_bytes
    check_options(
        option,
        algorithm,
        epsilon,
        memory_limit_bytes,
        batch_norm,
        search_seconds,
        microbatches,
        pipeline,
        steps,
        rewrite,
    )
    budget.check(option, memory_limit_bytes)
    searched = (dry_run and dry_run.algorithm) or algorithm
    is_tracked, is_asked = searched == "ft", pipeline is not None
    if pipeline is None:
        pipeline = "auto" if is_tracked else False
    check_schedule(schedule, pipeline)
    stages = None if pipeline == "auto" else int(pipeline) or 1
    check_validate(validate, option, algorithm)
    check_point(point, option, validate)
    if dry_run is not None and dry_run.point is not None:
        point = dry_run.point
    planned_batch = batch_size if dry_run is None else dry_run.batch_size or batch_size
    if feed_dict and planned_batch is None and shapes is None:
        shapes = fed_batch_shapes(tf.compat.v1.get_default_graph(), feed_dict)
    request = replace(
        step_request(
            job,
            batch_size,
            shapes,
            fetches,
            memory_limit_bytes,
            batch_norm,
            microbatches,
            None
            if stages == 1
            else PipelineNumbers(
                stages, microbatches, is_asked, SCHEDULES if schedule is None else (schedule,)
            ),
        ),
        algorithm=searched,
        space=FRUGAL if save_memory else PLAIN,
        epsilon=epsilon,
        **_ends(search_seconds, steps, dry_run.search_seconds if dry_run else None),
        rewrite=rewrite if is_tracked else False,
        keep_less=is_tracked and save_memory is None,
        accumulate=is_tracked and microbatches is None,
        saves_dry_runs=dry_run is None and not validate,
    )
    if option in BUDGETED:
        request = budget.budgeted(request, option, stages or 1)
    job.agreement.check(
        f"find_strategy(option={option!r}, algorithm={request.algorithm!r}, validate={validate})",
        [
            *request.graph.summaries(),
            f"memory_limit_bytes={request.memory_limit_bytes}",
            f"save_memory={save_memory}",
            f"epsilon={epsilon}",
            f"search_seconds={search_seconds}",
            f"batch_norm={batch_norm}",
            f"microbatches={microbatches}",
            f"pipeline={pipeline!r}",
            f"schedule={schedule!r}",
            f"rewrite={rewrite}",
            f"point={point}",
            f"budget={request.budget}",
            f"memory_limits_bytes={budget.memory_limits_bytes}",
        ],
        _SAME_GRAPH,
    )
    if option == "profiling":
        return _parallelism_profile(job, request, budget.memory_limits_bytes or (None,))
    if validate and dry_run is None:
        from tensoropt.frontend.planning.candidate_measurement import validated_plan

        script = tf.compat.v1.get_default_graph()
        feeds = fed_batch(script, feed_dict or {}, request.shapes)
        plan = validated_plan(job, script, request, option, validate, feeds)
    else:
        plan = _searched_plan(job, request, option, point)
        if validate:
            note = f"validate={validate} is for when the script runs: nothing was measured"
            plan = replace(plan, notes=(*plan.notes, note))
    if fetches is None and all(operator.gradient is None for operator in request.graph):
        plan = replace(plan, notes=(*plan.notes, _NO_TRAINING))
    # A point is demanded: where its step cannot be emitted no other plan takes its place.
    job.searched = (plan, request) if point is None else None
    _write_notes(job, plan)
    return plan


def check_values(arguments: Mapping[str, Any]) -> None:
    """Check values of arguments before there is a step.

    Args:
        arguments: of `find_strategy`, all of them by their names.

    Raises:
        OptionError: see there.
    """
    names = inspect.signature(check_options).parameters
    check_options(**{name: arguments[name] for name in names})
    option, algorithm, pipeline = (arguments[each] for each in ("option", "algorithm", "pipeline"))
    names = inspect.signature(BudgetArguments.of).parameters
    budget = BudgetArguments.of(**{name: arguments[name] for name in names})
    budget.check(option, arguments["memory_limit_bytes"])
    check_schedule(arguments["schedule"], "auto" if pipeline is None else pipeline)
    check_validate(arguments["validate"], option, algorithm)
    check_point(arguments["point"], option, arguments["validate"])


def _parallelism_profile(
    job: Job, request: Request, limits: Sequence[int | None]
) -> ParallelismProfile:
    """The least time at each number of devices and memory limit, searched and printed by the first
    rank.

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
        sys.stdout.write(profile_table(profile) + "\n")
        sys.stdout.flush()
    return profile


def _searched_plan(job: Job, request: Request, option: str, point: int | None) -> Plan:
    """The plan of an option, or of a point of its frontier; kept by an earlier start or searched,
    by the first rank."""
    kept: Plan | None = None

    def planned() -> Any:
        nonlocal kept
        file = KeptPlan.of(request, option, job.transport)
        search = interruptible(lambda: _plan(request, option), lambda found: file.write(*found))
        if point is not None:
            return file.of_point(point, search).to_json()
        kept = file.read()
        if kept is not None:
            return kept.to_json()
        return search()[0].to_json()

    with collected_later(), others_ignore_interrupt(job.group):
        values = on_first_rank(job.group, planned)
        return Plan.from_json(values) if kept is None else kept


def _plan(request: Request, option: str) -> tuple[Plan, Mapping[str, Any]]:
    """Search: the plan, and its frontier to keep. A start that has a kept plan imports no module of
    this."""
    from tensoropt.planner.choose import chosen

    market, plan = chosen(request, option)
    return plan, market.kept(plan).values


def _write_notes(job: Job, plan: Plan) -> None:
    """A plan's notes, and what was measured for it, on the first rank's standard error."""
    if job.group.rank == 0:
        measured = [] if plan.validation is None else str(plan.validation).splitlines()
        several = [plan.looked_at] if len(set(plan.frontier_ways)) > 1 else []
        for note in [*plan.notes, *several, *measured]:
            sys.stderr.write(f"tensoropt: {note}\n")


def _ends(
    seconds: float | Literal["auto"] | None, steps: int | None, of_dry_run: float | None
) -> dict[str, Any]:
    """What ends a search, as fields of a request."""
    if of_dry_run is not None:
        seconds = of_dry_run
    if seconds == "auto":
        return {"search_seconds": _SECONDS, "steps": _STEPS if steps is None else steps}
    return {"search_seconds": seconds}
