"""``python -m benchmarks.search.on_paper``: a cluster that grows on paper, to 16,384 devices.

The paper's Transformer and the zoo's decoder of 96 layers are planned by default on 1, 4, 16, ...
devices of the cluster 64x32x8-h100: pods of 32 machines of eight H100. ``--models wide_decoder`` is
a decoder of width 12,288. Nothing runs. "weak": every device has 16 examples. "strong": the batch
has 2,048 examples on any number of devices, and where fewer devices are faster, theirs is the plan.
Each line has the predicted step, the samples a second, the cost of a million samples, the plan, and
the CPU seconds of planning. The end of scaling follows, with its cause
(`ParallelismProfile.scaling_end`). It is certain, or possible where time ended a search.

Planning ends after ``--search-seconds`` for the batch at once,
and half as long again for other spaces, both CPU seconds. Building and importing the graph are not
planning; the line has their CPU seconds apart. The program writes on_paper.json and on_paper.png to
build/search; ``--resume`` keeps the points of on_paper.json. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import groupby
from pathlib import Path
from time import process_time
from unittest.mock import patch

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tensoropt as tf
from benchmarks.composition.options import default
from benchmarks.search.searching import ROOT, Line
from benchmarks.search.steps import BUILDERS
from benchmarks.search.zoo.measuring import request_in
from tensoropt.cost.cluster import load_cluster
from tensoropt.garbage import collected_later
from tensoropt.plan.parallelism_profile import (
    ParallelismProfile,
    ProfilePoint,
)
from tensoropt.planner import choose
from tensoropt.planner.kernels import load_kernels
from tensoropt.planner.request import Budget, Request
from tensoropt.search.watch import Watch

__all__ = ["main"]

_LAYERS = {"decoder": 96, "transformer": 6, "wide_decoder": 96}
_DEFAULT = ("decoder", "transformer")
_DEVICES = tuple(4**n for n in range(8))
_EXAMPLES = 16
"""The examples of a device, in weak scaling."""
_BATCH = 2048
"""The examples of a step, in strong scaling."""
_CLUSTER = "64x32x8-h100"
_HOUR_COST = 2.5
"""The price of a device for an hour, assumed."""


@cache
def _script(model: str) -> tf.Graph:
    """A model with its optimizer, as a script builds it."""
    script = tf.Graph()
    with script.as_default():
        made = BUILDERS[model](_LAYERS[model])
        if made is not None:
            tf.train.GradientDescentOptimizer(0.1).minimize(made.loss)
    return script


@lru_cache(maxsize=1)
def _request(model: str, batch: int) -> Request:
    """The default request for a model; its peaks are unknown, since dry runs take minutes."""
    cluster = load_cluster(_CLUSTER)
    request = request_in(_script(model), batch, cluster, cluster.devices or 1)
    request = replace(request, dry_run_peak=None, stage_peak=None)
    return default(replace(request, budget=Budget(device_hour_cost=_HOUR_COST)))


@collected_later()  # like `find_strategy`
def planned(model: str, scaling: str, devices: int, seconds: float) -> Line:
    """Plan one point."""
    begun = process_time()
    request = _request(model, _EXAMPLES * devices if scaling == "weak" else _BATCH)
    request = replace(request, devices=devices, search_seconds=seconds)
    imported = process_time() - begun
    load_kernels()
    begun = process_time()
    with patch.object(choose, "Watch", partial(Watch, clock=process_time)):
        profile = choose.profiling(request, [devices])
    return {
        "model": model,
        "scaling": scaling,
        "operators": len(request.graph),
        "mesh": str(request.meshes(devices)[-1].mesh),
        "profile": profile.to_json(),
        "import_cpu_seconds": round(imported, 1),
        "cpu_seconds": round(process_time() - begun, 1),
    }


def _points(lines: Sequence[Line]) -> tuple[ProfilePoint, ...]:
    """The points of a series, by ascending devices."""
    points = [point for line in lines for point in ParallelismProfile.from_json(line["profile"])]
    return tuple(sorted(points, key=lambda point: point.devices))


def _row(line: Line) -> str:
    (point,) = _points([line])
    return (
        f"{line['model']} {line['scaling']}: {point}, {point.way}, network "
        f"{point.network_seconds / (point.time_seconds or 1):.0%}; mesh {line['mesh']}, "
        f"{line['cpu_seconds']} CPU s"
    )


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw samples a second beside perfect scaling, the cost of samples, and CPU seconds."""
    figure = Figure(figsize=(15, 5), dpi=80, layout="constrained")
    rates, costs, seconds = figure.subplots(1, 3)
    for number, (name, of_name) in enumerate(_by_series(lines)):
        points = _points(of_name)
        fitting = [point for point in points if point.samples_per_second]
        style = {"color": f"C{number}", "marker": "o", "label": name}
        devices = [point.devices for point in fitting]
        speeds = [point.samples_per_second or 0 for point in fitting]
        rates.plot(devices, speeds, **style)
        if fitting:
            rates.plot(
                devices, [speeds[0] / devices[0] * n for n in devices], ":", color=f"C{number}"
            )
        end = ParallelismProfile(points).scaling_end()
        if end is not None and end.last.samples_per_second:
            place = end.last.devices, end.last.samples_per_second
            marker = "o" if end.is_certain else "s"
            rates.plot(*place, marker, markersize=14, fillstyle="none", color=f"C{number}")
        costs.plot(devices, [point.million_samples_cost or 0 for point in fitting], **style)
        by_devices = sorted((_points([line])[0].devices, line["cpu_seconds"]) for line in of_name)
        seconds.plot(*zip(*by_devices, strict=True), **style)
    for marker, meaning in ((":", "perfect"), ("o", "scaling ends"), ("s", "scaling may end")):
        rates.plot([], [], marker, fillstyle="none", color="gray", label=meaning)
    _label(rates, "samples a second")
    _label(costs, f"cost of 1M samples, at {_HOUR_COST} a device-hour")
    _label(seconds, "CPU seconds of planning")
    for panel in (costs, seconds):
        panel.set_yscale("linear")
        panel.set_ylim(bottom=0)
    rates.legend(fontsize=8)
    figure.savefig(path)


