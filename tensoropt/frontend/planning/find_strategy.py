"""``find_strategy`` and ``build_execution_graph``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import tensorflow as tf

from tensoropt.errors import GraphError, OptionError
from tensoropt.execution.agreement import Agreement
from tensoropt.execution.rehearsal import ScriptStep
from tensoropt.execution.world import MPIWorld, SingleProcessWorld, World
from tensoropt.frontend.inputs.sample_batch import fed_batch, fed_batch_shapes
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots, unfed
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.job.plan_executor import early_values, plan_executor, session_config
from tensoropt.frontend.planning.candidate_measurement import check_validate, validated_plan
from tensoropt.frontend.planning.dry_run_peak import rehearse_peak
from tensoropt.frontend.planning.option_checks import check_engine, check_options
from tensoropt.frontend.planning.plan_compatibility import check_plan, plan_lines
from tensoropt.frontend.planning.search_progress import patient_ranks, watched
from tensoropt.graph.from_tensorflow import backward_reads, import_graph
from tensoropt.graph.operator import Graph
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.plan.choose import mini_parallelism, mini_time, profiling
from tensoropt.plan.request import Request
from tensoropt.plan.split_check import Check, check
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.report.parallelism_profile_table import profile_table

__all__ = [
    "PreflightOver",
    "RehearsalOver",
    "StepReached",
    "build_execution_graph",
    "find_strategy",
    "step_request",
]

_SAME_GRAPH = "Build the graph from the same arguments, data and versions on every rank."
_SAME_PLAN = "Use the plan that find_strategy returned, or load one file on every rank."


class RehearsalOver(BaseException):
    """A rehearsed script has come to its `build_execution_graph`; a script's own ``except
    Exception`` lets it pass.

    Attributes:
        plan: the plan that the script was about to run.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.plan = plan


class PreflightOver(BaseException):
    """A script that is only checked has come to its first `find_strategy`.

    Attributes:
        check: of the step that the script was about to plan.
    """

    def __init__(self, check: Check) -> None:
        super().__init__(check)
        self.check = check


class StepReached(BaseException):
    """A script whose step is only looked at has come to its first `find_strategy`.

    Attributes:
        request: the step that the script was about to plan.
        script: its graph.
    """

    def __init__(self, request: Request, script: tf.Graph) -> None:
        super().__init__(request)
        self.request = request
        self.script = script


@overload
def find_strategy(
    option: Literal["mini_time", "mini_parallelism"] = ...,
    *,
    batch_size: int | None = ...,
    shapes: Mapping[Any, Sequence[int]] | None = ...,
    fetches: Sequence[Any] | None = ...,
    memory_limit_bytes: int | None = ...,
    parallelism: Iterable[int] | None = ...,
    algorithm: str = ...,
    epsilon: float = ...,
    save_memory: bool = ...,
    validate: int = ...,
    feed_dict: Mapping[Any, Any] | None = ...,
) -> Plan: ...


@overload
def find_strategy(
    option: Literal["profiling"],
    *,
    batch_size: int | None = ...,
    shapes: Mapping[Any, Sequence[int]] | None = ...,
    fetches: Sequence[Any] | None = ...,
    memory_limit_bytes: int | None = ...,
    parallelism: Iterable[int] | None = ...,
    algorithm: str = ...,
    epsilon: float = ...,
    save_memory: bool = ...,
    validate: int = ...,
    feed_dict: Mapping[Any, Any] | None = ...,
) -> ParallelismProfile: ...


@overload
def find_strategy(
    option: str,
    *,
    batch_size: int | None = ...,
    shapes: Mapping[Any, Sequence[int]] | None = ...,
    fetches: Sequence[Any] | None = ...,
    memory_limit_bytes: int | None = ...,
    parallelism: Iterable[int] | None = ...,
    algorithm: str = ...,
    epsilon: float = ...,
    save_memory: bool = ...,
    validate: int = ...,
    feed_dict: Mapping[Any, Any] | None = ...,
) -> Plan | ParallelismProfile: ...


