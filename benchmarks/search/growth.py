"""``python -m benchmarks.search.growth``: the time of a search against layers and devices.

Each series of `SERIES` searches one model, with a growing number of layers or of devices. Series of
layers use frontier tracking on all mesh axes, series of devices search as `find_strategy` does. A
series asks for a gap. A search has *reached* it if its frontier is proven: exact for a gap of 0,
otherwise within the gap. "exponent" is the slope of least squares through the logarithms of the
searches that have reached the gap, "exponent_of_all" that of all searches.

Each search has a process of its own and a time limit; a search that exceeds it ends its series. The
times are CPU seconds, see `benchmarks.search.searching`. The program writes growth.json to
build/search; its last line is one JSON object. ``--resume`` keeps the searches of growth.json, so
that the series can be measured in portions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import linear_regression

from benchmarks.search.scale import EXAMPLES, search
from benchmarks.search.searching import (
    ROOT,
    Line,
    in_process,
    problem_builder,
    proven,
    searched,
)

__all__ = ["SERIES", "Series", "exponent", "fitted", "main"]

LAYERS = (6, 12, 24, 48, 96)
DEPTHS = (14, 26, 50, 101, 152)
DEVICES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
EPSILON = 0.001
NEAR = 0.01


@dataclass(frozen=True, slots=True)
class Series:
    """Searches of one model.

    Attributes:
        model: name of a model of `benchmarks.search.steps`.
        size: the quantity that grows, "layers" or "devices".
        values: the values of that quantity, ascending.
        other: the number of devices of a series of layers, or of layers of a series of devices.
        epsilon: the gap that is asked for.
    """

    model: str
    size: str
    values: tuple[int, ...]
    other: int
    epsilon: float

    @property
    def name(self) -> str:
        """The name of the series in the JSON object."""
        size = f"{self.other}-devices" if self.size == "layers" else "devices"
        return f"{self.model}-{size}-{'exact' if self.epsilon == 0 else f'{self.epsilon:g}'}"


# The first series reach their gaps: the Transformer on few devices, and models with simpler graphs
# on more devices. The Transformer on many devices may miss its gap. The zoo's decoder, which shares
# one table of words at both ends, has the gap of `find_strategy`.
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
    """Search a model with a number of layers by frontier tracking, in this process."""
    from benchmarks.search.steps import cluster_of, step_of  # imports TensorFlow

    step, cluster = step_of(model, EXAMPLES * devices, layers), cluster_of(devices)
    build = problem_builder(step, cluster)
    line = searched(build, cluster.mesh(devices), epsilon)
    return {"layers": layers, "devices": devices, "operators": len(step.graph), **line}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The power of the size with which seconds grow; None for fewer than two sizes."""
    if len(sizes) < 2:
        return None
    return linear_regression([log(size) for size in sizes], [log(s) for s in seconds]).slope


def reached(line: Line, epsilon: float) -> bool:
    """Whether a search has proven the gap that was asked for."""
    if line["exact"]:
        return True
    return epsilon > 0 and line["within"] is not None and line["within"] <= epsilon


def fitted(series: Series, searches: Mapping[int, Line]) -> Line:
    """The searches of a series and the exponents of their times."""
    lines = [searches[value] for value in sorted(searches)]
    near = [line for line in lines if line["reached"]]
    return {
        "name": series.name,
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
    """Search for each value that has no search yet, until one takes too long.

    Yields the series before the first and after each search.
    """
    searches = {line[series.size]: line for line in earlier}
    yield fitted(series, searches)
    for value in sorted({*series.values} - {*searches}):
        layers, devices = value, series.other
        if series.size == "devices":
            layers, devices = devices, layers
        task = [series.model, series.size, layers, devices, series.epsilon]
        line = in_process("benchmarks.search.growth", list(map(str, task)), timeout)
        if "error" in line:
            print(f"{series.name}: {value} {series.size}: {line['error']}", flush=True)
            return
        line["reached"] = reached(line, series.epsilon)
        line["commit"] = _commit()
        searches[value] = line
        print(
            f"{series.name}: {value} {series.size}: {line['cpu_seconds']} s of CPU "
            f"({line['seconds']} s), {line['operators']} operators, {line['configurations']} "
            f"configurations, {line['points']} points, {proven(line)}",
            flush=True,
        )
        yield fitted(series, searches)


def _commit() -> str:
    """The commit that is measured, with "-dirty" if files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True
    ).stdout.strip()


def main() -> int:
    """Measure, fit and write; the status is 1 if a series is not complete."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.growth", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=list(SERIES), default=list(SERIES))
    parser.add_argument("--layers", type=int, nargs="+", help="of series of layers, only these")
    parser.add_argument("--devices", type=int, nargs="+", help="of series of devices, only these")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for each search")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "search")
    parser.add_argument("--resume", action="store_true", help="keep the searches of growth.json")
    parser.add_argument("task", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        model, size, layers, devices, epsilon = options.task
        if size == "devices":
            line = search(model, int(devices), float(epsilon), int(layers))
        else:
            line = search_layers(model, int(layers), int(devices), float(epsilon))
        print(json.dumps(line))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "growth.json"
    known: dict[str, Line] = {}
    if options.resume and path.exists():
        known = {series["name"]: series for series in json.loads(path.read_text())["series"]}
    complete = True
    for name in options.series:
        asked = options.layers if SERIES[name].size == "layers" else options.devices
        values = tuple(n for n in SERIES[name].values if asked is None or n in asked)
        series = replace(SERIES[name], values=values)
        earlier = known[name]["searches"] if name in known else []
        for state in _measured(series, options.timeout, earlier):
            known[name] = state
            result = {"benchmark": "search.growth", "series": list(known.values())}
            path.write_text(json.dumps(result, indent=1) + "\n")
        complete &= {*values} <= {line[series.size] for line in state["searches"]}
        if state["exponent"] is not None:
            print(f"{series.name}: power {state['exponent']:.2f} of {series.size}", flush=True)
    print(json.dumps(result))
    return int(not complete)


if __name__ == "__main__":
    sys.exit(main())
