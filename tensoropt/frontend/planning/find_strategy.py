"""``find_strategy``: search the frontier of a training step, and choose one of its points."""

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

_SECONDS = 30.0  # longest search with search_seconds="auto"
_STEPS = 1000  # steps that a job is assumed to make, where ``steps`` is not given
_NO_TRAINING = (
    "plans no training: the graph has no gradients; call find_strategy after minimize, or after "
    "tf.gradients"
)
_SAME_GRAPH = "Build the graph from the same arguments, data and versions on every rank."


class _Options(TypedDict, total=False):
    """The arguments of `find_strategy` that do not decide the type of its result."""

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
    """Search the frontier between time and memory, and choose the option's point of it.

    Args:
        option: the aim (TensorOpt, section 4.1). "mini_time": the fastest strategy on all devices
            that fits the memory limit. "mini_parallelism": the fastest strategy on the fewest
            devices that fit. "profiling": the least time per step for each number of devices;
            nothing runs. In addition to the paper, "mini_cost": the fastest strategy on the number
            of devices whose steps cost least among those that meet a deadline.
        batch_size: the first dimension of placeholders that leave it unknown.
        shapes: shapes of placeholders with other unknown dimensions.
        fetches: the operators of one training step; by default those of the script's optimizers.
        memory_limit_bytes: memory of one device; by default the cluster's. A plan uses at most
            this memory divided by the cluster's safety factor (1.1 in the paper).
        parallelism: for "profiling" and "mini_cost", the numbers of devices; by default 1, 2, 4,
            ... up to the job's, and the job's. "mini_cost" ignores numbers above the job's.
        memory_limits_bytes: for "profiling", several limits in place of ``memory_limit_bytes``.
        device_hour_cost: for "profiling" and "mini_cost", the price of one device for an hour, in
            any currency; by default the cluster's, if its file has one.
        max_step_seconds: for "mini_cost", the longest predicted step allowed.
        samples: for "mini_cost", the number of samples to process within ``deadline_seconds``. Use
            both in place of ``max_step_seconds``.
        deadline_seconds: for "mini_cost", the time for all ``samples``.
        algorithm: the strategies to consider. "ft": all of them, by frontier tracking.
            "data_parallel": data parallelism. "optcnn", "tofu" (every tensor split over all
            devices), "tofu_recursive" (Tofu's own search), "mesh_tensorflow": those of other
            systems (section 5.1). "brute_force": all of them, one by one, for graphs of a few
            operators. All but the first two are in the repository, not in the installed package.
        epsilon: for "ft", the gap allowed between the frontier and the exact one: for every
            strategy the frontier has a point of at most 1 + ``epsilon`` times its memory and its
            time. The search ends as soon as this is proven. 0.01 is one per cent. A plan's
            ``within`` is the proven gap.
        search_seconds: for "ft", the time limit of the search; None for no limit. At the limit, as
            at Ctrl-C, the search ends with its best frontier and its proven gap. Every search ends
            by itself eventually, most of them sooner. The first frontier is always completed, and
            the computation of costs counts only on many devices. "mini_parallelism", "mini_cost"
            and "profiling" may search this long for each number of devices. The search of
            microbatches, stages, rewritten graphs and strategies that keep less may take this long
            once more, in all. A search that ends by itself finds the same frontier on every
            machine; a note of the plan says if the limit ended it.
            "auto" is 30 seconds, or less: a search also ends when it has taken longer than the rest
            of it can save. The most it can save is the proven gap in each of the job's ``steps``.
            "auto" also skips stages and rewritten graphs that are not demanded, if their search
            would take longer than they can save.
        steps: number of steps of the job, for ``search_seconds="auto"``; None if it is not known,
            which counts as 1,000. ``fit`` of a Keras model passes it.
        save_memory: whether strategies may keep less for the backward pass: a tensor only before or
            only after resharding (section 4.2), or not at all, so that its operator is computed
            again. None, the default, adds these strategies where memory is short. True searches
            them everywhere, which takes longer. False forbids them, also in stages of a
            ``pipeline``; a stage may still recompute as a whole.
        validate: number of frontier points to measure before one is adopted. They and data
            parallelism run a few steps each, in turns, on variables of their own. The candidate
            that is fastest on the slowest rank is returned, with the measurements in its
            ``validation``. A candidate that exceeds the memory limit is replaced by the next point.
        feed_dict: a global batch for the measured steps; missing inputs are generated. Its shapes
            are planned for if neither ``batch_size`` nor ``shapes`` is given.
        batch_norm: the examples whose mean and variance ``tf.nn.fused_batch_norm`` uses in
            training. "global": the whole batch, as on one device, at the price of two collectives
            a layer. "local": each device's own shard, without collectives, as in data parallelism
            with Horovod. With "local", losses depend on the number of devices and on the plan,
            whose notes say so. The mean and variance that the script reads are then averages over
            the devices, by one collective for all layers, so that moving averages agree on all
            devices, see `tensoropt.graph.batch_norm`. With ``microbatches`` or a ``pipeline`` a
            shard is a shard of a microbatch, as if plain TensorFlow accumulated gradients.
        microbatches: number of equal parts of the batch. A step computes the gradients of one part
            after another, sums them, and updates variables once, so that it keeps only one part's
            tensors for the backward pass. Losses, updates and fetches are those of the whole batch.
            None, the default, searches 2, 4, ... parts where memory is short, and with stages the
            number of the fastest step. A number demands that many parts; 1 forbids parts. It is an
            error to demand parts of a step that mixes examples other than by a final sum or mean
            (batch normalisation in training with "global" statistics); the error names the
            operator.
        pipeline: number of stages. The layers are divided into stages on separate devices, through
            which microbatches pass one after another, forward and back; see the user guide and
            `tensoropt.pipeline`. Losses, updates and fetches are those of the whole batch. None,
            the default, searches the most promising stages, and branches side by side, if no other
            strategy fits the memory limit, or if a step takes 5 ms or more and bounds allow stages
            to be 3 % faster. "auto" searches all numbers of stages and microbatches that bounds
            allow. A number from 2 demands that many stages: all ways to make them and to split each
            over its own devices are searched, and nothing else. False, or 1, forbids stages and
            branches.
        schedule: the order in which microbatches pass the stages of a ``pipeline``. "1f1b" runs
            backward passes as early as possible, which holds fewer activations; "gpipe" runs all
            forward passes first. None searches both, and branches side by side, which have no
            schedule.
        rewrite: whether to search graphs that compute the same result in another way, by proven
            substitutions: for example, two products that share a factor become one product; see
            `tensoropt.rewriting`. None, the default, searches graphs that are estimated to be 3 %
            faster, if the job's ``steps`` can save more than the search takes. True searches all
            graphs that are about as fast as the script's. False forbids rewriting. A rewritten
            graph is chosen if its step is predicted to take at least 3 % less time, or if nothing
            else fits; it may have microbatches or stages and may keep less. Variables, slots,
            checkpoints and fetches stay as in the script; sums are computed in another order.
        point: the number of a frontier point, its position in ``Plan.frontier``, as
            `tensoropt show` lists it. The plan is the plan of this point instead of the option's.
            Nothing is searched if an earlier start with the same options has kept its frontier,
            see the user guide.

    All strategies are on one frontier: ``save_memory``, ``microbatches``, ``pipeline`` and
    ``rewrite`` can be combined. Algorithms other than "ft" consider only demanded ones.

    A search of more than a second shows its progress. Ctrl-C ends the search with the best frontier
    so far; a second Ctrl-C ends the job. More devices than have four or five prime axes (16, or 32
    if all tensors are matrices) are searched from coarse meshes to finer ones, see
    `tensoropt.search.multilevel.coarse_to_fine`; a note of the plan lists the strategies that were
    not searched.

    Returns:
        A plan, the same on every rank; for "profiling" a table, which rank 0 also prints.

    Raises:
        OptionError: an unknown argument, option, algorithm or ``batch_norm``; a negative epsilon,
            or an epsilon for another algorithm than "ft"; ``search_seconds`` not above 0; a memory
            limit, number of devices or number of ``microbatches`` below 1; a shape that contradicts
            its placeholder; a measured step that fails, or nothing to measure; a ``pipeline`` of
            more stages than devices, with one microbatch, or with another algorithm than "ft";
            ``rewrite`` with another algorithm than "ft"; a ``schedule`` without stages; a ``point``
            that is not on the frontier, or a ``point`` with "profiling" or ``validate``; an
            argument about numbers of devices, prices or deadlines that the option does not accept,
            or that contradicts another argument.
        FeedError: a value of ``feed_dict`` does not fit.
        GraphError: a placeholder's shape stays unknown; ``batch_norm="local"`` and the script makes
            a gradient of batch normalisation without ``tf.gradients``; several ``microbatches`` of
            a step that mixes examples, or a number of them that does not divide the batch; a
            ``pipeline`` of a step that mixes examples, or of more stages than it has operators.
        InfeasibleError: no strategy fits the memory limit, predicted or measured; the ``point``
            does not fit it; no plan meets the deadline of "mini_cost".
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
    # The script demands its point: no other plan may take its place.
    job.searched = (plan, request) if point is None else None
    _write_notes(job, plan)
    return plan


def check_values(arguments: Mapping[str, Any]) -> None:
    """Check values of arguments before there is a step.

    Args:
        arguments: all arguments of `find_strategy`, by name.

    Raises:
        OptionError: as `find_strategy` does.
    """
    names = inspect.signature(check_options).parameters
    check_options(**{name: arguments[name] for name in names})
    option, algorithm, pipeline = (arguments[name] for name in ("option", "algorithm", "pipeline"))
    names = inspect.signature(BudgetArguments.of).parameters
    budget = BudgetArguments.of(**{name: arguments[name] for name in names})
    budget.check(option, arguments["memory_limit_bytes"])
    check_schedule(arguments["schedule"], "auto" if pipeline is None else pipeline)
    check_validate(arguments["validate"], option, algorithm)
    check_point(arguments["point"], option, arguments["validate"])


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
        sys.stdout.write(profile_table(profile) + "\n")
        sys.stdout.flush()
    return profile


def _searched_plan(job: Job, request: Request, option: str, point: int | None) -> Plan:
    """The plan of an option, or of a point of its frontier.

    The first rank reads the plan that an earlier start has kept, or searches.
    """
    kept: Plan | None = None

    def planned() -> Any:
        nonlocal kept
        file = KeptPlan.of(request, option, job.transport)
        search = interruptible(lambda: _plan(request, option), lambda result: file.write(*result))
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
    """Search, and return the plan and the values of its frontier to keep.

    The imports are local: a start that finds a kept plan does not load the search.
    """
    from tensoropt.planner.choose import chosen

    market, plan = chosen(request, option)
    return plan, market.kept(plan).values


def _write_notes(job: Job, plan: Plan) -> None:
    """Write a plan's notes and measurements to the first rank's standard error."""
    if job.group.rank == 0:
        measured = [] if plan.validation is None else str(plan.validation).splitlines()
        several = [plan.looked_at] if len(set(plan.frontier_ways)) > 1 else []
        for note in [*plan.notes, *several, *measured]:
            sys.stderr.write(f"tensoropt: {note}\n")


def _ends(
    seconds: float | Literal["auto"] | None, steps: int | None, of_dry_run: float | None
) -> dict[str, Any]:
    """The fields of a request that end its search."""
    if of_dry_run is not None:
        seconds = of_dry_run
    if seconds == "auto":
        return {"search_seconds": _SECONDS, "steps": _STEPS if steps is None else steps}
    return {"search_seconds": seconds}
