"""``python -m tests.oracles.equality.combinations``: combined spaces against plain TensorFlow.

Random plans, made without a search, combine substitutions, microbatches, stages, branches, copies
over machines, recomputation and random splits, on 2, 4, 6 and 8 ranks. Each plan trains three steps
through the script's own calls. Losses, updated variables, and an evaluation that fetches tensors
that a substitution has replaced are compared with plain TensorFlow's. Some plans are loaded from
files under ``mpirun -np 4``, the others run on virtual ranks in this process. The program prints a
line for each failure and ends with one JSON object. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.elastic.launcher import mpirun
from tensoropt.frontend.job.job import current, shutdown
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.plan import Plan
from tests.oracles.equality.combination_draws import Combination, draw_combination
from tests.oracles.equality.combination_scripts import COMBINATION_SCRIPTS
from tests.oracles.equality.engine import Array, Script

__all__ = ["BARS", "drawn", "error_of", "main", "script_of_case"]

BARS = {"float64": 1e-9, "float32": 1e-4}
"""Bars: the largest difference within a tensor, divided by its largest element."""
DEVICES = (2, 4, 6, 8)
_MPI_RANKS, _MPI_SECONDS = 4, 900
_REASON_CHARACTERS = 300
_ROOT = Path(__file__).resolve().parent.parent.parent.parent


@dataclass(frozen=True, slots=True, eq=False)
class _Truth:
    """A script, and its training by plain TensorFlow.

    Attributes:
        script: the script with its data.
        losses: the loss of each step.
        values: the values after the steps, by name: variables, and all tensors of one more forward
            pass.
    """

    script: Script
    losses: Array
    values: dict[str, Array]


@functools.cache
def _truth(model: str, dtype: str) -> _Truth:
    script = COMBINATION_SCRIPTS[model](tf.as_dtype(dtype))
    with script.graph.as_default():
        session = tf.compat.v1.Session(graph=script.graph)
        session.run([variable.initializer for variable in tf.compat.v1.global_variables()])
        losses = [
            session.run([script.loss, script.train], _named(values))[0] for values in script.feeds
        ]
        names = [*script.variables, *_forward_tensors(script)]
        values = session.run(names, _named(script.feeds[0]))
        session.close()
    return _Truth(script, np.array(losses), dict(zip(names, values, strict=True)))


def _forward_tensors(script: Script) -> list[str]:
    """The names of the floating-point tensors of a step's forward part."""
    found = []
    for operator in import_graph(script.graph, [script.loss.partition(":")[0]], script.shapes):
        for number, spec in enumerate(operator.outputs):
            if spec.dtype.startswith("float") and _is_of_script(script, operator.name):
                found.append(f"{operator.name}:{number}")
    return found


def _case(number: int) -> tuple[str, str]:
    """The model and dtype of a combination. One combination in four has float32."""
    model = list(COMBINATION_SCRIPTS)[number % len(COMBINATION_SCRIPTS)]
    return model, "float32" if number // len(COMBINATION_SCRIPTS) % 4 == 3 else "float64"


def drawn(number: int, seed: int = 0, devices: int = 0) -> Combination:
    """The combination of a number, on ``devices`` devices, or on one of `DEVICES` if that is 0."""
    random = np.random.default_rng([seed, number, zlib.crc32(_case(number)[0].encode())])
    devices = devices or int(random.choice(DEVICES))
    return draw_combination(script_of_case(number), devices, load_cluster("8-v100"), random)


def script_of_case(number: int) -> Script:
    """The script of a combination."""
    return _truth(*_case(number)).script


