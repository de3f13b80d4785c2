"""``python -m benchmarks.frontier_peaks``: the peaks and steps that frontiers state, beside others.

The graphs of the zoo, at the smallest size with all their kinds of operators, are planned on some
devices of a machine. For points spread evenly over each frontier, the peak of a dry run is divided
by the memory that the search adds up, and by the peak that a plan states (`plan.frontier_peaks`).
Most stated peaks are interpolated; the plan's own dry run, which corrects them, is left out. The
predicted step of each of these points is divided by the one that the frontier states, which is
interpolated, too. Nothing is trained. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.search.zoo.catalogue import ZOO
from benchmarks.search.zoo.measuring import request_of
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.prices.frontier_peaks import OPERATORS, FrontierPeaks
from tensoropt.planner.prices.peak import evenly, predicted_peak
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.report.text_table import table

__all__: list[str] = []

Line = dict[str, float | int]


def main() -> None:
    """Compare, print the ratios, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=list(ZOO), help="of the zoo")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--points", type=int, default=5, help="dry runs of each graph")
    options = parser.parse_args()
    found: dict[str, Line] = {}
    for name in options.graphs:
        found[name] = _compared(name, options.devices, options.points)
        print(name, json.dumps(found[name]), flush=True)
    keys = list(next(iter(found.values())))
    rows = [[name, *map(str, of.values())] for name, of in found.items()]
    print(table(["graph", *keys], rows, [False] + [True] * len(keys)))
    print(json.dumps({"devices": options.devices, "graphs": found}))


def _compared(name: str, devices: int, points: int) -> Line:
    """The least and the largest value of each ratio for one graph."""
    request = request_of(name, ZOO[name].small, load_cluster("8-v100"), devices)
    problem, searched = search_frontier(request, devices)
    begun = time.process_time()
    offer = Strategies(request, problem, searched)
    frontier = offer.frontier
    seconds_of_steps = time.process_time() - begun
    begun = time.process_time()
    peaks = FrontierPeaks(request, problem, frontier)
    peaks.estimate(OPERATORS)
    stated = peaks.of_all_points()
    seconds = time.process_time() - begun
    chosen = evenly(len(frontier), points)
    of_memory, of_stated, of_step = [], [], []
    for number in chosen:
        strategy, peak = frontier.strategies[number].tolist(), stated[number]
        measured = predicted_peak(request, problem, strategy).bytes
        of_memory.append(measured / int(frontier.memory[number]))
        of_step.append(offer.price_of(number) / offer.points[number][1])
        if peak is not None:
            of_stated.append(measured / peak.bytes)
    return {
        "points": len(frontier),
        "estimates": len(peaks.estimates),
        "dry runs": len(chosen),
        "of memory, least": round(min(of_memory), 3),
        "of memory, most": round(max(of_memory), 3),
        "of stated peak, least": round(min(of_stated, default=0.0), 3),
        "of stated peak, most": round(max(of_stated, default=0.0), 3),
        "of stated step, least": round(min(of_step), 3),
        "of stated step, most": round(max(of_step), 3),
        "estimates, CPU s": round(seconds, 2),
        "steps, CPU s": round(seconds_of_steps, 2),
    }


if __name__ == "__main__":
    main()
