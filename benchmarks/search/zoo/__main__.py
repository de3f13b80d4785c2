"""``python -m benchmarks.search.zoo``: training graphs of many kinds, searched as users do.

Each graph of `benchmarks.search.zoo.catalogue`, or each named graph, is searched on each number of
devices, with the default options of `find_strategy` and in a process of its own. CPU seconds are
those of all threads for building the problem and searching it, with the graph in memory and kernels
loaded. A search that takes more than ``--timeout`` CPU seconds is not finished; its results are
null. No other time limit ends a search. ``--limits 2`` doubles all counts of
`tensoropt.search.limits`, to show how times and gaps depend on them.

``--planning`` measures all parts of `find_strategy`: importing the graph, building the problem and
searching it, rehearsing the chosen step, and writing the plan with its estimates.

Results of held graphs appear only in the last line, one JSON object; ``--not-held`` leaves these
graphs out. In that object, names that end with a number are results on that number of devices;
other results are those on the most devices.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.search.searching import ROOT, Line
from benchmarks.search.zoo.catalogue import HELD, ZOO
from tensoropt.search.limits import DEFAULT_LIMITS

__all__ = ["PARTS", "main", "planned", "summary"]

_FOUND = ("within", "cpu_seconds")
PARTS = ("importing", "searching", "rehearsing", "writing")
"""The parts of planning: reading the script's graph; building the problem and searching it;
choosing a point, whose step is emitted once; estimating the memory of other points and writing
the plan."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Search the graphs; the status is 1 if a search did not end in time."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.zoo", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ZOO)}")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--held", action="store_true", help="the held ones alone")
    which.add_argument("--not-held", action="store_true", help="all but the held ones")
    parser.add_argument("--devices", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--cluster", default="2x8-v100")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--layers", type=int, help="in place of each graph's own number")
    size.add_argument("--small", action="store_true", help="the fewest layers of each graph")
    parser.add_argument(
        "--limits", type=float, default=1.0, help="all counts of limits, times this"
    )
    parser.add_argument("--planning", action="store_true", help="all of planning, in parts")
    parser.add_argument("--timeout", type=float, default=300.0, help="CPU seconds for each search")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = sorted({*options.names} - {*ZOO})
    if unknown:
        parser.error(f"a graph is one of {', '.join(ZOO)}. Got {', '.join(unknown)}.")
    if options.here:
        from benchmarks.search.zoo.measuring import search  # imports TensorFlow
        from benchmarks.search.zoo.planning import plan

        (name,), (devices,) = options.names, options.devices
        asked = name, options.layers, options.cluster, devices, options.timeout
        if options.planning:
            plan(*asked)
        else:
            search(*asked, DEFAULT_LIMITS.scaled(options.limits))
        return 0
    names = options.names or list(ZOO)
    if options.held or options.not_held:
        names = [name for name in names if (name in HELD) == options.held]
    most = max(options.devices)
    zoo: dict[str, Line] = {}
    finished = True
    for name in sorted(names, key=lambda name: name in HELD):
        lines = {devices: _searched(name, devices, options) for devices in options.devices}
        summed = planned if options.planning else summary
        zoo[name] = summed(name, lines, most)
        if name in HELD:
            print(f"held: {name:18}{json.dumps(zoo[name])}", flush=True)
        finished = finished and not any("error" in line for line in lines.values())
    print(json.dumps({"zoo": zoo}))
    return int(not finished)


def _searched(name: str, devices: int, options: argparse.Namespace) -> Line:
    """The results of one search; "error" if it took too long or failed."""
    layers = ZOO[name].small if options.small else options.layers
    command = [sys.executable, "-m", "benchmarks.search.zoo", name, "--here"]
    command += ["--devices", str(devices), "--cluster", options.cluster]
    command += ["--timeout", str(options.timeout), "--limits", str(options.limits)]
    command += [] if layers is None else ["--layers", str(layers)]
    command += ["--planning"] if options.planning else []
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False)
    line: Line = {}
    for said in done.stdout.splitlines():
        line.update(json.loads(said))
    if done.returncode == -signal.SIGPROF:
        line["error"] = f"not finished in {options.timeout:g} s of CPU"
    elif done.returncode:  # the process has printed the reason
        line["error"] = f"ended with status {done.returncode}"
    if name not in HELD:
        print(_row(name, devices, line), flush=True)
    return line


def summary(name: str, lines: dict[int, Line], most: int) -> Line:
    """The content of the last line for a graph."""
    whole = lines[most]
    summary = {key: whole.get(key) for key in ("operators", "configurations", "points", *_FOUND)}
    for devices, line in lines.items():
        if devices != most:
            summary |= {f"{key}_{devices}": line.get(key) for key in _FOUND}
    return {**summary, "held": name in HELD}


def planned(name: str, lines: dict[int, Line], most: int) -> Line:
    """The content of the last line for the planning of a graph."""
    found = {"operators": lines[most].get("operators")}
    for devices, line in lines.items():
        behind = "" if devices == most else f"_{devices}"
        parts = [line.get(part) for part in PARTS]
        known = [part for part in parts if part is not None]
        found |= {f"{name}{behind}": part for name, part in zip(PARTS, parts, strict=True)}
        found[f"cpu_seconds{behind}"] = round(sum(known), 2) if known == parts else None
    return {**found, "held": name in HELD}


def _row(name: str, devices: int, line: Line) -> str:
    """The results of one search, in words."""
    row = f"{name:18} {devices:3} devices: {line.get('operators')} operators"
    if "nodes" in line:
        row += (
            f", {line['nodes']} nodes, {line['configurations']} configurations, "
            f"{line['cells']} cells of {line['edges']} edges, built in {line['build_cpu_seconds']}"
            " s of CPU"
        )
    if "route" in line:
        row += f"; {', '.join(line['route'])}"
    if "error" in line:
        return f"{row}; {line['error']}"
    if PARTS[0] in line:
        parts = ", ".join(f"{part} {line[part]}" for part in PARTS)
        return f"{row}; {parts} s of CPU"
    within = "unknown" if line["within"] is None else f"{100 * line['within']:.3g} %"
    within = "exact" if line["within"] == 0 else f"within {within}"
    return f"{row}; {line['cpu_seconds']} s of CPU together, {line['points']} points, {within}"


if __name__ == "__main__":
    sys.exit(main())
