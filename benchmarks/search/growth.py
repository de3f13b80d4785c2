"""``python -m benchmarks.search.growth``: the time of a search against layers and devices.

The Transformer of 6 to 96 layers on 8 devices, exactly and with epsilon = 0.1 %; the paper's, of 6
layers, on 4 to 1,024 devices as `find_strategy` searches them. Every search has a process of its
own and a limit; what exceeds it ends its series. Seconds are CPU seconds of all threads, for
building the problem and searching it. Exponents are slopes of least squares through the logarithms.
Writes growth.json and growth.png to build/search; the last line printed is one JSON object. With
``--resume``, searches that growth.json has already are not done again, so that the whole can be
measured in portions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from benchmarks.search.scale import ROOT, in_process, search

__all__ = ["exponent", "main"]

LAYERS = (6, 12, 24, 48, 96)
DEVICES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
LAYER_DEVICES = 8
EPSILON = 0.001
SERIES = {"exact": ("layers", 0.0), "epsilon": ("layers", EPSILON), "devices": ("devices", EPSILON)}
"""By name what a series of searches varies, and how near its frontiers are to be."""

Line = dict[str, Any]


def search_layers(layers: int, epsilon: float) -> Line:
    """Search a Transformer of so many layers by frontier tracking, in this process."""
    from benchmarks.search.steps import cluster_of, step_of
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.search import frontier_tracking
    from tensoropt.search.from_graph import graph_problem

    step = step_of("transformer", 16 * LAYER_DEVICES, layers)
    cluster = cluster_of(LAYER_DEVICES)
    mesh = cluster.mesh(LAYER_DEVICES)
    cost = ClusterCostModel(cluster, mesh)
    begun, cpu = time.perf_counter(), time.process_time()
    problem = graph_problem(step.graph, mesh, cost, step.batch_placeholders).problem
    built = time.process_time() - cpu
    frontier = frontier_tracking(problem, epsilon=epsilon)
    return {
        "layers": layers,
        "epsilon": epsilon,
        "operators": len(step.graph),
        "seconds": round(time.perf_counter() - begun, 2),
        "build_cpu_seconds": round(built, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "points": len(frontier),
        "exact": frontier.exact,
        "within": frontier.within,
    }


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The power of the size with which seconds grow; None for fewer than two sizes."""
    if len(sizes) < 2:
        return None
    x, y = [log(size) for size in sizes], [log(value) for value in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def _series(
    name: str, values: Sequence[int], timeout: float, earlier: Sequence[Line]
) -> Iterator[Line]:
    """One search for each value that has none yet, until one takes too long: the series so far."""
    size, epsilon = SERIES[name]
    found = {line[size]: line for line in earlier}
    yield _fitted(name, found)
    for value in sorted({*values} - {*found}):
        arguments = ["--series", name, f"--{size}", str(value), "--epsilon", str(epsilon)]
        line = in_process("benchmarks.search.growth", arguments, timeout)
        if "error" in line:
            print(f"{name}: {value} {size}: {line['error']}", flush=True)
            break
        within = "unknown" if line["within"] is None else f"{100 * line['within']:.3g} %"
        print(
            f"{name}: {value} {size}: {line['cpu_seconds']} s of CPU, {line['points']} points, "
            f"within {within}",
            flush=True,
        )
        found[value] = line
        yield _fitted(name, found)


def _fitted(name: str, found: Mapping[int, Line]) -> Line:
    """A series of searches, and with which power of the size their time grows."""
    size, _ = SERIES[name]
    lines = [found[value] for value in sorted(found)]
    slope = exponent([line[size] for line in lines], [line["cpu_seconds"] for line in lines])
    return {"name": name, "size": size, "exponent": slope, "searches": lines}


def _draw(series: Sequence[Line], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = [size for size in ("layers", "devices") if any(s["size"] == size for s in series)]
    figure, plots = pyplot.subplots(1, len(sizes), figsize=(5.5 * len(sizes), 4), squeeze=False)
    for size, plot in zip(sizes, plots[0], strict=True):
        ticks: set[int] = set()
        for each in series:
            if each["size"] != size:
                continue
            x = [line[size] for line in each["searches"]]
            ticks.update(x)
            label = each["name"]
            if each["exponent"] is not None:
                label += f": power {each['exponent']:.2f}"
            plot.plot(x, [line["cpu_seconds"] for line in each["searches"]], "o-", label=label)
        plot.set_xscale("log", base=2)
        plot.set_yscale("log")
        plot.set_xticks(sorted(ticks), [f"{value:,}" for value in sorted(ticks)])
        plot.minorticks_off()
        plot.set_xlabel(size)
        plot.set_ylabel("CPU seconds of the search")
        plot.grid(True, which="both", alpha=0.3)
        plot.legend()
    figure.suptitle("Search time of the Transformer")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    """Measure, fit, write and draw; status 1 if a series has fewer than two searches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.growth", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=list(SERIES), default=list(SERIES))
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for each search")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "search")
    parser.add_argument("--resume", action="store_true", help="keep what growth.json has")
    parser.add_argument("--layers", type=int, nargs="+", default=list(LAYERS))
    parser.add_argument("--devices", type=int, nargs="+", default=list(DEVICES))
    parser.add_argument("--epsilon", type=float, default=EPSILON, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        if options.series == ["devices"]:
            line = search("transformer", options.devices[0], options.epsilon)
        else:
            line = search_layers(options.layers[0], options.epsilon)
        print(json.dumps(line))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "growth.json"
    earlier: dict[str, Line] = {}
    if options.resume and path.exists():
        earlier = {each["name"]: each for each in json.loads(path.read_text())["series"]}
    for name in options.series:
        values = options.devices if name == "devices" else options.layers
        known = earlier[name]["searches"] if name in earlier else []
        for series in _series(name, values, options.timeout, known):
            earlier[name] = series
            found = [earlier[each] for each in SERIES if each in earlier]
            result = {"benchmark": "search.growth", "layer_devices": LAYER_DEVICES, "series": found}
            path.write_text(json.dumps(result, indent=1) + "\n")
        if series["exponent"] is not None:
            print(f"{name}: to the power {series['exponent']:.2f} of {series['size']}", flush=True)
    drawn = [each for each in found if each["searches"]]
    if drawn:
        _draw(drawn, options.output / "growth.png")
    print(json.dumps(result))
    return int(any(each["exponent"] is None for each in found))


if __name__ == "__main__":
    sys.exit(main())
