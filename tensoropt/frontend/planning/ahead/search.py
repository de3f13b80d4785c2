"""The search of plans for the next start, in the process that does nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import tensorflow as tf

from tensoropt.cost.measured_links import MeasuredLinks
from tensoropt.elastic.life import finishing
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.planning.ahead.message import Message, Step
from tensoropt.frontend.planning.ahead.next_job import next_job
from tensoropt.frontend.planning.find_strategy import plan_and_frontier, request_of
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.plan.amounts import devices_of
from tensoropt.planner.optional_space import first_line
from tensoropt.search.watch import Watch

__all__ = ["search_ahead"]

_MOST_SEARCHES = 3
"""Searches for a step. Machines that are alike need one, whichever of them is lost."""


def search_ahead(message: Message, graphs: Sequence[tf.Graph]) -> Iterator[str]:
    """Search the plans of the next starts, and keep them where these starts look for them.

    A plan that is kept already is not searched. The limits of a search count processor time: beside
    a job at idle priority the clock says little about the work that is done.

    Yields:
        A line for each plan that is found, or cannot be found.
    """
    searches = [0] * len(graphs)
    for start in message.starts:
        devices = devices_of(sum(start))
        for number, (step, graph) in enumerate(zip(message.steps, graphs, strict=True)):
            if searches[number] == _MOST_SEARCHES:
                continue
            try:
                job, links_path = next_job(message, start)
                seconds = _kept(job, links_path, step, graph)
            except Exception as error:
                searches[number] += 1
                yield f"no plan is kept for a start on {devices}: {first_line(error)}"
                continue
            if seconds is not None:
                searches[number] += 1
                links = "" if links_path is None else f"; the links' file is in {links_path.parent}"
                yield (
                    f"a plan for a start on {devices} is kept, after a search beside the job of "
                    f"{seconds:.1f} s of processor time{links}"
                )


def _kept(job: Job, links_path: Path | None, step: Step, graph: tf.Graph) -> float | None:
    """Keep the plan of a step; the seconds of its search, None if it was kept before."""
    options = step.planning_options(graph)
    with graph.as_default():
        request = request_of(job, options)
    file = KeptPlan.of(request, options.option, job.transport)
    begun = process_time()
    found = None
    if not file.is_kept(options.point):
        with Watch(clock=process_time):
            found = plan_and_frontier(request, options.option)
    with finishing:
        if links_path is not None and job.links is not None:
            _keep_links(job.links, links_path)
        if found is not None:
            file.write(*found)
    return None if found is None else process_time() - begun


def _keep_links(links: MeasuredLinks, path: Path) -> None:
    """Keep the links that the plan was made with, unless a start has measured them meanwhile."""
    if not path.exists():
        links.save(path)