def find_strategy(
    option: str = "mini_time",
    *,
    batch_size: int | None = None,
    shapes: Mapping[Any, Sequence[int]] | None = None,
    fetches: Sequence[Any] | None = None,
    memory_limit_bytes: int | None = None,
    parallelism: Iterable[int] | None = None,
    algorithm: str = "ft",
    epsilon: float = 0.0,
    save_memory: bool = False,
    validate: int = 0,
    feed_dict: Mapping[Any, Any] | None = None,
) -> Plan | ParallelismProfile:
    """Track the frontier between time and memory, and pick its point for an option.

    Args:
        option: what to look for (TensorOpt, section 4.1): "mini_time", the fastest strategy on
            all devices that fits the memory limit; "mini_parallelism", the fastest on the fewest
            devices that fit; "profiling", the minimal time per step at each number of devices,
            without running anything.
        batch_size: the first dimension of placeholders that leave it unknown.
        shapes: shapes of placeholders with other unknown dimensions.
        fetches: what one training step runs; by default what the script's optimizers made.
        memory_limit_bytes: memory of one device; by default the cluster's. A plan takes at most
            this divided by the cluster's safety factor (1.1 in the paper).
        parallelism: for "profiling", the numbers of devices; by default 1, 2, 4, ... up to the
            job's, and the job's.
        algorithm: which strategies are looked at: "ft", all of them, by frontier tracking; those of
            other systems (section 5.1), "data_parallel", "optcnn", "tofu" (every tensor split over
            all devices), "tofu_recursive" (Tofu's own search), "mesh_tensorflow"; "brute_force",
            all of them one by one, for graphs of a few operators.
        epsilon: for "ft", how far from exact the frontier may be: for every strategy it has a
            point of at most 1 + ``epsilon`` times its memory and its time, and the search ends as
            soon as that is proven. 0.01 is one per cent. A plan's ``within`` says what was proven.
        save_memory: whether to look at strategies, too, that keep less for the backward pass: a
            tensor before or after resharding only (section 4.2), or operators computed again.
            The search takes longer, and finds strategies of less memory.
        validate: how many points of the frontier are measured before one is adopted, and data
            parallelism beside them: they run a few steps each, in turns, on variables of their
            own; the fastest on the slowest rank is returned, with what was measured in its
            ``validation``. One that exceeds the memory limit is dropped for the next point.
        feed_dict: a global batch that these steps are fed; what it lacks is made up. Its shapes
            are planned for where neither ``batch_size`` nor ``shapes`` is given.

    A search of more than a second shows how far it is; Ctrl-C ends it with what it has found, a
    second one ends the job. More devices than have four or five prime axes (16, or 32 where all
    tensors are matrices) are searched from coarse meshes to finer ones, see
    `tensoropt.search.meshes.coarse_to_fine`; a note of the plan says what it did not look at.

    Returns:
        A plan, the same on every rank; for "profiling" the times, which rank 0 also prints.

    Raises:
        OptionError: unknown option or algorithm; a negative epsilon, or one for others than "ft";
            a memory limit or number of devices below 1; a shape that contradicts its placeholder;
            a step that fails while strategies are measured, or nothing to measure.
        FeedError: a value of ``feed_dict`` does not fit.
        GraphError: a placeholder's shape stays unknown.
        InfeasibleError: no strategy fits the memory limit, predicted or measured.
        RankMismatchError: the ranks have built different graphs.
    """
    counts = [] if parallelism is None else sorted(set(parallelism))
    check_options(option, algorithm, epsilon, memory_limit_bytes, counts)
    job = current()
    rehearsal = job.rehearsal
    check_validate(validate, option, algorithm)
    planned_batch = batch_size if rehearsal is None else rehearsal.batch_size or batch_size
    if feed_dict and planned_batch is None and shapes is None:
        shapes = fed_batch_shapes(tf.compat.v1.get_default_graph(), feed_dict)
    request = step_request(job, batch_size, shapes, fetches, memory_limit_bytes)
    space = Space(reuse=save_memory, recompute=save_memory)
    request = replace(
        request,
        algorithm=_rehearsed_algorithm(job) or algorithm,
        space=space,
        epsilon=epsilon,
    )
    job.agreement.check(
        f"find_strategy(option={option!r}, algorithm={request.algorithm!r}, validate={validate})",
        [
            *request.graph.summaries(),
            f"memory_limit_bytes={request.memory_limit_bytes}",
            f"save_memory={save_memory}",
            f"epsilon={epsilon}",
        ],
        _SAME_GRAPH,
    )
    if option == "profiling":
        counts = counts or _doublings(job.devices)
        with patient_ranks(job.group):
            search = watched(lambda: profiling(request, counts).to_json())
            found = on_first_rank(job.group, search)
        profile = ParallelismProfile.from_json(found)
        if job.group.rank == 0:
            sys.stdout.write(profile_table(profile) + "\n")
            sys.stdout.flush()
        return profile
    if validate and rehearsal is None:
        script = tf.compat.v1.get_default_graph()
        feeds = fed_batch(script, feed_dict or {}, request.shapes)
        plan = validated_plan(job, script, request, option, validate, feeds)
    else:
        choose = mini_time if option == "mini_time" else mini_parallelism
        with patient_ranks(job.group):
            search = watched(lambda: choose(request).to_json())
            plan = Plan.from_json(on_first_rank(job.group, search))
        if validate:
            note = f"validate={validate} is for when the script runs: nothing was measured"
            plan = replace(plan, notes=(*plan.notes, note))
    if job.group.rank == 0:
        measured = [] if plan.validation is None else str(plan.validation).splitlines()
        for note in [*plan.notes, *measured]:
            sys.stderr.write(f"tensoropt: {note}\n")
    return plan


