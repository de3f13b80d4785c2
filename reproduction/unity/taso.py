"""TASO (Jia et al., SOSP 2019): substitutions by the time of one device, and data parallelism."""

from __future__ import annotations

from reproduction.unity.fused import fuse_activations, with_fused_prices
from tensoropt.planner.request import Request
from tensoropt.planner.searches.rewritten_graphs import RewrittenGraph, candidates
from tensoropt.planner.searches.step_estimate import StepEstimate
from tensoropt.transformations.rewritten.application import substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable

__all__ = ["fastest_alone"]


def fastest_alone(request: Request) -> Request:
    """The request for the graph with the least time on one device, with fused activations."""
    fused_request = with_fused_prices(request)
    estimate = StepEstimate(fused_request.cost_model(1))
    known = applicable(substitutions_by_name().values())
    near = candidates(request.graph, request.roots, known, estimate)
    near.append(RewrittenGraph((), request.graph, 0, 0))
    fused = [(each, fuse_activations(each.graph, request.roots)) for each in near]
    chosen, graph = min(fused, key=lambda each: estimate(each[1]))
    return fused_request.of_rewritten(chosen.rewrites, graph)
