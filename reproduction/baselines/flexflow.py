"""FlexFlow: a random walk over the configurations of operators (Jia, Zaharia and Aiken, 2019)."""

from __future__ import annotations

from math import exp
from random import Random

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.model import Edge, Problem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.baselines.nearest import leader_assignments
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["solve", "without_sums"]

_PROPOSALS = 50_000
_COLDNESS = 20.0
"""Beta over the time of the first strategy: a step longer by 5 % of it is taken with 1/e."""


def solve(
    problem: GraphProblem,
    memory_limit: int | None = None,
    proposals: int = _PROPOSALS,
    seed: int = 0,
) -> Frontier:
    """The fastest strategy of a Metropolis-Hastings walk that begins with data parallelism.

    A proposal gives one operator a random configuration. It is taken if the step gets shorter, else
    with probability exp(-beta times the difference) (FlexFlow, section 6.2). An operator is split
    along samples, parameters and attributes, that is, along dimensions of its output, and not along
    a dimension that it sums over: reduction is what Unity adds (Unity, section 6.3). The price of
    a step is the sum of its operators and edges, which is FlexFlow's delta simulation on one line.

    Args:
        problem: the planned problem.
        memory_limit: bytes of a device; a step that exceeds it is taken only if it exceeds it less
            than the one before. None for no limit.
        proposals: number of proposals.
        seed: of the random numbers.
    """
    draw, options = Random(seed), without_sums(problem)
    walk = _Walk(problem.problem, data_parallel.solve(problem).strategies[0].tolist())
    free = [node for node, own in enumerate(options) if len(own) > 1]
    if not free:
        return single_strategy(problem.problem, walk.strategy)
    limit = memory_limit if memory_limit is not None else 2**62
    beta, best = _COLDNESS / max(walk.time, 1), (walk.excess(limit), walk.time, [*walk.strategy])
    for _ in range(proposals):
        node = draw.choice(free)
        state = int(draw.choice(options[node]))
        memory, time = walk.difference(node, state)
        before, after = walk.excess(limit), max(0, walk.memory + memory - limit)
        worse = after > before or (
            after == before and time > 0 and draw.random() >= exp(-beta * time)
        )
        if worse:
            continue
        walk.take(node, state, memory, time)
        if (after, walk.time) < best[:2]:
            best = after, walk.time, [*walk.strategy]
    return single_strategy(problem.problem, best[2])


def without_sums(problem: GraphProblem) -> list[Int64Array]:
    """For each node the options that split no dimension over which its leader sums."""
    kept = []
    for node, group in enumerate(problem.choices):
        indices = problem.derivations[group.leader].indices
        output = [n for n, index in enumerate(indices) if index.reducer is None]
        own = leader_assignments(problem, node)
        allowed = np.isin(own, [NO_INDEX, *output]).all(axis=1)
        kept.append(np.flatnonzero(allowed) if allowed.any() else np.arange(len(own)))
    return kept


class _Walk:
    """A strategy with its costs, of which one node is changed at a time."""

    def __init__(self, problem: Problem, strategy: list[int]) -> None:
        self.strategy = strategy
        self.memory, self.time = problem.cost(strategy)
        self._nodes = problem.nodes
        self._edges: list[list[Edge]] = [[] for _ in strategy]
        for edge in problem.edges:
            self._edges[edge.source].append(edge)
            self._edges[edge.target].append(edge)

    def excess(self, limit: int) -> int:
        """The bytes above a limit."""
        return max(0, self.memory - limit)

    def difference(self, node: int, state: int) -> tuple[int, int]:
        """The memory and the time that another state of a node adds."""
        now, own = self.strategy[node], self._nodes[node]
        memory = int(own.memory[state]) - int(own.memory[now])
        time = int(own.time[state]) - int(own.time[now])
        for edge in self._edges[node]:
            ends = [self.strategy[edge.source], self.strategy[edge.target]]
            for sign in (-1, 1):
                cell = edge.source_slots[ends[0]], edge.target_slots[ends[1]]
                memory += sign * int(edge.memory[cell])
                time += sign * int(edge.time[cell])
                ends[edge.target == node] = state
        return memory, time

    def take(self, node: int, state: int, memory: int, time: int) -> None:
        """Change a node."""
        self.strategy[node] = state
        self.memory += memory
        self.time += time
