"""The plan of a run without gradients, such as an evaluation."""

from __future__ import annotations

from tensoropt.errors import InfeasibleError
from tensoropt.plan.plan import Plan
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.plans.from_frontier import plan_for
from tensoropt.planner.request import Request
from tensoropt.search.watch import Watch

__all__ = ["forward_plan"]


def forward_plan(request: Request) -> Plan:
    """Return the fastest strategy of the whole batch that fits the memory limit.

    Microbatches, stages and rewritten graphs are not searched, because a run keeps nothing for a
    backward pass. The peak is estimated.

    Args:
        request: the run. Its ``fixed`` has the splits of the variables that exist already.

    Raises:
        InfeasibleError: no strategy fits, or the decided splits exclude one another.
    """
    with Watch(seconds=request.search_seconds):
        strategies = Strategies.of(request)
        if not strategies.fitting:
            least, usable = strategies.points[0][0], request.usable_bytes(request.devices)
            raise InfeasibleError(
                f"a run fits the usable memory of a device. Got {least} bytes for the strategy of "
                f"least memory, and {usable} usable bytes; feed a smaller batch."
            )
        choice = strategies.choice
        problem, frontier = strategies.problem, strategies.frontier
        strategy = choice.planned.strategy
        return plan_for(
            request, problem, frontier, strategy, "mini_time", choice.peak, choice.notes
        )
