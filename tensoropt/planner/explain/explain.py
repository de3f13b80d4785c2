"""Explain a layer of a plan: price its other divisions, by searches while the time lasts.

All divisions are estimated first, in the fastest strategy of the whole batch. Then whole plans are
searched with the layer fixed to each division, the best estimate first, while the time lasts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import OptionError, TensorOptError
from tensoropt.parallel.choices.choices import Choices
from tensoropt.parallel.choices.fixed_dimension import FixedDimension
from tensoropt.parallel.choices.pins import MeshPins, Pins
from tensoropt.plan.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.explain.explanation import Alternative, Explanation
from tensoropt.planner.fixed.patterns import matcher
from tensoropt.planner.fixed.resolve import pins_of
from tensoropt.planner.names.dimension_names import dimension_names
from tensoropt.planner.names.layer_names import forward_work, layer_names
from tensoropt.planner.names.named_operators import named_operators
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.pareto.frontier import FrontierPoint

__all__ = ["explain"]

_MOST_DIMENSIONS = 4
"""The most dimensions of a layer whose divisions are compared, those of most operators first."""
_SLACK = 1.5
"""A search is begun if the time left is this multiple of the longest search so far."""


def explain(request: Request, plan: Plan, layer: str, seconds: float) -> Explanation:
    """Return the divisions of a layer with the costs of a step.

    Args:
        request: the step that was planned.
        plan: its plan.
        layer: a layer, or a pattern of like layers, see `tensoropt.planner.fixed`.
        seconds: the time for all searches. The search of the step itself is made in any case,
            without a limit of its own shorter than the request's; unless the request stores its
            result, and has no pins.

    Raises:
        OptionError: the step has no such layer.
    """
    begun = time.monotonic()
    known = None if request.pins.of_operator else request.results
    request = replace(
        request, devices=plan.devices, dry_run_peak=None, stage_peak=None, results=None
    )
    free = replace(_without_pins(request), results=known)
    problem, frontier = search_frontier(free, request.devices)
    usable = request.usable_bytes(request.devices)
    fits = bool(frontier.memory[0] <= usable)
    fastest = frontier[frontier.fastest(usable) if fits else -1]
    divisions = dict(_divisions(request, layer))
    names = layer_names(named_operators(problem.graph))
    members = {name for name, own in names.items() if matcher(layer)(own)}
    if not members:
        raise OptionError(
            "a layer to explain is one that `tensoropt show PLAN --layers` lists, or a pattern of "
            f"such. Got {layer!r}, which names none."
        )
    estimates = []
    for fixed, pins in divisions.items():
        on = pins.on(
            problem.mesh, request.cluster_at(request.devices).level_counts(problem.mesh.size)
        )
        estimates.append(_estimate(problem, fastest, plan, fixed, on, members))
    estimates.sort(key=lambda each: each.nanoseconds)
    longest = time.monotonic() - begun
    found = []
    for estimate in estimates:
        started = time.monotonic()
        left = seconds - (started - begun)
        if left < _SLACK * longest:
            found.append(estimate)
            continue
        pinned = _joined(request, divisions[estimate.fixed])
        found.append(_searched(pinned, estimate, left / _SLACK))
        longest = max(longest, time.monotonic() - started)
    found.sort(key=lambda each: (bool(each.reason), each.nanoseconds))
    return Explanation(
        layer,
        "",
        plan.executed_nanoseconds,
        plan.memory_bytes,
        tuple(found),
        round(time.monotonic() - begun, 1),
        seconds,
    )


def _without_pins(request: Request) -> Request:
    return replace(request, pins=Pins(), cut=None, pipeline=None)


def _divisions(request: Request, layer: str) -> Iterator[tuple[tuple[FixedDimension, ...], Pins]]:
    """Yield the divisions of a layer that its operators can have, each with its pins.

    At each level of links one dimension is divided, or none.
    """
    graph, cluster = request.graph, request.cluster_at(request.devices)
    counts = cluster.level_counts(request.devices)
    levels = [level.name for level, n in zip(cluster.levels, counts, strict=True) if n > 1]
    dimensions = _dimensions(request, layer)
    for chosen in itertools.product([*dimensions, ""], repeat=len(levels)):
        fixed = tuple(
            FixedDimension(
                layer,
                name,
                tuple(level for level, own in zip(levels, chosen, strict=True) if own == name),
            )
            for name in dimensions or ["batch"]
        )
        try:
            pins = pins_of(fixed, graph, request.batch_placeholders, cluster, request.devices)
        except OptionError:
            if not dimensions:
                raise  # there is no such layer
            continue  # a dimension is too short
        yield fixed, pins


def _dimensions(request: Request, layer: str) -> list[str]:
    """Return the dimensions of a layer, those of most operators first."""
    matches, counts = matcher(layer), dict[str, int]()
    names = dimension_names(request.graph, request.batch_placeholders)
    for own, operators in forward_work(named_operators(request.graph)).items():
        for name in operators if matches(own) else ():
            for dimension in dict.fromkeys(names[name]):
                counts[dimension] = counts.get(dimension, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])[:_MOST_DIMENSIONS]


def _joined(request: Request, pins: Pins) -> Request:
    """Return a request with further pins, which replace those that the script has for operators."""
    own = request.pins
    joined = Pins(
        (*own.words, *pins.words),
        {**own.of_operator, **pins.of_operator},
        (*own.by_word, *pins.by_word),
        own.names_batch or pins.names_batch,
    )
    return replace(request, pins=joined)


def _searched(request: Request, estimate: Alternative, seconds: float) -> Alternative:
    """Return the best whole plan with a division."""
    limit = min(seconds, request.search_seconds or seconds)
    try:
        found = choose(replace(request, search_seconds=limit), "mini_time")
    except TensorOptError as error:  # no plan has this division, which is an answer, too
        return replace(estimate, is_searched=True, reason=first_line(error))
    time_and_memory = found.executed_nanoseconds, found.memory_bytes
    return Alternative(estimate.fixed, True, *time_and_memory)


def _estimate(
    problem: GraphProblem,
    fastest: FrontierPoint,
    plan: Plan,
    fixed: tuple[FixedDimension, ...],
    pins: MeshPins,
    members: Collection[str],
) -> Alternative:
    """Return the estimate of a division, see `Alternative.is_searched`."""
    kept = [
        _configurations(group, int(number), pins, members)
        for group, number in zip(problem.choices, fastest.strategy, strict=True)
    ]
    (changed,) = least_time(problem.problem, kept)
    return Alternative(
        fixed,
        False,
        plan.executed_nanoseconds + changed.time - fastest.time,
        plan.memory_bytes + changed.memory - fastest.memory,
    )


def _configurations(
    group: Choices, chosen: int, pins: MeshPins, members: Collection[str]
) -> Int64Array:
    """Return the configurations of a node: those that keep its pins; any for other operators of the
    layer, such as its weights; else the chosen one."""
    own = [name for name in group.members if name in pins.of_operator]
    if not own:
        is_free = any(name in members for name in group.members)
        return np.arange(len(group.options)) if is_free else np.array([chosen])
    allowed = np.ones(len(group.options), dtype=bool)
    for name in own:
        follower = group.options.followers[group.members.index(name)]
        both = allowed & pins.allows(name, follower.assigned)
        allowed = both if both.any() else allowed
    return np.flatnonzero(allowed)
