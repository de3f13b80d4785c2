"""All parts of planning a graph of the zoo; run in a process of its own."""

from __future__ import annotations

import json
import signal
import statistics
import time
from itertools import pairwise

import tensoropt as tf
from benchmarks.search.zoo.__main__ import PARTS
from benchmarks.search.zoo.measuring import request_in, script_of
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.garbage import collected_later
from tensoropt.planner.kernels import load_kernels
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.searches.frontier_search import search_frontier

__all__ = ["plan", "planned"]

_ROUNDS = 3


def plan(name: str, depth: int | None, cluster: str, devices: int, timeout: float) -> None:
    """Print the CPU seconds of all parts as a line of JSON: the medians of some rounds, each
    with its own script."""
    load_kernels()
    signal.setitimer(signal.ITIMER_PROF, timeout)
    operators, rounds = 0, []
    for _ in range(_ROUNDS):
        operators, seconds = planned(*script_of(name, depth), load_cluster(cluster), devices)
        rounds.append(seconds)
    signal.setitimer(signal.ITIMER_PROF, 0)
    parts = [round(statistics.median(part), 2) for part in zip(*rounds, strict=True)]
    print(json.dumps({"operators": operators, **dict(zip(PARTS, parts, strict=True))}))


@collected_later()  # like `find_strategy`
def planned(
    script: tf.Graph, batch: int, cluster: Cluster, devices: int
) -> tuple[int, tuple[float, ...]]:
    """Return the number of a script's operators, and the CPU seconds of each of `PARTS`."""
    clock = [time.process_time()]
    request = request_in(script, batch, cluster, devices)
    clock.append(time.process_time())
    problem, frontier = search_frontier(request, devices)
    clock.append(time.process_time())
    choice = Strategies(request, problem, frontier).choice
    clock.append(time.process_time())
    choice.plan("mini_time")
    clock.append(time.process_time())
    return len(request.graph), tuple(after - before for before, after in pairwise(clock))
