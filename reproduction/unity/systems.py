"""Each system's step for a model on some devices of the simulated Summit.

Ours is the plan that `find_strategy` returns. Every other strategy is priced as a plan prices its
own step (`step_time`), so all times of a model compare.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reproduction.baselines import flexflow
from reproduction.entry import Script
from reproduction.unity.models import MODELS, JointModel, script_of
from reproduction.unity.taso import fastest_alone
from tensoropt.arrays import Int64Array
from tensoropt.errors import InfeasibleError
from tensoropt.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.plans.from_pipeline import executed_nanoseconds
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.planner.searches.branch_search import branches_side_by_side
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.baselines.nearest import leader_assignments, nearest_option
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.watch import Watch

__all__ = ["Found", "find", "find_model"]

_COLUMNS = re.compile(r"/(q|k|v|first)/MatMul$")  # products that Megatron-LM splits by columns
_ROWS = re.compile(r"/(mixed|second)/MatMul$")


@dataclass(frozen=True, slots=True)
class Found:
    """Steps of a model in seconds; None if nothing fits a device.

    Attributes:
        data_parallel: variables replicated, the batch split.
        expert: an expert's strategy: tables split by columns and the rest data parallel
            (recommendation models), the same for products with more weights than values
            (CANDLE-Uno), or Megatron (BERT); None for other models.
        taso: the graph that is fastest on one device, fused, in data parallelism.
        taso_flexflow: the same graph under FlexFlow's walk.
        rewritten_first: the same graph, then planned in all spaces of `find_strategy`; or data
            parallelism of the script's graph if that is faster.
        ours: the plan of `find_strategy`.
        without_stages: the fastest step without stages, as Unity compares itself in Figure 14
            (section 6.1); branches may run side by side.
        way: how the plan of ours runs the step.
        substitutions: substitutions of that plan.
        search_seconds: CPU seconds of its `find_strategy`.
    """

    data_parallel: float | None
    expert: float | None
    taso: float | None
    taso_flexflow: float | None
    rewritten_first: float | None
    ours: float
    without_stages: float | None
    way: str
    substitutions: tuple[str, ...]
    search_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The steps as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def find(model: str, devices: int, search_seconds: float = 30.0, links: float = 1.0) -> Found:
    """The steps of all systems for a model.

    Args:
        model: a name of `MODELS`.
        devices: number of devices of the cluster.
        search_seconds: the option of `find_strategy`, and the time of each of the others' searches.
        links: factor of the bandwidth of all links.
    """
    return find_model(MODELS[model], devices, search_seconds, model, links)


def find_model(
    model: JointModel,
    devices: int,
    search_seconds: float = 30.0,
    name: str = "",
    links: float = 1.0,
) -> Found:
    """See `find`; experts know a model by its name."""
    script = script_of(model, devices, search_seconds, links)
    started = time.process_time()
    plan = script.plan()
    took = time.process_time() - started
    request = script.request()
    problem = problem_of(request, devices)
    parallel = _priced(request, problem, data_parallel.solve(problem))
    first = fastest_alone(request)
    usable = request.usable_bytes(devices)
    walked = problem_of(first, devices)
    return Found(
        data_parallel=parallel,
        expert=_expert(name, request, problem),
        taso=_priced(first, walked, data_parallel.solve(walked)),
        taso_flexflow=_priced(first, walked, flexflow.solve(walked, usable)),
        rewritten_first=_least(parallel, _planned(first)),
        ours=plan.predicted_step_seconds,
        without_stages=_without_stages(script, plan, request),
        way=plan.way,
        substitutions=tuple(dict.fromkeys(each.substitution for each in plan.rewrites)),
        search_seconds=took,
    )


def _without_stages(script: Script, plan: Plan, request: Request) -> float | None:
    """Seconds of the fastest step without stages; None if nothing fits.

    ``pipeline=False`` forbids branches side by side, too, so their search is asked beside it.

    Args:
        script: the script.
        plan: its plan, which counts if it has no stages.
        request: its request.
    """
    if not plan.stages or plan.schedule == "side_by_side":
        return plan.predicted_step_seconds
    usable = request.usable_bytes(request.devices)
    with Watch(clock=time.process_time, seconds=request.search_seconds):
        found = branches_side_by_side(request, None).pipelines
    fitting = [pair for pair in found if pair[1].memory <= usable]
    branches = [executed_nanoseconds(request, *pair) / 1e9 for pair in fitting]
    try:
        return _least(script.plan(pipeline=False).predicted_step_seconds, *branches)
    except InfeasibleError:
        return _least(*branches)


def _priced(request: Request, problem: GraphProblem, found: Frontier) -> float | None:
    """Seconds of the fastest fitting strategy as a plan would predict them; None if none fits."""
    fitting = [each for each in found if each.memory <= request.usable_bytes(request.devices)]
    if not fitting:
        return None
    chosen = min(fitting, key=lambda each: each.time)
    strategy = request.strategy(problem, chosen.strategy.tolist())
    cost = request.cost_model(request.devices, problem.mesh)
    return step_time(strategy, cost, None, request.reads).total / 1e9


def _least(*times: float | None) -> float | None:
    return min((each for each in times if each is not None), default=None)


def _planned(request: Request) -> float | None:
    """Seconds of the step that `find_strategy` would plan for a graph; None if nothing fits.

    The search space is that of ours, as in Figure 15b; the graph is not rewritten further.
    """
    asked = replace(request, keep_less=True, accumulate=True)
    try:
        with Watch(clock=time.process_time):
            return choose(asked, "mini_time").predicted_step_seconds
    except InfeasibleError:
        return None


def _expert(model: str, request: Request, problem: GraphProblem) -> float | None:
    """The fastest fitting strategy whose operators are split as experts do; all other operators
    are free."""
    makers: Sequence[Callable[[GraphProblem], list[Int64Array]]] = ()
    if model in ("dlrm", "xdl"):
        makers = (_tables_split,)
    elif model == "candle_uno":
        makers = (_weights_split,)
    elif model == "bert_large":
        axes = len(problem.mesh.axes)
        makers = [lambda p, n=n: _megatron(p, range(axes - n, axes)) for n in range(3)]  # type: ignore[misc]
    found = [least_time(problem.problem, make(problem)) for make in makers]
    return _least(*(_priced(request, problem, each) for each in found))


def _weights_split(problem: GraphProblem) -> list[Int64Array]:
    """Configurations with products whose weights outnumber their values by columns, and all other
    products data parallel: what communicates more in data parallelism is model parallel."""
    (parallel,) = data_parallel.solve(problem)

    def wanted(operator: str, type_: str) -> int | None:
        if type_ != "MatMul":
            return None
        rows, columns, summed = (index.extent for index in problem.derivations[operator].indices)
        return 1 if summed * columns > rows * (summed + columns) else 0

    return _pinned(problem, wanted, parallel.strategy.tolist())


def _tables_split(problem: GraphProblem) -> list[Int64Array]:
    """Configurations with lookups split by columns and products data parallel."""
    (parallel,) = data_parallel.solve(problem)

    def wanted(operator: str, type_: str) -> int | None:
        del operator
        return {"GatherV2": 1, "MatMul": 0}.get(type_)

    return _pinned(problem, wanted, parallel.strategy.tolist())


def _pinned(
    problem: GraphProblem, wanted: Callable[[str, str], int | None], instead: list[int]
) -> list[Int64Array]:
    """For each node its configurations; if one of them splits a wanted index over all axes, only
    that one."""
    kept = []
    for node, group in enumerate(problem.choices):
        operator = problem.graph[group.leader]
        index = wanted(operator.name, operator.type)
        if index is None:
            kept.append(np.arange(len(group.options)))
            continue
        assigned = leader_assignments(problem, node)
        row = np.full(assigned.shape[1], index, dtype=np.int8)
        number = nearest_option(assigned, row) if index else instead[node]
        kept.append(np.array([number]))
    return kept


def _megatron(problem: GraphProblem, parts: range) -> list[Int64Array]:
    """Configurations that split the first product of a pair by columns and the second by rows
    over some axes, and the batch over the other axes."""
    kept = []
    for node, group in enumerate(problem.choices):
        index = 1 if _COLUMNS.search(group.leader) else 2 if _ROWS.search(group.leader) else None
        if index is None:
            kept.append(np.arange(len(group.options)))
            continue
        assigned = leader_assignments(problem, node)
        row = np.zeros(assigned.shape[1], dtype=np.int8)
        row[list(parts)] = index
        kept.append(np.array([nearest_option(assigned, row)]))
    return kept
