"""``python -m benchmarks.search``: search times of the paper's models, beside its Table 3.

Each model is searched in a process of its own, on 16 devices of the paper's test bed, with every
configuration of every operator. What is measured begins with the graph in memory and ends with the
frontier: building the problem (configurations, costs, resharding tables) and searching it, both
without anything remembered from an earlier search. "warm" has the compiled kernels of numba on
disk; "cold", with ``--cold``, compiles them first. CPU seconds are of all threads together: on a
machine that others use, they say more than seconds do. The last line is one JSON object.
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


def main() -> int:
    """Search every model asked for; status 1 if one was not searched in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(TARGET_SECONDS))
    parser.add_argument("--cluster", default="2x8-v100")
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--epsilon", type=float, default=0.0, help="see frontier_tracking")
    parser.add_argument("--plain", action="store_true", help="eliminations alone, no bounds")
    parser.add_argument("--cold", action="store_true", help="compile the kernels, too")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each model")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        options = {"epsilon": arguments.epsilon, "bounds": not arguments.plain}
        for model in arguments.models:
            print(json.dumps(search(model, arguments.cluster, arguments.devices, options)))
        return 0
    lines = [_in_process(model, arguments) for model in arguments.models]
    print(json.dumps({"benchmark": "search", "cold": arguments.cold, "models": lines}))
    return int(any("error" in line for line in lines))


def _in_process(model: str, arguments: argparse.Namespace) -> Line:
    command = [sys.executable, "-m", "benchmarks.search", model, "--here"]
    command += ["--cluster", arguments.cluster, "--devices", str(arguments.devices)]
    command += ["--epsilon", str(arguments.epsilon), *(["--plain"] if arguments.plain else [])]
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
            line = {"model": model, "error": f"more than {arguments.timeout:g} s"}
        else:
            line = json.loads(done.stdout.splitlines()[-1])
    print(_row(line), flush=True)
    return line


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
