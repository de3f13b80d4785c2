"""The resharding steps of a plan: the search's shortest paths, planned again for execution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price, ReshardStep, plan_reshard
from tensoropt.plan.plan import Plan

__all__ = ["step_planner", "steps_priced_by"]


def step_planner(
    plan: Plan,
) -> Callable[[Sequence[int], str, Layout, Layout], tuple[ReshardStep, ...]]:
    """A function (shape, dtype, source, target) to steps, priced by the plan's own cluster.

    The steps depend on the plan alone, so they are the same on all ranks.
    """
    return steps_priced_by(
        plan.mesh, ClusterCostModel(plan.cluster, plan.mesh).collective_nanoseconds
    )


def steps_priced_by(
    mesh: Mesh, price: Price
) -> Callable[[Sequence[int], str, Layout, Layout], tuple[ReshardStep, ...]]:
    """A function (shape, dtype, source, target) to the cheapest steps, cached."""

    @cache
    def cached(
        shape: tuple[int, ...], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        if source == target:
            return ()
        itemsize = TensorSpec((), dtype).itemsize
        return plan_reshard(mesh, shape, itemsize, source, target, price)

    def steps(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        return cached(tuple(shape), dtype, source, target)

    return steps
