"""``python -m benchmarks.search``: search times of the paper's models, beside its Table 3.

Each model is searched in a process of its own, on 16 devices of the paper's test bed, with every
configuration of every operator. What is measured begins with the graph in memory and ends with the
frontier: building the problem (configurations, costs, resharding tables) and searching it, both
without anything remembered from an earlier search. "warm" has the compiled kernels of numba on
disk; "cold", with ``--cold``, compiles them first. CPU seconds are of all threads together: on a
machine that others use, they say more than seconds do.

``--row`` chooses a row of Table 3: "ft-ldp", "ft-elimination" (no bounds: eliminations and what
chain they leave, as the paper's algorithm 2) or "one-thread". A model that is not searched within
``--timeout`` is said to be not finished. ``--tofu`` also runs Tofu's recursion at 8 devices,
``--scale`` the searches of `benchmarks.search.scale`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent.parent
PAPER_SECONDS = {"wide_resnet": 1292.0, "rnn": 0.28, "transformer": 201.0, "vgg16": None}
TARGET_SECONDS = {"wide_resnet": 10.0, "rnn": 0.2, "transformer": 2.0, "vgg16": 1.0}

ROWS = ("ft-ldp", "ft-elimination", "one-thread")
# What Tofu's paper times: its recursion, at 8 devices.
TOFU = {"wresnet_152": "wide_resnet", "rnn_10": "rnn"}
TOFU_DEVICES = 8

Line = dict[str, Any]


def search(model: str, cluster_name: str, devices: int, options: dict[str, Any]) -> Line:
    """Search one model in this process."""
    from benchmarks.paper.models import training_step  # TensorFlow: not in the parent process
    from tensoropt.cost.cluster import load_cluster
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.search import frontier_tracking
    from tensoropt.search.from_graph import graph_problem

    begun = time.perf_counter()
    step = training_step(model)
    imported = time.perf_counter() - begun
    cluster = load_cluster(cluster_name)
    mesh = cluster.mesh(devices)
    cost = ClusterCostModel(cluster, mesh)
    begun, cpu = time.perf_counter(), time.process_time()
    whole = graph_problem(step.graph, mesh, cost, step.batch_placeholders)
    built, built_cpu = time.perf_counter() - begun, time.process_time() - cpu
    begun, cpu = time.perf_counter(), time.process_time()
    frontier = frontier_tracking(whole.problem, **options)
    searched, searched_cpu = time.perf_counter() - begun, time.process_time() - cpu
    counts = [node.configurations for node in whole.problem.nodes]
    return {
        "model": model,
        "parameters_gb": round(step.parameters_gb, 3),
        "devices": devices,
        "operators": len(step.graph),
        "nodes": len(counts),
        "configurations": sum(counts),
        "most_configurations": max(counts),
        "edges": len(whole.problem.edges),
        "import_seconds": round(imported, 3),
        "build_seconds": round(built, 3),
        "search_seconds": round(searched, 3),
        "total_seconds": round(built + searched, 3),
        "total_cpu_seconds": round(built_cpu + searched_cpu, 3),
        "points": len(frontier),
        "exact": frontier.exact,
        "within": frontier.within,
        "heuristic_eliminations": frontier.eliminations["heuristic"],
        "left_out": frontier.left_out,
        "memory_gb": [round(int(frontier.memory[place]) / 2**30, 3) for place in (0, -1)],
        "seconds_per_step": [round(int(frontier.time[place]) / 1e9, 4) for place in (0, -1)],
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        "paper_seconds": PAPER_SECONDS[model],
        "target_seconds": TARGET_SECONDS[model],
    }


def tofu(model: str, cluster_name: str) -> Line:
    """Tofu's recursive partitioning of one model in this process."""
    from benchmarks.paper.models import training_step
    from tensoropt.cost.cluster import load_cluster
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.search.from_graph import graph_problem
    from tensoropt.search.strategies.tofu_recursive import solve

    step = training_step(model)
    cluster = load_cluster(cluster_name)
    mesh = cluster.mesh(TOFU_DEVICES)
    begun = time.perf_counter()
    cost = ClusterCostModel(cluster, mesh)
    solve(graph_problem(step.graph, mesh, cost, step.batch_placeholders))
    return {"model": model, "seconds": round(time.perf_counter() - begun, 3)}


