"""Measured times by layer, from the traces that ``TENSOROPT_TRACE`` made the ranks write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from tensoropt.errors import PlanError
from tensoropt.json_files import read_json
from tensoropt.view.data.plan_view import PlanView
from tensoropt.view.data.summary import Measured

__all__ = ["TracedRun", "traced_runs", "with_traces"]

_NOT_SCRIPT = re.compile(
    r"^(gradients[^/]*|again|(boundary|gradient|microbatch|stage|sum|to_stage|upstream)_\d+)/"
)
"""The scopes that an emitted operator has around its name in the script."""
_GRADIENT = re.compile(r"_grad(_\d+)?$")
_NUMBER = re.compile(r"_\d+$")
"""The end of a name that another program of the rank has, too."""
_REMEDY = "Run the script with TENSOROPT_TRACE set to a new folder."


@dataclass(frozen=True, slots=True)
class TracedRun:
    """One run of a program on one rank.

    Attributes:
        program: the names of its fetches.
        times: the parts of the step in milliseconds, see `tensoropt.execution.runtime.step_trace`.
        operators: nanoseconds of each operator that computed, by its name on the rank.
    """

    program: str
    times: Mapping[str, float]
    operators: Mapping[str, int]


def traced_runs(folder: Path) -> list[list[TracedRun]]:
    """The runs in the traces of a folder, by rank.

    Raises:
        PlanError: if there is no trace, or one is damaged.
    """
    ranks = []
    for path in sorted(folder.glob("rank*.json")):
        rule = "a trace is a whole, readable JSON file, as TENSOROPT_TRACE writes it"
        values = read_json(path, rule, _REMEDY)
        try:
            ranks.append(_runs(values))
        except (AttributeError, KeyError, TypeError, IndexError) as error:
            raise PlanError(f"{rule}. Got {str(path)!r} without {error}. {_REMEDY}") from None
    if not ranks:
        raise PlanError(
            f"traces are files rank0.json and so on in a folder. Got none in {folder}. {_REMEDY}"
        )
    return ranks


def _runs(values: Any) -> list[TracedRun]:
    steps = values["otherData"]["steps"]
    operators = [Counter[str]() for _ in steps]
    for event in values["traceEvents"]:
        if event.get("cat") == "computation":
            of = event["args"]
            operators[of["run"]][of["name"]] += round(1e3 * event["dur"])
    return [
        TracedRun(step["run"], {name: step[name] for name in step if name != "run"}, of)
        for step, of in zip(steps, operators, strict=True)
    ]


def with_traces(view: PlanView, folder: Path) -> PlanView:
    """A view with the measured times of its layers.

    Each rank's program with most of the plan's operators counts. A layer has the median over the
    traced runs, and the mean over the ranks that have it.

    Args:
        view: the view of the plan that ran.
        folder: the traces of all its ranks.

    Raises:
        PlanError: if a rank's trace is missing or damaged, or if the traces are of another plan.
    """
    ranks = traced_runs(folder)
    if len(ranks) != view.summary.devices:
        raise PlanError(
            "times are measured on every rank: a trace has a file for each of the plan's "
            f"{view.summary.devices} devices. Got {len(ranks)} in {folder}. Start the script under "
            "mpirun with a new folder, and copy the files of all machines into one."
        )
    row_of = {name: row.name for row in view.layers for name in (*row.names, *row.operators)}
    steps = [step for runs in ranks if (step := _step(runs, row_of))]
    if not steps:
        raise PlanError(
            "traces have times of the plan's operators. Got none of them in the traces of "
            f"{folder}. Give the plan that ran when they were written."
        )
    of_ranks = [_by_row(runs, row_of) for runs in steps]
    layers = []
    for row in view.layers:
        times = [of[row.name] for of in of_ranks if of[row.name]]
        layers.append(replace(row, measured_nanoseconds=round(mean(times)) if times else None))
    summary = view.summary
    measured = (
        Measured("step time", "ms", summary.step_nanoseconds / 1e6, _time(steps, "step_ms", max)),
        Measured(
            "network time",
            "ms",
            summary.network_nanoseconds / 1e6,
            _time(steps, "communication_ms", mean),
        ),
        Measured("operators of no layer", "ms", None, mean(of[""] for of in of_ranks) / 1e6),
    )
    others = tuple(each for each in view.measured if each.name not in {m.name for m in measured})
    return replace(view, layers=tuple(layers), measured=(*measured, *others))


def _step(runs: Sequence[TracedRun], row_of: Mapping[str, str]) -> list[TracedRun]:
    """The runs of a rank's program with most of the plan's operators, the longest of equals; empty
    if no program has any."""
    programs: dict[str, list[TracedRun]] = {}
    for run in runs:
        programs.setdefault(run.program, []).append(run)

    def size(of: Sequence[TracedRun]) -> tuple[int, float]:
        count = sum(bool(_row(name, row_of)) for name in of[0].operators)
        return count, median(run.times["step_ms"] for run in of)

    largest = max(programs.values(), key=size, default=[])
    return largest if largest and size(largest)[0] else []


def _by_row(runs: Sequence[TracedRun], row_of: Mapping[str, str]) -> Counter[str]:
    """The median nanoseconds of each row of layers; of operators without a row under ""."""
    found = []
    for run in runs:
        times = Counter[str]()
        for name, nanoseconds in run.operators.items():
            times[_row(name, row_of)] += nanoseconds
        found.append(times)
    names = {name for times in found for name in times}
    return Counter({name: round(median(times[name] for times in found)) for name in names})


def _row(name: str, row_of: Mapping[str, str]) -> str:
    """The row of an operator on a rank; "" if it has none.

    It belongs to the operator, or else the scope, of the plan whose name is the longest beginning
    of its own, as in ``gradients_0/dense/MatMul_grad/MatMul_1``.
    """
    beginning = name
    while beginning:
        for own in (beginning, _GRADIENT.sub("", beginning), _NUMBER.sub("", beginning)):
            if own in row_of:
                return row_of[own]
        beginning = beginning.rpartition("/")[0]
    inside = _NOT_SCRIPT.sub("", name)
    return "" if inside == name else _row(inside, row_of)


def _time(steps: Sequence[Sequence[TracedRun]], name: str, over_ranks: Any) -> float:
    """A part of the step in milliseconds: the median over runs, then over ranks."""
    return float(over_ranks(median(run.times[name] for run in runs) for runs in steps))
