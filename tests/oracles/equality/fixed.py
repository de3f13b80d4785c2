"""``python -m tests.oracles.equality.fixed``: plans with dimensions divided by hand.

Each case draws a script, devices on one machine or on two, a kind of plan, and a pin: a layer, one
of its dimensions, and the levels that divide it. `find_strategy` searches the rest. The finished
plan is read by the words of its view: all operators of the layer keep the pin, but those that the
plan's note counts, of which it names the first. The plan trains on ranks in this process, and
losses and variables are compared with plain TensorFlow's on one device. The last line is one JSON
object; the exit status says whether all cases hold.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import GraphError, OptionError
from tensoropt.frontend.job.job import shutdown
from tensoropt.json_files import write_json
from tensoropt.plan import Plan
from tensoropt.planner.names.layer_names import forward_work
from tensoropt.view.division import devices_by_stage
from tests.oracles.equality.combination_scripts import COMBINATION_SCRIPTS
from tests.oracles.equality.engine import Script, Trained, train_plain, worst_error
from tests.oracles.equality.side_by_side import trained
from tests.oracles.equality.uneven_scripts import BODIES, uneven_script

__all__ = ["BAR", "Case", "draw_case", "keeps", "main", "noted", "planned", "script_of"]

BAR = 1e-9
WAYS: Mapping[str, Mapping[str, Any]] = {
    "whole batch": {"pipeline": False, "rewrite": False},
    "microbatches": {"microbatches": 3, "pipeline": False, "rewrite": False},
    "less kept": {"save_memory": True, "pipeline": False, "rewrite": False},
    "stages": {"pipeline": 2, "microbatches": 3, "rewrite": False},
    "branches": {"pipeline": "auto", "rewrite": False},
    "rewritten": {"rewrite": True, "pipeline": False},
}
"""Kinds of plans, with the options that allow them."""
_LEVELS: tuple[tuple[str, ...], ...] = (("device",), ("machine",), ("machine", "device"), ())


@dataclass(frozen=True, slots=True)
class Case:
    """A plan to make.

    Attributes:
        model: the name of its script.
        devices: number of devices.
        machines: number of machines.
        way: its kind, from `WAYS`.
        layer: the layer whose dimension is divided by hand.
        dimension: the dimension.
        levels: the levels that divide it.
    """

    model: str
    devices: int
    machines: int
    way: str
    layer: str
    dimension: str
    levels: tuple[str, ...]


@functools.cache
def script_of(model: str) -> tuple[Script, Trained]:
    """A script, and its training by plain TensorFlow."""
    if model in COMBINATION_SCRIPTS:
        script = COMBINATION_SCRIPTS[model](tf.float64)
    else:
        script = uneven_script(model, 9)
    return script, train_plain(script)


def _search(model: str, devices: int, machines: int, **options: Any) -> Plan:
    """Start a job with virtual ranks, and find a plan of a script."""
    known = load_cluster("2x8-v100")
    counts = machines, devices // machines
    levels = [replace(level, count=n) for level, n in zip(known.levels, counts, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        write_json(path, replace(known, levels=tuple(levels)).to_json())
        shutdown()
        tensoropt.init(devices=devices, cluster=str(path))
    script, _ = script_of(model)
    shapes = {f"{name}:0": shape for name, shape in script.shapes.items()}
    with script.graph.as_default():
        plan: Plan = tensoropt.find_strategy(shapes=shapes, **options)
    return plan


@functools.cache
def _dimensions(model: str) -> dict[tuple[str, str], dict[str, tuple[int, ...]]]:
    """For each layer of a script and each dimension, the operators' indices with its name."""
    plan = _search(model, 2, 1, **WAYS["whole batch"])
    of = {operator.name: operator for operator in plan.operators}
    found: dict[tuple[str, str], dict[str, tuple[int, ...]]] = {}
    for layer, names in forward_work(plan.operators).items():
        for name in names:
            dimensions = [each.name for each in of[name].dimensions]
            for own in dict.fromkeys(dimensions) - {"partial sums": None}.keys():
                indices = tuple(n for n, each in enumerate(dimensions) if each == own)
                found.setdefault((layer, own), {})[name] = indices
    return found