def _rehearsed_algorithm(job: Job) -> str | None:
    return None if job.rehearsal is None else job.rehearsal.algorithm


def step_request(
    job: Job,
    batch_size: int | None = None,
    shapes: Mapping[Any, Sequence[int]] | None = None,
    fetches: Sequence[Any] | None = None,
    memory_limit_bytes: int | None = None,
) -> Request:
    """One training step of the default graph and what it is planned for, see `find_strategy`.

    A rehearsal's numbers come before the script's; one that only checks ends here.
    """
    rehearsal = job.rehearsal
    if rehearsal is not None:
        batch_size = rehearsal.batch_size or batch_size
        memory_limit_bytes = rehearsal.memory_limit_bytes or memory_limit_bytes
    script = tf.compat.v1.get_default_graph()
    fed, batched = fed_shapes(script, batch_size, shapes)
    roots = training_roots(script, fetches)
    graph = _import(script, roots, fed)
    fed_shape = {op.name: fed[op.name] for op in graph if op.is_placeholder}
    loaded = batched & {op.name for op in graph}
    step = ScriptStep(script, roots, fed_shape, loaded, session_config(job))
    request = Request(
        graph=graph,
        cluster_at=job.cluster_at,
        profile_at=job.profile_at,
        reads=backward_reads(script, graph),
        devices=job.devices,
        roots=tuple(roots),
        shapes=fed_shape,
        batch_placeholders=loaded,
        memory_limit_bytes=memory_limit_bytes,
        rehearse=rehearse_peak(step),
    )
    if rehearsal is not None and rehearsal.aim == "check":
        raise PreflightOver(check(request))
    if rehearsal is not None and rehearsal.aim == "profile":
        raise StepReached(request, script)
    return request


def build_execution_graph(
    engine: str = "tensorflow", plan: Plan | ParallelismProfile | None = None
) -> None:
    """Make each rank ready to run a plan.

    Variables take the values of their initializers, those apart that runs before the first plan
    gave a value. Where a plan needs fewer devices than there
    are ranks (``mini_parallelism``), the other ranks end here, with status 0.

    Args:
        engine: "tensorflow".
        plan: from `find_strategy`, or `Plan.load`.

    Raises:
        OptionError: unknown engine, or no plan (a profile is none).
        PlanError: the plan is for another graph or another number of devices.
        RankMismatchError: the ranks have different plans.
    """
    check_engine(engine)
    if not isinstance(plan, Plan):
        raise OptionError(
            f"an execution graph is built for a plan. Got {type(plan).__name__}; pass what "
            "find_strategy(option='mini_time') returned."
        )
    job = current()
    script = tf.compat.v1.get_default_graph()
    check_plan(job, script, plan)
    if job.rehearsal is not None:
        raise RehearsalOver(plan)
    job.agreement.check("build_execution_graph(...)", plan_lines(plan), _SAME_PLAN)
    values = early_values(job, script)
    world = _world(job, plan)
    if job.executor is not None:
        job.executor.close()
    job.plan = plan
    job.executor = plan_executor(job, script, plan, world, job.agreement)
    job.executor.assign(values)


def _import(script: tf.Graph, roots: Sequence[str], fed: Mapping[str, tuple[int, ...]]) -> Graph:
    graph = import_graph(script, roots, fed)
    unknown = [op.name for op in graph if op.is_placeholder and op.name not in fed]
    unknown += unfed(graph)
    if unknown:
        raise GraphError(
            "a strategy is found for known shapes. Got placeholders with unknown dimensions: "
            f"{', '.join(map(repr, unknown))}. Pass find_strategy(batch_size=...) for the first "
            "dimension, or shapes={placeholder: [...]}."
        )
    return graph


def _doublings(devices: int) -> list[int]:
    return [2**k for k in range(devices.bit_length()) if 2**k < devices] + [devices]


def _world(job: Job, plan: Plan) -> World:
    """The world that runs a plan; ranks it does not need end here, the others are the job now."""
    if not job.is_mpi:
        return SingleProcessWorld(plan.mesh)
    if plan.devices < job.group.size:
        if job.group.rank >= plan.devices:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            raise SystemExit(0)
        job.group = job.group.subgroup(range(plan.devices))
        job.devices = plan.devices
        job.agreement = Agreement(job.group)
    return MPIWorld(plan.mesh, job.group)
