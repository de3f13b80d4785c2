"""The training step that `find_strategy` plans: its graph, shapes and limits, as a request."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from collectives.native.transport import SWITCH
from tensoropt.errors import GraphError
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots, unfed
from tensoropt.frontend.job.dry_run import CheckReached, StepReached
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.job.plan_executor import session_config
from tensoropt.frontend.planning.dry_run_peak import dry_run_peak, stage_peak
from tensoropt.garbage import collected_later
from tensoropt.graph.batch_norm import with_batch_norm
from tensoropt.graph.from_tensorflow import backward_reads, import_graph, needed_operations
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.pins import Pins
from tensoropt.planner.fixed.words import fixed_dimensions
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.order_of_passes import SCHEDULES

__all__ = ["graph_of", "imported_step", "step_request"]


@dataclass(frozen=True, slots=True, eq=False)
class _Imported:
    """An imported step: its graph, roots and shapes, and the version of the script's graph."""

    version: int
    roots: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    graph: Graph


_imported: weakref.WeakKeyDictionary[tf.Graph, _Imported] = weakref.WeakKeyDictionary()
"""The last imported step of each script's graph."""


def step_request(job: Job, options: PlanningOptions) -> Request:
    """The request to plan one training step of the default graph, see `find_strategy`.

    A dry run for a check or a profile ends here.

    Raises:
        OptionError: a shape that contradicts its placeholder.
        GraphError: a placeholder's shape stays unknown; local statistics of a batch normalisation
            that the script differentiates itself; several microbatches of a step that mixes
            examples, or of a batch that does not divide.
        CheckReached: in a dry run for a check.
        StepReached: in a dry run for a profile.
    """
    script = tf.compat.v1.get_default_graph()
    fed, batched = fed_shapes(script, options.batch_size, options.shapes)
    roots = training_roots(script, options.fetches)
    with collected_later():
        imported = imported_step(script, roots, fed)
    _imported[script] = _Imported(script.version, tuple(roots), dict(fed), imported)
    graph = with_batch_norm(imported, options.batch_norm)
    needed = {str(op.name) for op in needed_operations(script, roots)}
    fed_shape = {op.name: fed[op.name] for op in graph if op.is_placeholder}
    # Placeholders that the step reads only for their shape are folded away in the graph. A plan
    # lists their shapes too, because its graph is imported with them.
    fed_shape |= {name: shape for name, shape in fed.items() if name in needed}
    loaded = batched & {op.name for op in graph}
    count = options.microbatches or 1
    cut = None
    if count > 1 and options.stages in (None, 1):
        cut = cut_along_batch(graph, loaded, count)
        cut.check()
    step_options = StepOptions(loaded, job.seed, session_config(job), options.batch_norm)
    native = _is_native(job)
    step = ScriptStep(script, roots, fed_shape, step_options, native=native, graph=imported)
    request = Request(
        graph=graph,
        cluster_at=job.cluster_at,
        profile_at=job.profile_at,
        reads=backward_reads(script, graph),
        devices=job.devices,
        roots=tuple(roots),
        shapes=fed_shape,
        batch_placeholders=loaded,
        memory_limit_bytes=options.memory_limit_bytes,
        dry_run_peak=dry_run_peak(step),
        stage_peak=stage_peak(step),
        batch_norm=options.batch_norm,
        compression=options.compression,
        cut=cut,
        pipeline=_pipeline_numbers(options),
        pins=_pins(job, options, graph, loaded),
    )
    dry_run = job.dry_run
    if dry_run is not None and dry_run.aim == "check":
        from tensoropt.planner.split_check import check

        raise CheckReached(check(request))
    if dry_run is not None and dry_run.aim == "profile":
        raise StepReached(request, script)
    return request


def _pins(job: Job, options: PlanningOptions, graph: Graph, loaded: frozenset[str]) -> Pins:
    """The dimensions that the script divides by hand.

    Raises:
        OptionError: they do not fit the step.
    """
    if not options.fixed:
        return Pins()
    from tensoropt.planner.fixed.resolve import pins_of  # a start without them loads less

    words = fixed_dimensions("fixed", options.fixed)
    return pins_of(words, graph, loaded, job.cluster_at(job.devices), job.devices)


def _pipeline_numbers(options: PlanningOptions) -> PipelineNumbers | None:
    """The stages to search; None for no stages."""
    if options.stages == 1:
        return None
    schedules = SCHEDULES if options.schedule is None else (options.schedule,)
    is_asked = options.pipeline is not None
    return PipelineNumbers(options.stages, options.microbatches, is_asked, schedules)


def graph_of(
    script: tf.Graph, roots: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> Graph:
    """The logical graph of some roots, as `import_graph` returns it.

    If `step_request` imported the same graph last, that one is returned, once, and forgotten here.
    """
    last = _imported.pop(script, None)
    if last is not None and (last.version, last.roots) == (script.version, tuple(roots)):
        names = {op.name for op in last.graph if op.is_placeholder}
        fed = {name: shape for name, shape in last.shapes.items() if name in names}
        if fed == {name: tuple(shape) for name, shape in shapes.items()}:
            return last.graph
    return import_graph(script, roots, shapes)


def _is_native(job: Job) -> bool:
    """Whether collectives of a plan are likely to be operators in C++."""
    on_one_machine = len(job.cluster_at(job.devices).levels) == 1
    return job.transport == "mpi" and on_one_machine and os.environ.get(SWITCH) != "0"


def imported_step(
    script: tf.Graph, roots: Sequence[str], fed: Mapping[str, tuple[int, ...]]
) -> Graph:
    """The logical graph of a step, with all shapes known.

    Args:
        script: the script's graph.
        roots: names of the operators that the step runs.
        fed: shapes of the fed values, by `fed_operator`.

    Raises:
        GraphError: a placeholder's shape stays unknown.
    """
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