def draw_case(number: int, seed: int = 0) -> Case:
    """Draw a case."""
    random = np.random.default_rng([seed, number])
    models = (*COMBINATION_SCRIPTS, *BODIES)
    model = models[number % len(models)]
    devices = int(random.choice([2, 3, 4]))
    machines = 2 if devices == 4 and random.random() < 0.5 else 1
    way = list(WAYS)[number // len(models) % len(WAYS)]
    if way == "stages":
        devices, machines = 4, 1
    dimensions = sorted(_dimensions(model))
    layer, dimension = dimensions[int(random.integers(len(dimensions)))]
    levels = _LEVELS[int(random.integers(len(_LEVELS)))]
    return Case(model, devices, machines, way, layer, dimension, levels)


def planned(case: Case) -> Plan:
    """The plan of a case, in a job that has found it."""
    _dimensions(case.model)  # `keeps` needs them, and they are found in another job
    pin = {case.layer: {case.dimension: list(case.levels) or None}}
    return _search(case.model, case.devices, case.machines, fixed=pin, **WAYS[case.way])


def keeps(plan: Plan, case: Case) -> dict[str, bool]:
    """Whether each operator of the layer that has the dimension divides it so, by its name."""
    stage_of, devices = plan.stage_of, devices_by_stage(plan)
    splits = {operator.name: operator.splits for operator in plan.operators}
    found = {}
    for name, indices in _dimensions(case.model)[case.layer, case.dimension].items():
        on = devices[stage_of.get(name)]
        axes = [axis for n in indices for axis in splits[name][n]]
        pieces = {on.levels[level].name: on.pieces(of) for level, of in on.by_level(axes)}
        wanted = {level.name: level.count for level in on.levels if level.name in case.levels}
        found[name] = pieces == {level: n for level, n in wanted.items() if n > 1}
    return found


def noted(plan: Plan) -> tuple[list[str], int]:
    """The operators that the plan's note names as not divided, and how many it has in all."""
    for note in plan.notes:
        if found := re.fullmatch(r"fixed holds where .*; not for (.*?)(?: and (\d+) more)?", note):
            names = re.findall("'([^']*)'", found[1])
            return names, len(names) + int(found[2] or 0)
    return [], 0


def main() -> int:
    """Plan, read, train and compare; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.equality.fixed")
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin none after these")
    options = parser.parse_args()
    tensoropt.enable_graph_mode()
    begun, worst, failures = time.monotonic(), 0.0, 0
    ways, refused, excepted = Counter[str](), Counter[str](), 0
    for number in range(options.cases):
        if time.monotonic() - begun > options.seconds:
            break
        case = draw_case(number, options.seed)
        try:
            plan = planned(case)
        except (GraphError, OptionError) as reason:  # too short, or no such stages
            refused[str(reason).partition(". Got")[0]] += 1
            continue
        print(f"{number}: {case}", file=sys.stderr, flush=True)
        kept = keeps(plan, case)
        lacking = [name for name, is_kept in kept.items() if not is_kept]
        named, count = noted(plan)
        excepted += bool(lacking)
        script, truth = script_of(case.model)
        error = worst_error(trained(script, plan), truth)
        worst = max(worst, error)
        ways[f"{case.way}: {plan.way}"] += 1
        is_kept = any(kept.values()) and len(lacking) == count and {*named} <= {*lacking}
        if not is_kept or error > BAR:
            failures += 1
            print(f"FAILED {number}: {case}: error {error:.1e}, kept {kept}", flush=True)
    found = {
        "planned": ways.total(),
        "ways": dict(ways.most_common()),
        "refused": dict(refused),
        "with_exceptions": excepted,
        "worst_float64": worst,
        "bar": BAR,
        "failures": failures,
        "seconds": round(time.monotonic() - begun),
    }
    print(json.dumps(found))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