def main() -> int:
    """Search every model asked for; status 1 if one was not searched in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(TARGET_SECONDS))
    parser.add_argument("--cluster", default="2x8-v100")
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--epsilon", type=float, default=0.0, help="see frontier_tracking")
    parser.add_argument("--row", choices=ROWS, default=ROWS[0], help="of the paper's Table 3")
    parser.add_argument("--tofu", action="store_true", help="Tofu's recursion at 8 devices, too")
    parser.add_argument("--scale", action="store_true", help="many devices, too: takes minutes")
    parser.add_argument("--tofu-here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help="compile the kernels, too")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each model")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        options = {"epsilon": arguments.epsilon, "bounds": arguments.row != "ft-elimination"}
        for model in arguments.models:
            line = (
                tofu(model, arguments.cluster)
                if arguments.tofu_here
                else search(model, arguments.cluster, arguments.devices, options)
            )
            print(json.dumps(line))
        return 0
    lines: dict[str, Line] = {}
    for model in arguments.models:
        lines[model] = _in_process(model, arguments)
        print(_row(lines[model]), flush=True)
    report: Line = {
        "benchmark": "search",
        "row": arguments.row,
        "models": {model: _summary(line) for model, line in lines.items()},
    }
    if arguments.cold:
        seconds = [line["total_seconds"] for line in lines.values() if "error" not in line]
        report["cold_seconds"] = max(seconds, default=None)
    if arguments.tofu:
        found = {name: _in_process(of, arguments, "--tofu-here") for name, of in TOFU.items()}
        report["tofu"] = {name: line.get("seconds") for name, line in found.items()}
    if arguments.scale:
        from benchmarks.search.scale import scale

        report["scale"] = scale()
    print(json.dumps(report))
    return int(any("error" in line for line in lines.values()))


def _summary(line: Line) -> Line:
    """What the last line says of a model."""
    if "error" in line:
        return {"error": line["error"]}
    return {
        "devices": line["devices"],
        "operators": line["operators"],
        "parameter_gb": line["parameters_gb"],
        "configurations": line["configurations"],
        "frontier_points": line["points"],
        "exact": line["exact"],
        "within": line["within"],
        "seconds": line["total_seconds"],
        "cpu_seconds": line["total_cpu_seconds"],
        "peak_memory_gb": line["peak_memory_gb"],
        "heuristic_eliminations": line["heuristic_eliminations"],
    }


def _in_process(model: str, arguments: argparse.Namespace, *more: str) -> Line:
    command = [sys.executable, "-m", "benchmarks.search", model, "--here", *more]
    command += ["--cluster", arguments.cluster, "--devices", str(arguments.devices)]
    command += ["--epsilon", str(arguments.epsilon), "--row", arguments.row]
    if arguments.row == "one-thread" and hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as empty:
        if arguments.cold:
            environment["NUMBA_CACHE_DIR"] = empty
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, text=True, timeout=arguments.timeout,
                stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"model": model, "error": f"did not finish in {arguments.timeout:g} s"}
    found: Line = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(line: Line) -> str:
    if "error" in line:
        return f"{line['model']:12} {line['error']}"
    exact = "exact" if line["exact"] else f"within {100 * line['within']:.3g} %"
    return (
        f"{line['model']:12} {line['operators']} operators, {line['configurations']} "
        f"configurations: built {line['build_seconds']} s, searched {line['search_seconds']} s "
        f"({line['total_cpu_seconds']} s of CPU), {line['points']} points, {exact}, "
        f"{line['heuristic_eliminations']} heuristic, {line['peak_memory_gb']} GB; "
        f"paper {line['paper_seconds']} s, target {line['target_seconds']} s"
    )


if __name__ == "__main__":
    sys.exit(main())
