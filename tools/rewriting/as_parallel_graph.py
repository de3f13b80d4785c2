"""A plan as a parallel computation graph."""

from __future__ import annotations

from tensoropt.graph.operator import Graph
from tensoropt.plan.plan import Plan
from tools.rewriting.parallel_graph import ParallelGraph, Stage

__all__ = ["as_parallel_graph"]


def as_parallel_graph(plan: Plan, graph: Graph) -> ParallelGraph:
    """What a plan does with a graph, in Unity's notation.

    ``configurations`` and ``stage_of`` of the result are the plan's again.

    Args:
        plan: of whatever stages and microbatches.
        graph: that it was made for, after the plan's substitutions.
    """
    stages = [
        Stage(stage.mesh, plan.devices_of_stage(number)) for number, stage in enumerate(plan.stages)
    ]
    return ParallelGraph.of(
        graph,
        stages or [Stage.of(plan.mesh)],
        plan.configurations,
        plan.stage_of,
        frozenset(plan.batch_placeholders),
        plan.microbatches,
    )
