"""The fields of planner requests with one option each, and those of the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensoropt.plan.plan import Plan
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.problem.edges.tensor_reuse import FRUGAL

__all__ = ["ALONE", "DEFAULT", "PLAIN", "combined", "default", "requested"]

PLAIN = "plain"
DEFAULT = "default"

ALONE: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "rewrite": {"rewrite": True},
    "pipeline": {"pipeline": PipelineNumbers(None)},
    "microbatches": {"accumulate": True},
    "save_memory": {"space": FRUGAL},
}
"""For each option the fields of a request that allow the option and the whole batch at once,
nothing else."""


def requested(request: Request, option: str) -> Request:
    """A request with one option of `ALONE`, or with those of `DEFAULT`."""
    return default(request) if option == DEFAULT else replace(request, **ALONE[option])


def default(request: Request) -> Request:
    """The request that `find_strategy` makes without options."""
    pipeline = PipelineNumbers(None, None, is_asked=False)
    return replace(request, rewrite=None, keep_less=True, accumulate=True, pipeline=pipeline)


def combined(plan: Plan) -> list[str]:
    """The spaces that a plan combines."""
    beside = plan.schedule == "side_by_side"
    keeps_less = any(each.kept != "both" for each in plan.operators)
    spaces = {
        "rewritten": bool(plan.rewrites),
        "stages": bool(plan.stages) and not beside,
        "branches": bool(plan.stages) and beside,
        "microbatches": plan.microbatches > 1 and not plan.stages,
        "keeping less": keeps_less or any(stage.recompute for stage in plan.stages),
    }
    return [name for name, is_used in spaces.items() if is_used]