def error_of(number: int, plan: Plan) -> float:
    """Train three steps by a plan; return the worst error of all tensors against plain TensorFlow.

    The running job trains the steps; all its ranks call.
    """
    truth = _truth(*_case(number))
    script = truth.script
    with script.graph.as_default():
        tensoropt.build_execution_graph(plan=plan)
        losses = [
            tensoropt.run([script.loss, script.train], _named(values))[0] for values in script.feeds
        ]
        replaced = list(dict.fromkeys(name for each in plan.rewrites for name in each.outputs))
        replaced = [name for name in replaced if name in truth.values]
        names = [script.loss, *replaced, *script.variables]
        values = tensoropt.run(names, _named(script.feeds[0]))
    pairs = [(np.array(losses), truth.losses)]
    pairs += [(value, truth.values[name]) for name, value in zip(names, values, strict=True)]
    return max(_difference(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _is_of_script(script: Script, name: str) -> bool:
    return any(operation.name == name for operation in script.graph.get_operations())


def _named(values: dict[str, Array]) -> dict[str, Array]:
    return {f"{name}:0": value for name, value in values.items()}


def _difference(found: Array, truth: Array) -> float:
    if found.shape != truth.shape or not np.all(np.isfinite(found)):
        return float("inf")
    scale = float(np.max(np.abs(truth), initial=0.0))
    difference = float(np.max(np.abs(found - truth), initial=0.0))
    return difference / scale if scale else difference


def _attempt(number: int, plan: Plan) -> tuple[float, str]:
    """The error of a combination; infinite, with a reason, if its steps fail."""
    shutdown()
    tensoropt.init(devices=plan.devices)
    try:
        return error_of(number, plan), ""
    except Exception as error:  # other combinations may work
        return float("inf"), f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]


def _on_ranks(folder: str) -> None:
    """Run the plans of a folder, each by all ranks; the first rank prints the worst errors."""
    for path in sorted(Path(folder).glob("*.json")):
        shutdown()  # each plan starts with its own random draws
        tensoropt.init(allow_copies=True)
        job = current()
        error = max(job.group.allgather_object(error_of(int(path.stem), Plan.load(path))))
        if job.group.rank == 0:
            print(json.dumps([int(path.stem), error]), flush=True)


def _under_mpirun(plans: dict[int, Plan]) -> dict[int, tuple[float, str]]:
    """The errors of plans that one mpirun reads from files."""
    with tempfile.TemporaryDirectory() as folder:
        for number, plan in plans.items():
            plan.save(Path(folder) / f"{number}.json")
        program = [sys.executable, "-m", "tests.oracles.equality.combinations", "--plans", folder]
        made = subprocess.run(
            [mpirun(), "-np", str(_MPI_RANKS), *program],
            capture_output=True,
            text=True,
            cwd=_ROOT,
            timeout=_MPI_SECONDS,
        )
    lines = [json.loads(line) for line in made.stdout.splitlines() if line[:1] == "["]
    errors = {number: (float(error), "") for number, error in lines}
    reason = " ".join(made.stderr.split())[-_REASON_CHARACTERS:]
    return {number: errors.get(number, (float("inf"), reason)) for number in plans}


def main() -> int:
    """Draw, train and compare; returns the exit status."""
    options = _arguments()
    tensoropt.enable_graph_mode()
    if options.plans:
        _on_ranks(options.plans)
        return 0
    numbers = range(options.first, options.first + options.count)
    of_mpi = set(numbers[: options.mpirun])
    cases = {n: drawn(n, options.seed, _MPI_RANKS if n in of_mpi else 0) for n in numbers}
    found = _under_mpirun({n: cases[n].plan for n in of_mpi}) if of_mpi else {}
    spaces: Counter[str] = Counter()
    failures, worst = 0, dict.fromkeys(BARS, 0.0)
    for number, case in cases.items():
        error, reason = found.get(number) or _attempt(number, case.plan)
        model, dtype = _case(number)
        spaces[" + ".join(sorted(case.spaces)) or "splits alone"] += 1
        sys.stderr.write(f"{number}: {model} {dtype} on {case.plan.devices}: {error:.1e}\n")
        if error <= BARS[dtype]:
            worst[dtype] = max(worst[dtype], error)
            continue
        failures += 1
        where = f"{model} {dtype} on {case.plan.devices}, {case.plan.schedule}"
        kinds = ", ".join(sorted(case.spaces))
        print(f"FAILED {number}: {where} ({kinds}): {error:.2e} {reason}", flush=True)
    result: dict[str, Any] = {
        "combinations": len(cases),
        "failures": failures,
        "worst": worst,
        "bars": BARS,
        "under_mpirun": len(found),
        "ranks": dict(Counter(case.plan.devices for case in cases.values())),
        "refused": dict(Counter(case.refused for case in cases.values() if case.refused)),
        "spaces": dict(spaces.most_common()),
    }
    print(json.dumps(result))
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--first", type=int, default=0, help="number of the first combination")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mpirun", type=int, default=0, help=f"of them on {_MPI_RANKS} processes")
    parser.add_argument("--plans", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
