"""Figure 15a: BERT-Large with growing sets of dimensions in which products of matrices are split.

The first set has examples and columns (data and model parallelism), the second adds summands
(reduction), the third the heads of attention's products, and the last adds stages of a pipeline.
Operators other than products may be split in any way. The search finds the fastest step on all
devices.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reproduction.unity.models import MODELS, script_of
from tensoropt.arrays import Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.planner.searches.microbatch_counts import microbatch_counts
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.baselines.nearest import leader_assignments

__all__ = ["DIMENSIONS", "figure_15a"]

_ROWS, _COLUMNS, _SUMMANDS = range(3)
_SEQUENCES, _HEADS = range(2)
DIMENSIONS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "data and model": {"MatMul": (_ROWS, _COLUMNS), "BatchMatMulV2": (_SEQUENCES,)},
    "reduction": {"MatMul": (_ROWS, _COLUMNS, _SUMMANDS), "BatchMatMulV2": (_SEQUENCES,)},
    "attention heads": {
        "MatMul": (_ROWS, _COLUMNS, _SUMMANDS),
        "BatchMatMulV2": (_SEQUENCES, _HEADS),
    },
}
"""The indices by which products may be split, as growing sets; "pipeline" is the last."""


def figure_15a(devices: int, model: str = "bert_large", links: float = 1.0) -> dict[str, float]:
    """Seconds of a step for each set of dimensions.

    Args:
        devices: number of devices of the test bed.
        model: a name of `reproduction.unity.models.MODELS`.
        links: factor of the bandwidth of all links.
    """
    request = script_of(MODELS[model], devices, links=links).request()
    problem = problem_of(request, devices)
    found = {
        name: int(least_time(problem.problem, _kept(problem, allowed)).time[0]) / 1e9
        for name, allowed in DIMENSIONS.items()
    }
    usable, fastest = request.usable_bytes(devices), min(found.values())
    counts = microbatch_counts(request, None, devices)
    search = PipelineSearch(request, devices, (2, devices), counts, (usable, round(fastest * 1e9)))
    times = [each.time + search.step_nanoseconds for each in search.frontier]
    return {**found, "pipeline": min([fastest, *(time / 1e9 for time in times)])}


def _kept(problem: GraphProblem, allowed: Mapping[str, tuple[int, ...]]) -> list[Int64Array]:
    kept = []
    for node, group in enumerate(problem.choices):
        choices = np.arange(len(group.options))
        indices = allowed.get(problem.graph[group.leader].type)
        if indices is not None:
            own = leader_assignments(problem, node)
            choices = np.flatnonzero(np.isin(own, [NO_INDEX, *indices]).all(axis=1))
        kept.append(choices)
    return kept