def _label(panel: Axes, title: str) -> None:
    panel.set(xscale="log", yscale="log", xlabel="devices", title=title)
    panel.set_xticks(_DEVICES, [f"{count:,}" for count in _DEVICES], rotation=45)
    panel.minorticks_off()
    panel.grid(alpha=0.3)


def _by_series(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """The lines of each model and kind of scaling, by its name."""

    def name(line: Line) -> str:
        return f"{line['model']}, {line['scaling']} scaling"

    return [(key, list(group)) for key, group in groupby(sorted(lines, key=name), key=name)]


def main() -> None:
    """Plan, print and draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.on_paper", description=__doc__
    )
    parser.add_argument("--models", nargs="+", choices=_LAYERS, default=_DEFAULT)
    parser.add_argument("--scaling", nargs="+", choices=("weak", "strong"), default=["weak"])
    parser.add_argument("--devices", nargs="+", type=int, default=list(_DEVICES))
    parser.add_argument("--search-seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "search")
    parser.add_argument("--resume", action="store_true", help="keep the points of on_paper.json")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "on_paper.json"
    lines: list[Line] = json.loads(path.read_text()) if options.resume and path.exists() else []
    known = {(line["model"], line["scaling"], _points([line])[0].devices) for line in lines}
    asked = [
        (model, scaling, devices)
        for model in options.models
        for scaling in options.scaling
        for devices in options.devices
    ]
    for model, scaling, devices in asked:
        if (model, scaling, devices) not in known:
            lines.append(planned(model, scaling, devices, options.search_seconds))
            print(_row(lines[-1]), flush=True)
            path.write_text(json.dumps(lines, indent=1) + "\n")
    ends = {
        name: str(ParallelismProfile(_points(of_name)).scaling_end() or "it does not end")
        for name, of_name in _by_series(lines)
    }
    for name, end in ends.items():
        print(f"{name}: {end}")
    draw(lines, options.output / "on_paper.png")
    print(json.dumps({"benchmark": "search.on_paper", "ends": ends, "points": lines}))


if __name__ == "__main__":
    main()
