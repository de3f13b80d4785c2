"""``python -m benchmarks.search.scale``: the frontier on many devices, and the price of few axes.

Inception-v3 and the paper's Transformer, with 16 examples a device, are searched on clusters of the
machines of 4x8-h100, as `find_strategy` does: from coarse meshes to finer ones. Each search has a
process of its own; see `benchmarks.search.searching` for its seconds.

``--given-up`` compares, on 16 devices, the frontiers on meshes of two, three and four axes, found
from coarse meshes to finer ones, with frontier tracking on all four axes. It prints by how much
longer a step takes at equal memory. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.search.searching import Line, in_process, problem_builder, proven, searched

if TYPE_CHECKING:
    from tensoropt.search import Frontier

__all__ = ["EXAMPLES", "main", "search"]

MODELS = ("inception", "transformer")
DEVICES = (64, 192, 256, 1024)
EXAMPLES = 16


def search(model: str, devices: int, epsilon: float = 0.001, layers: int = 6) -> Line:
    """Search one model in this process, as `find_strategy` does."""
    from benchmarks.search.steps import cluster_of, step_of  # imports TensorFlow
    from tensoropt.planner.meshes import meshes_of

    step, cluster = step_of(model, EXAMPLES * devices, layers), cluster_of(devices)
    meshes = meshes_of(step.graph, cluster, devices)
    build = problem_builder(step, cluster)
    line = searched(build, meshes if len(meshes) > 1 else meshes[0].mesh, epsilon)
    return {
        "model": model,
        "layers": layers,
        "devices": devices,
        "operators": len(step.graph),
        "parameters": step.parameters,
        **line,
    }


def given_up(model: str, devices: int = 16) -> Line:
    """Compare frontiers on few mesh axes with frontier tracking on all axes, in this process."""
    from benchmarks.search.steps import cluster_of, step_of  # imports TensorFlow
    from tensoropt.search import frontier_tracking
    from tensoropt.search.multilevel.coarse_to_fine import coarse_to_fine
    from tensoropt.search.multilevel.refinement import refinements

    step, cluster = step_of(model, EXAMPLES * devices), cluster_of(devices)
    build = problem_builder(step, cluster)
    whole = cluster.mesh(devices)
    frontiers = {}
    for axes in range(2, len(whole.axes) + 1):
        cpu = time.process_time()
        problem, frontier = coarse_to_fine(build, refinements(cluster.level_counts(devices), axes))
        frontiers[str(problem.mesh)] = frontier, time.process_time() - cpu
    cpu = time.process_time()
    reference = frontier_tracking(build(whole).problem, epsilon=0.001)
    return {
        "model": model,
        "devices": devices,
        "reference": f"frontier tracking on {whole}",
        "reference_within": reference.within,
        "reference_cpu_seconds": round(time.process_time() - cpu, 2),
        "given_up": [
            {"mesh": mesh, "cpu_seconds": round(seconds, 2), **_longer(frontier, reference)}
            for mesh, (frontier, seconds) in frontiers.items()
        ],
    }


def _longer(frontier: Frontier, reference: Frontier) -> Line:
    """The percentages by which a step takes longer than the reference's at the same memory.

    The memory of 200 points is spread evenly on a logarithmic scale over the reference. Points with
    less memory than the frontier needs are counted apart.
    """
    import numpy as np

    low, high = np.log(reference.memory[[0, -1]])
    memory = np.exp(np.linspace(low, high, 200)).astype(np.int64)
    memory[[0, -1]] = reference.memory[[0, -1]]
    here = np.searchsorted(frontier.memory, memory, side="right") - 1
    there = np.searchsorted(reference.memory, memory, side="right") - 1
    fits = (here >= 0) & (there >= 0)
    share = 100 * (frontier.time[here[fits]] / reference.time[there[fits]] - 1)
    return {
        "mean_percent": round(float(share.mean()), 3),
        "median_percent": round(float(np.median(share)), 3),
        "most_percent": round(float(share.max()), 3),
        "fastest_percent": round(100 * (int(frontier.time[-1]) / int(reference.time[-1]) - 1), 3),
        "too_little_memory": int((~fits).sum()),
    }


def _row(line: Line) -> str:
    """The line of a search, in words."""
    if "error" in line:
        return f"{' '.join(line['arguments'])}: {line['error']}"
    if "given_up" in line:
        rows = [
            f"  {row['mesh']}: {row['mean_percent']} % longer in the mean, at most "
            f"{row['most_percent']} %, the fastest {row['fastest_percent']} %; "
            f"{row['cpu_seconds']} s of CPU"
            for row in line["given_up"]
        ]
        return "\n".join([f"{line['model']} on {line['devices']}, {line['reference']}:", *rows])
    return (
        f"{line['model']:12} {line['devices']:5} devices: {line['seconds']} s "
        f"({line['cpu_seconds']} s of CPU), {line['points']} points on {line['mesh']}, "
        f"{proven(line)}"
    )


def main() -> int:
    """Run the searches; the status is 1 if one did not end in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.scale", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--devices", type=int, nargs="+")
    parser.add_argument("--given-up", action="store_true", help="measure the price of few axes")
    parser.add_argument("--epsilon", type=float, default=0.001)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each search")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    devices = options.devices or ([16] if options.given_up else list(DEVICES))
    if options.here:
        arguments = options.models[0], devices[0]
        print(
            json.dumps(
                given_up(*arguments) if options.given_up else search(*arguments, options.epsilon)
            )
        )
        return 0
    lines = []
    for model in options.models:
        for count in devices:
            asked = [model, "--devices", str(count), "--epsilon", str(options.epsilon)]
            asked += ["--given-up"] if options.given_up else []
            lines.append(in_process("benchmarks.search.scale", asked, options.timeout))
            print(_row(lines[-1]), flush=True)
    print(json.dumps({"benchmark": "search.scale", "searches": lines}))
    return int(any("error" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
