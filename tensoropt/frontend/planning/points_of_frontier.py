"""Other plans than the chosen one: points of its frontier, and other divisions of a layer."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

from tensoropt.errors import StateError
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.planning.find_strategy import plan_and_frontier
from tensoropt.frontend.planning.kept_plans import KeptPlan
from tensoropt.plan import Plan
from tensoropt.planner.explain.explanation import Explanation
from tensoropt.planner.options.values import positive
from tensoropt.view import view_of

__all__ = ["explained", "plans_of_points"]

_ANY_MEMORY = 2**50
"""A memory limit in bytes under which every point has a plan."""


def plans_of_points(job: Job, plan: Plan, most: int) -> dict[int, Plan]:
    """The plans of points at even distances on a plan's frontier, by number.

    Peaks are estimated, without dry runs. Points above the memory limit have plans, too.

    Args:
        job: a job whose last search found the plan; there are no points if it found another.
        plan: the plan.
        most: the most points.
    """
    if not most or job.searched is None or job.searched[0] != plan:
        return {}
    # Imported here because it loads the search.
    from tensoropt.planner.prices.peak import evenly

    request, option = job.searched[1], plan.option
    numbers = evenly(len(plan.frontier), most)
    priced = replace(request, dry_run_peak=None, stage_peak=None, memory_limit_bytes=_ANY_MEMORY)
    sys.stderr.write(
        f"tensoropt: planning {len(numbers)} of {len(plan.frontier)} points of the frontier\n"
    )
    return KeptPlan.of(request, option, job.transport).from_frontier(
        lambda frontier: frontier.plans_of(priced, option, numbers),
        partial(plan_and_frontier, request, option),
    )


def explained(plan: Plan, layer: str, seconds: float) -> Explanation:
    """See `tensoropt.plan.plan.Plan.explain`."""
    searched = current().searched
    if searched is None or searched[0] != plan:
        raise StateError(
            "a plan is explained by the process that has searched it, before "
            "build_execution_graph, without point=. Got another plan; call find_strategy again, or "
            "run `tensoropt plan SCRIPT --explain LAYER`."
        )
    positive("seconds", seconds)
    # Imported here because they load the search.
    from tensoropt.planner.explain.explain import explain
    from tensoropt.planner.fixed.patterns import matcher

    matches = matcher(layer)
    explanation = explain(searched[1], plan, layer, seconds)
    rows = [row for row in view_of(plan).layers if any(map(matches, row.names))]
    chosen = "; ".join(dict.fromkeys(row.words for row in rows))
    return replace(explanation, chosen=chosen)
