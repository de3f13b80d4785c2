"""``python -m benchmarks.search.growth``: the time of a search against layers and devices.

Series of searches of one model, of which the layers or the devices vary: by default those of
`SERIES`, or one of your own: ``--model bert --devices 8 --layers 6 12 24 --epsilon 0``. Layers are
searched by frontier tracking on all mesh axes, devices as `find_strategy` does. A series says how
near its frontiers are to be; a search has *reached* that if it is proven: exact for 0, else within
epsilon. Only these count for the exponent, the slope of least squares through the logarithms;
"exponent_of_all" is that of all searches, whatever they have proven.

Every search has a process of its own, which loads compiled kernels before the clock starts, and a
limit; what exceeds it ends its series. Seconds are CPU seconds of all threads, for building the
problem and searching it. Writes growth.json and growth.png to build/search; the last line printed
is one JSON object. With ``--resume``, searches that growth.json has already are not done again, so
that the whole can be measured in portions.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from benchmarks.search.scale import EXAMPLES, ROOT, in_process, search

__all__ = ["SERIES", "Series", "exponent", "fitted", "main"]

LAYERS = (6, 12, 24, 48, 96)
DEPTHS = (14, 26, 50, 101, 152)
DEVICES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
EPSILON = 0.001
NEAR = 0.01
TITLES = {
    "bert": "BERT",
    "decoder": "Decoder",
    "inception": "Inception-v3",
    "rnn": "RNN",
    "transformer": "Transformer",
    "vgg16": "VGG16",
    "wide_resnet": "WideResNet",
}

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Series:
    """Searches of one model.

    Attributes:
        model: of `benchmarks.search.steps`.
        size: what varies, "layers" or "devices".
        values: of it, ascending.
        other: the number of devices where layers vary, and of layers where devices do.
        epsilon: how near frontiers are to be.
    """

    model: str
    size: str
    values: tuple[int, ...]
    other: int
    epsilon: float

    @property
    def name(self) -> str:
        """Of the series in the JSON object; of all values of its size."""
        what = f"{self.other}-devices" if self.size == "layers" else "devices"
        return f"{self.model}-{what}-{'exact' if self.epsilon == 0 else f'{self.epsilon:g}'}"

    @property
    def title(self) -> str:
        """In words."""
        other = f"{self.other} {'devices' if self.size == 'layers' else 'layers'}"
        near = "exact" if self.epsilon == 0 else f"within {100 * self.epsilon:g} %"
        return f"{TITLES.get(self.model, self.model)}, {other}, {near}"


# Where searches prove what they are asked for: the Transformer on few devices, and models whose
# graphs are simpler on more of them; then the Transformer on many, as near as it comes, and the
# zoo's decoder, whose words are one table for both ends, to the gap that users get unasked.
SERIES = {
    series.name: series
    for series in (
        *(Series("transformer", "layers", LAYERS, 2, near) for near in (0.0, EPSILON)),
        *(Series("bert", "layers", LAYERS, 8, near) for near in (0.0, EPSILON)),
        *(Series("rnn", "layers", LAYERS, 8, near) for near in (0.0, EPSILON)),
        Series("wide_resnet", "layers", DEPTHS, 4, 0.0),
        Series("transformer", "layers", LAYERS, 8, EPSILON),
        Series("transformer", "devices", DEVICES, 6, EPSILON),
        Series("decoder", "layers", LAYERS, 16, NEAR),
        Series("decoder", "devices", (4, 16, 64, 256, 1024), 12, NEAR),
    )
}


def search_layers(model: str, layers: int, devices: int, epsilon: float) -> Line:
    """Search a model of so many layers by frontier tracking, in this process."""
    from benchmarks.search.steps import cluster_of, step_of
    from tensoropt.cost.model import ClusterCostModel
    from tensoropt.planner.kernels import load_kernels
    from tensoropt.problem.annotated_graph import AnnotatedGraph
    from tensoropt.problem.edges.tensor_reuse import PAPER
    from tensoropt.problem.from_graph import graph_problem
    from tensoropt.search import frontier_tracking

    step = step_of(model, EXAMPLES * devices, layers)
    cluster = cluster_of(devices)
    mesh = cluster.mesh(devices)
    load_kernels()
    begun, cpu = time.perf_counter(), time.process_time()
    cost = ClusterCostModel(cluster, mesh)
    problem = graph_problem(
        AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders, space=PAPER)
    ).problem
    built = time.process_time() - cpu
    frontier = frontier_tracking(problem, epsilon=epsilon)
    return {
        "layers": layers,
        "devices": devices,
        "epsilon": epsilon,
        "operators": len(step.graph),
        "configurations": sum(node.configurations for node in problem.nodes),
        "seconds": round(time.perf_counter() - begun, 2),
        "build_cpu_seconds": round(built, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "points": len(frontier),
        "exact": frontier.exact,
        "within": frontier.within,
        "heuristic_eliminations": frontier.eliminations["heuristic"],
    }


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The power of the size with which seconds grow; None for fewer than two sizes."""
    if len(sizes) < 2:
        return None
    x, y = [log(size) for size in sizes], [log(value) for value in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def reached(line: Line, epsilon: float) -> bool:
    """Whether a search has proven its frontier to be as near as was asked for."""
    if line["exact"]:
        return True
    return epsilon > 0 and line["within"] is not None and line["within"] <= epsilon


def fitted(series: Series, found: Mapping[int, Line]) -> Line:
    """What a series has found, and with which power of the size its time grows."""
    lines = [found[value] for value in sorted(found)]
    near = [line for line in lines if line["reached"]]
    return {
        "name": series.name,
        "title": series.title,
        "model": series.model,
        "size": series.size,
        "epsilon": series.epsilon,
        "exponent": _slope(series.size, near),
        "exponent_of_all": _slope(series.size, lines),
        "searches": lines,
    }


def _slope(size: str, lines: Sequence[Line]) -> float | None:
    return exponent([line[size] for line in lines], [line["cpu_seconds"] for line in lines])


def _measured(series: Series, timeout: float, earlier: Iterable[Line]) -> Iterator[Line]:
    """One search for each value that has none yet, until one takes too long: the series so far."""
    found = {line[series.size]: line for line in earlier}
    yield fitted(series, found)
    for value in sorted({*series.values} - {*found}):
        layers, devices = (
            (value, series.other) if series.size == "layers" else (series.other, value)
        )
        arguments = ["--model", series.model, "--size", series.size, "--layers", str(layers)]
        arguments += ["--devices", str(devices), "--epsilon", str(series.epsilon)]
        line = in_process("benchmarks.search.growth", arguments, timeout)
        if "error" in line:
            print(f"{series.title}: {value} {series.size}: {line['error']}", flush=True)
            return
        line["reached"] = reached(line, series.epsilon)
        line["commit"] = _commit()
        found[value] = line
        print(f"{series.title}: {_row(line, series.size)}", flush=True)
        yield fitted(series, found)


def _row(line: Line, size: str) -> str:
    near = "exact" if line["exact"] else "within unknown"
    if not line["exact"] and line["within"] is not None:
        near = f"within {100 * line['within']:.3g} %"
    return (
        f"{line[size]} {size}: {line['cpu_seconds']} s of CPU ({line['seconds']} s), "
        f"{line['operators']} operators, {line['configurations']} configurations, "
        f"{line['points']} points, {near}"
    )


def _commit() -> str:
    """Which state of the search was measured; "-dirty" if it is no commit's."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True
    ).stdout.strip()


def draw(all_series: Sequence[Line], path: Path) -> None:
    """A panel for each size; what a search did not prove is hollow."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    sizes = [size for size in ("layers", "devices") if any(s["size"] == size for s in all_series)]
    figure = Figure(figsize=(6.4 * len(sizes), 5.8), dpi=110, layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for size, panel in zip(sizes, panels, strict=True):
        ticks: set[int] = set()
        for number, series in enumerate(each for each in all_series if each["size"] == size):
            colour, lines = f"C{number}", series["searches"]
            ticks.update(line[size] for line in lines)
            label = series["title"]
            if series["exponent"] is not None:
                label += f": power {series['exponent']:.2f}"
            values = [line[size] for line in lines], [line["cpu_seconds"] for line in lines]
            panel.plot(*values, color=colour, marker="o", markevery=[], label=label)
            for near, fill in ((True, colour), (False, "white")):
                shown = [place for place, line in enumerate(lines) if line["reached"] == near]
                panel.scatter(
                    [values[0][place] for place in shown], [values[1][place] for place in shown],
                    edgecolors=colour, facecolors=fill, zorder=3,
                )  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel=size, ylabel="CPU seconds of a search")
        panel.set_xticks(sorted(ticks), [f"{value:,}" for value in sorted(ticks)])
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter("{x:g}")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_minor_locator(NullLocator())
        panel.grid(alpha=0.3)
        panel.legend(
            fontsize=8, title="hollow: not proven as near", title_fontsize=8,
            loc="upper center", bbox_to_anchor=(0.5, -0.12),
        )  # fmt: skip
    figure.savefig(path)


def _own(options: argparse.Namespace) -> Series:
    """The series that arguments describe."""
    devices, layers = options.devices or [8], options.layers or list(LAYERS)
    by_devices = options.size == "devices" or len(devices) > 1
    if by_devices and options.layers is None:
        layers = [6]
    if by_devices and len(layers) > 1:
        raise SystemExit("a series has several layers, or several devices. Got both.")
    if by_devices:
        return Series(options.model, "devices", tuple(sorted(devices)), layers[0], options.epsilon)
    return Series(options.model, "layers", tuple(sorted(layers)), devices[0], options.epsilon)


def main() -> int:
    """Measure, fit, write and draw; status 1 if a series is not complete."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.growth", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=list(SERIES), default=list(SERIES))
    parser.add_argument("--model", choices=list(TITLES), help="a series of its own")
    parser.add_argument("--layers", type=int, nargs="+", help="of --model; or fewer of --series")
    parser.add_argument("--devices", type=int, nargs="+", help="of --model; or fewer of --series")
    parser.add_argument("--size", choices=["layers", "devices"], help="what varies, of --model")
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="of --model")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for each search")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "search")
    parser.add_argument("--resume", action="store_true", help="keep what growth.json has")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        (layers,), (devices,) = options.layers, options.devices
        if options.size == "devices":
            line = search(options.model, devices, options.epsilon, layers)
        else:
            line = search_layers(options.model, layers, devices, options.epsilon)
        line["peak_memory_gb"] = round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2
        )
        print(json.dumps(line))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "growth.json"
    known: dict[str, Line] = {}
    if options.resume and path.exists():
        known = {each["name"]: each for each in json.loads(path.read_text())["series"]}
    wanted = (
        [_own(options)] if options.model else [_fewer(SERIES[n], options) for n in options.series]
    )
    complete = True
    for series in wanted:
        earlier = known[series.name]["searches"] if series.name in known else []
        for state in _measured(series, options.timeout, earlier):
            known[series.name] = state
            result = {"benchmark": "search.growth", "series": list(known.values())}
            path.write_text(json.dumps(result, indent=1) + "\n")
        complete &= {*series.values} <= {line[series.size] for line in state["searches"]}
        if state["exponent"] is not None:
            print(
                f"{series.title}: to the power {state['exponent']:.2f} of {series.size}", flush=True
            )
    drawn = [each for each in known.values() if each["searches"]]
    if drawn:
        draw(drawn, options.output / "growth.png")
    print(json.dumps(result))
    return int(not complete)


def _fewer(series: Series, options: argparse.Namespace) -> Series:
    """A series with the values that are asked for alone."""
    asked = options.layers if series.size == "layers" else options.devices
    if asked is None:
        return series
    values = tuple(value for value in series.values if value in asked)
    return Series(series.model, series.size, values, series.other, series.epsilon)


if __name__ == "__main__":
    sys.exit(main())
