"""``python -m benchmarks.search``: search times of the paper's models, beside its Table 3.

Each model is searched in a process of its own, on 16 devices of the paper's test bed, with every
configuration of every operator. What is measured begins with the graph in memory and ends with the
frontier: building the problem (configurations, costs, resharding tables) and searching it, both
without anything remembered from an earlier search but compiled kernels: a process loads them once,
by `tensoropt.planner.kernels`, whose seconds are said apart. CPU seconds are of
all threads together: on a machine that others use, they say more than seconds do.

Parts, all of which a run without arguments has:

- the rows of Table 3, ``--row``: "ft-ldp", with numba's compiled kernels on disk; "ft-elimination"
  (no bounds: eliminations and what chain they leave, as the paper's algorithm 2), for at most
  ``--row-timeout`` seconds a model; "one-thread";
- ``--stored``: "ft-ldp" where a weight may be stored otherwise than it is read, as `find_strategy`
  searches by default; all other parts have the paper's space, where it lies as it is read;
- ``--cold``: "ft-ldp" with kernels that are compiled first, and loaded;
- ``--tofu``: Tofu's recursion at 8 devices, on the two models of its paper
  (`reproduction.tofu.models`), with kernels loaded before, too;
- ``--mask``: a BERT of 12 layers whose attention mask feeds every layer, on 8 devices: by bounds,
  and by eliminations alone on 4, and how many eliminations were heuristic;
- ``--scale``: the searches of `benchmarks.search.scale` on many devices.

``--zoo`` searches other training graphs instead, with options of its own: `benchmarks.search.zoo`.

A search that takes longer than ``--timeout`` seconds is said to be not finished. The last line is
one JSON object.
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
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.search.scale import row as scale_row
from benchmarks.search.scale import scale
from benchmarks.search.zoo.__main__ import main as zoo

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent.parent
PAPER_SECONDS = {"wide_resnet": 1292.0, "rnn": 0.28, "transformer": 201.0, "vgg16": None}
TARGET_SECONDS = {"wide_resnet": 10.0, "rnn": 0.2, "transformer": 2.0, "vgg16": 1.0}

ROWS = ("ft-ldp", "ft-elimination", "one-thread")
PARTS = ("stored", "cold", "tofu", "mask", "scale")
# What Tofu's paper times: its recursion, for 8 workers (`reproduction.tofu.models`).
TOFU = ("wresnet_152", "rnn_10")
TOFU_DEVICES = 8
TOFU_TARGET_SECONDS = 1.0
# BERT on 8 devices, 16 examples each; without bounds on 4.
MASK = {"ft-ldp": 8, "ft-elimination": 4}
LAYERS = 12
EXAMPLES = 16
# What targets and the paper's claims name.
SCALE = (("inception", 192), ("inception", 1024), ("transformer", 256), ("transformer", 1024))

Line = dict[str, Any]


def search(
    model: str,
    cluster_name: str,
    devices: int,
    options: dict[str, Any],
    *,
    warm: bool,
    stored: bool,
) -> Line:
    """Search one model in this process; ``warm`` if kernels are to be loaded before, ``stored`` if
    weights may be stored otherwise than they are read."""
    from benchmarks.search.steps import cluster_of, step_of
    from reproduction.paper.models import training_step  # TensorFlow: not in the parent process
    from tensoropt.cost.cluster import load_cluster
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.planner.kernels import load_kernels
    from tensoropt.problem.annotated_graph import AnnotatedGraph
    from tensoropt.problem.edges.tensor_reuse import PAPER, PLAIN
    from tensoropt.problem.from_graph import graph_problem
    from tensoropt.search import frontier_tracking

    loaded_seconds = load_kernels() if warm else 0.0
    begun = time.perf_counter()
    if model in TARGET_SECONDS:
        of_paper, cluster = training_step(model), load_cluster(cluster_name)
        graph, loaded, parameters_gb = (
            of_paper.graph,
            of_paper.batch_placeholders,
            of_paper.parameters_gb,
        )
    else:
        step, cluster = step_of(model, EXAMPLES * devices, LAYERS), cluster_of(devices)
        graph, loaded, parameters_gb = (
            step.graph,
            step.batch_placeholders,
            4 * step.parameters / 2**30,
        )
    imported = time.perf_counter() - begun
    mesh = cluster.mesh(devices)
    cost = ClusterCostModel(cluster, mesh)
    begun, cpu = time.perf_counter(), time.process_time()
    space = PLAIN if stored else PAPER
    whole = graph_problem(AnnotatedGraph.of(graph, mesh, cost, loaded, space=space))
    built, built_cpu = time.perf_counter() - begun, time.process_time() - cpu
    begun, cpu = time.perf_counter(), time.process_time()
    frontier = frontier_tracking(whole.problem, **options)
    searched, searched_cpu = time.perf_counter() - begun, time.process_time() - cpu
    counts = [node.configurations for node in whole.problem.nodes]
    return {
        "model": model,
        "parameters_gb": round(parameters_gb, 3),
        "devices": devices,
        "operators": len(graph),
        "nodes": len(counts),
        "configurations": sum(counts),
        "most_configurations": max(counts),
        "edges": len(whole.problem.edges),
        "import_seconds": round(imported, 3),
        "kernels_seconds": round(loaded_seconds, 3),
        "build_seconds": round(built, 3),
        "search_seconds": round(searched, 3),
        "total_seconds": round(built + searched, 3),
        "total_cpu_seconds": round(built_cpu + searched_cpu, 3),
        "points": len(frontier),
        "exact": frontier.exact,
        "within": frontier.within,
        "heuristic_eliminations": frontier.eliminations["heuristic"],
        "memory_gb": [round(int(frontier.memory[place]) / 2**30, 3) for place in (0, -1)],
        "seconds_per_step": [round(int(frontier.time[place]) / 1e9, 4) for place in (0, -1)],
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        "paper_seconds": PAPER_SECONDS.get(model),
        "target_seconds": TARGET_SECONDS.get(model),
    }


def main() -> int:
    """Search what is asked for; status 1 if a model, or many devices, were not searched in time."""
    if "--zoo" in sys.argv[1:]:
        return zoo([argument for argument in sys.argv[1:] if argument != "--zoo"])
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("models", nargs="*", default=None)
    parser.add_argument("--cluster", default="2x8-v100")
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--epsilon", type=float, default=0.0, help="see frontier_tracking")
    parser.add_argument("--row", choices=ROWS, nargs="+", default=[], help="of Table 3")
    parser.add_argument("--stored", action="store_true", help="weights in pieces, too")
    parser.add_argument("--cold", action="store_true", help="compile the kernels, too")
    parser.add_argument("--tofu", action="store_true", help="Tofu's recursion at 8 devices")
    parser.add_argument("--mask", action="store_true", help="BERT's mask")
    parser.add_argument("--scale", action="store_true", help="many devices")
    parser.add_argument("--zoo", action="store_true", help="other graphs; see --zoo --help")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each search")
    parser.add_argument("--row-timeout", type=float, default=90.0, help="of ft-elimination")
    parser.add_argument("--tofu-here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--unloaded", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    parts = {name for name in PARTS if getattr(arguments, name)} | set(arguments.row)
    if not parts:
        parts = {ROWS[0]} if arguments.models else {*ROWS, *PARTS}
    arguments.models = arguments.models or list(TARGET_SECONDS)
    if arguments.here:
        row = next((row for row in ROWS if row in parts), ROWS[0])
        options = {"epsilon": arguments.epsilon, "bounds": row != "ft-elimination"}
        for model in arguments.models:
            if arguments.tofu_here:
                from reproduction.tofu import (
                    models as tofu,  # TensorFlow: not in the parent process
                )

                line = tofu.search(model)
            else:
                line = search(
                    model,
                    arguments.cluster,
                    arguments.devices,
                    options,
                    warm=not arguments.unloaded,
                    stored=arguments.stored,
                )
            print(json.dumps(line))
        return 0
    report = _report(arguments, parts)
    print(json.dumps(report))
    models = [*report.get("models", {}).values(), *report.get("stored", {}).values()]
    lines = [*models, *report.get("scale", [])]
    return int(any("error" in line for line in lines))


def _report(arguments: argparse.Namespace, parts: Collection[str]) -> Line:
    """Run some parts, say what each search found, and sum up."""
    report: Line = {"benchmark": "search"}
    devices = arguments.devices
    for row in ROWS:
        if row in parts:
            lines = {model: _search(model, row, devices, arguments) for model in arguments.models}
            summaries = {model: _summary(line) for model, line in lines.items()}
            if row == ROWS[0]:
                report["models"] = summaries
            else:
                report.setdefault("rows", {})[row] = summaries
    if "stored" in parts:
        report["stored"] = {
            model: _summary(_search(model, ROWS[0], devices, arguments, "--stored"))
            for model in arguments.models
        }
    if "cold" in parts:
        cold = {model: _search(model, ROWS[0], devices, arguments, cold=True)
                for model in arguments.models}  # fmt: skip
        seconds = [line["total_seconds"] for line in cold.values() if "error" not in line]
        report["cold_seconds"] = max(seconds, default=None)
        report["cold"] = {model: _summary(line) for model, line in cold.items()}
    if "tofu" in parts:
        found = {
            name: _in_process(name, ROWS[0], TOFU_DEVICES, arguments, "--tofu-here")
            for name in TOFU
        }
        report["tofu"] = {name: line.get("seconds") for name, line in found.items()}
        report["tofu_searches"] = found
        for line in found.values():
            print(_tofu_row(line), flush=True)
    if "mask" in parts:
        report["mask"] = {
            row: _summary(_search("bert", row, count, arguments)) for row, count in MASK.items()
        }
    if "scale" in parts:
        report["scale"] = []
        for model, count in SCALE:
            (line,) = scale((model,), (count,), arguments.timeout)
            print(scale_row(line), flush=True)
            report["scale"].append(line)
    return report


def _search(
    model: str,
    row: str,
    devices: int,
    arguments: argparse.Namespace,
    *more: str,
    cold: bool = False,
) -> Line:
    line = _in_process(model, row, devices, arguments, *more, cold=cold)
    name = "cold" if cold else more[0].removeprefix("--") if more else row
    print(f"{name:15}{_row(line)}", flush=True)
    return line


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


def _in_process(
    model: str,
    row: str,
    devices: int,
    arguments: argparse.Namespace,
    *more: str,
    cold: bool = False,
) -> Line:
    command = [sys.executable, "-m", "benchmarks.search", model, "--here", *more]
    command += ["--cluster", arguments.cluster, "--devices", str(devices)]
    command += ["--epsilon", str(arguments.epsilon), "--row", row]
    command += ["--unloaded"] if cold else []
    if row == "one-thread" and hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
    timeout = arguments.timeout
    if row == "ft-elimination":
        timeout = min(timeout, arguments.row_timeout)
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as empty:
        if cold:
            environment["NUMBA_CACHE_DIR"] = empty
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, text=True, timeout=timeout,
                stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"model": model, "error": f"> {timeout:g} s"}
    found: Line = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(line: Line) -> str:
    if "error" in line:
        return f"{line['model']:12} {line['error']}"
    exact = "exact" if line["exact"] else "within unknown"
    if not line["exact"] and line["within"] is not None:
        exact = f"within {100 * line['within']:.3g} %"
    return (
        f"{line['model']:12} {line['operators']} operators, {line['configurations']} "
        f"configurations: built {line['build_seconds']} s, searched {line['search_seconds']} s "
        f"({line['total_cpu_seconds']} s of CPU; kernels loaded in {line['kernels_seconds']} s "
        f"before), {line['points']} points, {exact}, "
        f"{line['heuristic_eliminations']} heuristic eliminations, "
        f"{line['peak_memory_gb']} GB; "
        f"paper {line['paper_seconds']} s, target {line['target_seconds']} s"
    )


def _tofu_row(line: Line) -> str:
    if "error" in line:
        return f"Tofu's recursion: {line['model']} {line['error']}"
    return (
        f"Tofu's recursion: {line['title']} ({line['weights_gb']} GB of weights, gradients and "
        f"history; paper {line['paper_weights_gb']}), {line['operators']} operators, "
        f"{line['devices']} devices: {line['seconds']} s, {line['build_seconds']} s of it building "
        f"({line['cpu_seconds']} s of CPU); "
        f"paper {line['paper_seconds']} s, target {TOFU_TARGET_SECONDS} s"
    )


if __name__ == "__main__":
    sys.exit(main())
