"""``python -m benchmarks.search.scale``: the frontier on many devices, and what is given up for it.

Inception-v3 and the paper's Transformer, 16 examples a device, on clusters of the machines of
4x8-h100. Searched is as `find_strategy` does: from coarse meshes to finer ones. Seconds are of
building the problems and searching them, the graph being in memory and compiled kernels loaded; CPU
seconds are of all threads, which say more on a machine that others use. Every search has a process
of its own.

With ``--given-up``: on 16 devices, meshes of two and three axes, and all four as they are searched
on the way to larger numbers, against the frontier by frontier tracking on all four axes: by how
much longer a step takes at equal memory. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensoropt.search import Frontier

__all__ = ["DEVICES", "MODELS", "given_up", "longer", "main", "row", "scale", "search"]

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ("inception", "transformer")
DEVICES = (64, 192, 256, 1024)
TARGET_SECONDS = {64: 60.0, 192: 60.0, 256: 60.0, 1024: 300.0}
EXAMPLES = 16

Line = dict[str, Any]


def scale(
    models: Sequence[str] = MODELS, devices: Sequence[int] = DEVICES, timeout: float = 600.0
) -> list[Line]:
    """Search every model on every number of devices, each in a process of its own."""
    return [
        in_process("benchmarks.search.scale", [model, "--devices", str(count)], timeout)
        for model in models
        for count in devices
    ]


def in_process(module: str, arguments: Sequence[str], timeout: float) -> Line:
    """What ``--here`` prints as JSON on its last line; "error" where it took too long or failed."""
    command = [sys.executable, "-m", module, *arguments, "--here"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, text=True, timeout=timeout, stdout=subprocess.PIPE, check=True
        )
    except subprocess.TimeoutExpired:
        return {"arguments": list(arguments), "error": f"more than {timeout:g} s"}
    except subprocess.CalledProcessError as failed:  # it has said why
        return {"arguments": list(arguments), "error": f"ended with status {failed.returncode}"}
    line: Line = json.loads(done.stdout.splitlines()[-1])
    return line


def search(model: str, devices: int, epsilon: float = 0.001, layers: int = 6) -> Line:
    """Search one model in this process, as `find_strategy` does, with kernels loaded before."""
    from benchmarks.search.steps import cluster_of, step_of
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.parallel.mesh import Mesh
    from tensoropt.planner.kernels import load_kernels
    from tensoropt.planner.meshes import meshes_of
    from tensoropt.problem.annotated_graph import AnnotatedGraph
    from tensoropt.problem.edges.tensor_reuse import PAPER
    from tensoropt.problem.from_graph import GraphProblem, graph_problem
    from tensoropt.search import frontier_tracking
    from tensoropt.search.multilevel.coarse_to_fine import coarse_to_fine

    step = step_of(model, EXAMPLES * devices, layers)
    cluster = cluster_of(devices)
    meshes = meshes_of(step.graph, cluster, devices)
    load_kernels()

    def build(mesh: Mesh) -> GraphProblem:
        cost = ClusterCostModel(cluster, mesh)
        return graph_problem(
            AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders, space=PAPER)
        )

    begun, cpu = time.perf_counter(), time.process_time()
    if len(meshes) > 1:
        problem, frontier = coarse_to_fine(build, meshes, epsilon)
    else:
        problem = build(meshes[0].mesh)
        frontier = frontier_tracking(problem.problem, epsilon=epsilon)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    return {
        "model": model,
        "layers": layers,
        "devices": devices,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "target_seconds": TARGET_SECONDS.get(devices),
        "operators": len(step.graph),
        "parameters": step.parameters,
        "meshes": [str(each.mesh) for each in meshes],
        "configurations": sum(node.configurations for node in problem.problem.nodes),
        "points": len(frontier),
        "exact": frontier.exact,
        "within": frontier.within,
        "memory_gb": [round(int(frontier.memory[place]) / 2**30, 3) for place in (0, -1)],
        "seconds_per_step": [round(int(frontier.time[place]) / 1e9, 4) for place in (0, -1)],
    }


def given_up(model: str, devices: int = 16) -> Line:
    """Limited meshes against frontier tracking on all axes, in this process."""
    from benchmarks.search.steps import cluster_of, step_of
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.parallel.mesh import Mesh
    from tensoropt.problem.annotated_graph import AnnotatedGraph
    from tensoropt.problem.edges.tensor_reuse import PAPER
    from tensoropt.problem.from_graph import GraphProblem, graph_problem
    from tensoropt.search import frontier_tracking
    from tensoropt.search.multilevel.coarse_to_fine import coarse_to_fine
    from tensoropt.search.multilevel.refinement import refinements

    step = step_of(model, EXAMPLES * devices)
    cluster = cluster_of(devices)

    def build(mesh: Mesh) -> GraphProblem:
        cost = ClusterCostModel(cluster, mesh)
        return graph_problem(
            AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders, space=PAPER)
        )

    whole = cluster.mesh(devices)
    found = {}
    for most in range(2, len(whole.axes) + 1):
        cpu = time.process_time()
        problem, frontier = coarse_to_fine(build, refinements(cluster.level_counts(devices), most))
        found[str(problem.mesh)] = frontier, time.process_time() - cpu
    cpu = time.process_time()
    reference = frontier_tracking(build(whole).problem, epsilon=0.001)
    return {
        "model": model,
        "devices": devices,
        "reference": f"frontier tracking on {whole}",
        "reference_within": reference.within,
        "reference_cpu_seconds": round(time.process_time() - cpu, 2),
        "given_up": [
            {"mesh": mesh, "cpu_seconds": round(seconds, 2), **longer(frontier, reference)}
            for mesh, (frontier, seconds) in found.items()
        ],
    }


def longer(frontier: Frontier, reference: Frontier) -> Line:
    """By how many per cent a step takes longer at the memory of the reference's points.

    Points are weighted alike in the logarithm of memory; those that the frontier has no memory for
    are counted apart.
    """
    import numpy as np

    low, high = np.log(reference.memory[[0, -1]])
    wanted = np.exp(np.linspace(low, high, 200)).astype(np.int64)
    wanted[[0, -1]] = reference.memory[[0, -1]]
    here = np.searchsorted(frontier.memory, wanted, side="right") - 1
    there = np.searchsorted(reference.memory, wanted, side="right") - 1
    fits = (here >= 0) & (there >= 0)
    share = 100 * (frontier.time[here[fits]] / reference.time[there[fits]] - 1)
    return {
        "mean_percent": round(float(share.mean()), 3),
        "median_percent": round(float(np.median(share)), 3),
        "most_percent": round(float(share.max()), 3),
        "fastest_percent": round(100 * (int(frontier.time[-1]) / int(reference.time[-1]) - 1), 3),
        "too_little_memory": int((~fits).sum()),
    }


def row(line: Line) -> str:
    """What a search found, in words."""
    if "error" in line:
        return f"{' '.join(line['arguments'])}: {line['error']}"
    if "given_up" in line:
        rows = [
            f"  {each['mesh']}: {each['mean_percent']} % longer in the mean, at most "
            f"{each['most_percent']} %, the fastest {each['fastest_percent']} %; "
            f"{each['cpu_seconds']} s of CPU"
            for each in line["given_up"]
        ]
        return "\n".join([f"{line['model']} on {line['devices']}, {line['reference']}:", *rows])
    within = "unknown" if line["within"] is None else f"{100 * line['within']:.3g} %"
    return (
        f"{line['model']:12} {line['devices']:5} devices: {line['seconds']} s "
        f"({line['cpu_seconds']} s of CPU; target {line['target_seconds']} s), "
        f"{line['points']} points on {line['meshes'][-1]}, within {within}"
    )


def main() -> int:
    """Search what is asked for; status 1 if something was not searched in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.scale", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--devices", type=int, nargs="+", default=None)
    parser.add_argument("--given-up", action="store_true", help="measure that instead")
    parser.add_argument("--epsilon", type=float, default=0.001)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each search")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    devices = options.devices or ([16] if options.given_up else list(DEVICES))
    lines = []
    for model in options.models:
        for count in devices:
            if options.here:
                line = (
                    given_up(model, count)
                    if options.given_up
                    else search(model, count, options.epsilon)
                )
                print(json.dumps(line))
                continue
            arguments = [model, "--devices", str(count), "--epsilon", str(options.epsilon)]
            arguments += ["--given-up"] if options.given_up else []
            line = in_process("benchmarks.search.scale", arguments, options.timeout)
            print(row(line), flush=True)
            lines.append(line)
    if not options.here:
        print(json.dumps({"benchmark": "search.scale", "searches": lines}))
    return int(any("error" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
