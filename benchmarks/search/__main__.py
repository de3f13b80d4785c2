"""``python -m benchmarks.search``: search times of the paper's models, beside its Table 3.

Each model is searched in a process of its own, on 16 devices of the paper's test bed, with every
configuration of every operator; see `benchmarks.search.searching` for the seconds. A run without
arguments has all parts:

- ``--row``, rows of Table 3: "ft-ldp"; "ft-elimination" (no bounds, only the eliminations and the
  dynamic programming of the paper's algorithm 2), for at most ``--row-timeout`` seconds a model;
  "one-thread";
- ``--stored``: "ft-ldp" in the space of `find_strategy`, where a weight may be stored in another
  layout than the one in which it is read. All other parts have the paper's space;
- ``--mask``: a BERT of 12 layers whose attention mask feeds every layer, on 8 devices with bounds,
  and on 4 by eliminations alone, with the number of heuristic eliminations.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from benchmarks.search.searching import Line, in_process, problem_builder, proven, searched
from tensoropt.cost.cluster import load_cluster
from tensoropt.problem.edges.tensor_reuse import PAPER, PLAIN

__all__ = ["main"]

PAPER_SECONDS = {"wide_resnet": 1292.0, "rnn": 0.28, "transformer": 201.0, "vgg16": None}
ROWS = ("ft-ldp", "ft-elimination", "one-thread")
MASK = {"ft-ldp": 8, "ft-elimination": 4}
"""The devices of BERT's searches, 16 examples each; eliminations alone are searched on fewer."""
LAYERS, EXAMPLES = 12, 16


def search(model: str, devices: int, options: argparse.Namespace) -> Line:
    """Search one model in this process."""
    from benchmarks.search.steps import cluster_of, step_of  # imports TensorFlow
    from reproduction.paper.models import training_step

    if model in PAPER_SECONDS:
        step, cluster = training_step(model), load_cluster(options.cluster)
    else:
        step, cluster = step_of(model, EXAMPLES * devices, LAYERS), cluster_of(devices)
    build = problem_builder(step, cluster, PLAIN if options.stored else PAPER)
    bounds = "ft-elimination" not in options.row
    return {
        "model": model,
        "parameters_gb": round(step.parameters_gb, 3),
        "devices": devices,
        "operators": len(step.graph),
        **searched(build, cluster.mesh(devices), options.epsilon, bounds),
        "paper_seconds": PAPER_SECONDS.get(model),
    }


def main() -> int:
    """Run the searches; the status is 1 if a search of "ft-ldp" did not end in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(PAPER_SECONDS))
    parser.add_argument("--cluster", default="2x8-v100")
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--epsilon", type=float, default=0.0, help="see frontier_tracking")
    parser.add_argument("--row", choices=ROWS, nargs="+", default=[], help="rows of Table 3")
    parser.add_argument("--stored", action="store_true", help="weights stored in any layout, too")
    parser.add_argument("--mask", action="store_true", help="BERT's attention mask")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each search")
    parser.add_argument("--row-timeout", type=float, default=90.0, help="for ft-elimination")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(search(options.models[0], options.devices, options)))
        return 0
    if not (options.row or options.stored or options.mask):
        options.row, options.stored, options.mask = ROWS, True, True
    report: dict[str, dict[str, Line]] = {}
    for row in options.row:
        report[row] = {
            model: _search(model, row, options.devices, options) for model in options.models
        }
    if options.stored:
        report["stored"] = {
            model: _search(model, ROWS[0], options.devices, options, "--stored")
            for model in options.models
        }
    if options.mask:
        report["mask"] = {row: _search("bert", row, n, options) for row, n in MASK.items()}
    print(json.dumps({"benchmark": "search", **report}))
    lines = [*report.get(ROWS[0], {}).values(), *report.get("stored", {}).values()]
    return int(any("error" in line for line in lines))


def _search(model: str, row: str, devices: int, options: argparse.Namespace, *stored: str) -> Line:
    """Search one model in a process of its own, and print a line about the search."""
    arguments = [model, "--cluster", options.cluster, "--devices", str(devices), *stored]
    arguments += ["--epsilon", str(options.epsilon), "--row", row]
    prefix: list[str] = []
    if row == "one-thread" and hasattr(os, "sched_setaffinity"):
        prefix = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    timeout = options.timeout
    if row == "ft-elimination":
        timeout = min(timeout, options.row_timeout)
    line = in_process("benchmarks.search", arguments, timeout, prefix)
    print(f"{'stored' if stored else row:15}{model:12}{_said(line)}", flush=True)
    return line


def _said(line: Line) -> str:
    """The line of a search, in words."""
    if "error" in line:
        return str(line["error"])
    return (
        f"{line['operators']} operators, {line['configurations']} configurations: "
        f"{line['seconds']} s ({line['cpu_seconds']} s of CPU, {line['build_cpu_seconds']} s of "
        f"them building; kernels loaded in {line['kernel_seconds']} s before), {line['points']} "
        f"points, {proven(line)}, {line['heuristic_eliminations']} heuristic eliminations, "
        f"{line['peak_memory_gb']} GB; paper {line['paper_seconds']} s"
    )


if __name__ == "__main__":
    sys.exit(main())
