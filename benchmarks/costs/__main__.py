"""``python -m benchmarks.costs``: predicted beside measured costs of random strategies.

For each model: the predicted and measured step time, network time and peak memory of every
strategy, the signed errors (measured - predicted) / measured as in the paper's Table 2, and the
spread of the measurements (half the interquartile range divided by the median). Beside these, the
error of the network time if it is bytes divided by bandwidth. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from benchmarks.launcher import run_job
from tensoropt.report.text_table import table

MODELS = {"rnn": 15, "wide_resnet": 5, "transformer": 10}
"""The number of turns of each strategy; a turn has five steps. Models with short steps have
more."""
_CROWDED_ROUNDS = 3
"""The number of turns between two measurements if ranks share cores and wait for each other."""

PAPER_BANDWIDTH_ONLY = 0.748
"""The network error of bytes divided by bandwidth for the paper's RNN (section 5.2)."""

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Run, print the results, and end with the JSON line."""
    options = _options()
    errors: dict[str, Any] = {}
    parameters: dict[str, int] = {}
    crude: dict[str, Any] = {}
    ranks: dict[str, float] = {}
    regret: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            rows, parameters[model] = _measured(model, options, options.keep or Path(folder))
            errors[model], crude[model], ranks[model], regret[model] = _reported(model, rows)
    line = {
        "errors": errors,
        "bandwidth_only_errors": crude,
        "spearman": ranks,
        "regret": regret,
        "strategies": options.strategies,
        "ranks": options.ranks,
        "parameters": parameters,
        "paper_bandwidth_only_network_error": PAPER_BANDWIDTH_ONLY,
    }
    print(json.dumps(line))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--strategies", type=int, default=20)
    parser.add_argument(
        "--rounds",
        type=int,
        help="turns of each, interleaved; by default by model, 5 to 15, 3 where ranks share cores",
    )
    parser.add_argument("--keep", type=Path, help="folder for every sample, as JSON")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    return parser.parse_args()


def _measured(
    model: str, options: argparse.Namespace, folder: Path
) -> tuple[list[dict[str, Any]], int]:
    """The measurements of each strategy, and the number of parameters."""
    count, peaks = str(options.strategies), folder / f"{model}-memory.json"
    usual = _CROWDED_ROUNDS if options.ranks > len(os.sched_getaffinity(0)) else MODELS[model]
    rounds = options.rounds or usual
    programs = (
        ["measure", model, count, str(rounds), str(folder)],
        ["memory", model, count, str(peaks)],
    )
    for name, *arguments in programs:
        run_job(["-m", f"benchmarks.costs.{name}", *arguments], options.ranks)
    times = json.loads((folder / f"{model}.json").read_text())
    found = json.loads(peaks.read_text())
    print(f"{model}: {found['parameters'] / 1e6:.2f} million parameters, {options.ranks} ranks")
    rows = zip(times, found["strategies"], strict=True)
    return [time | peak for time, peak in rows], found["parameters"]


def _reported(
    model: str, rows: list[dict[str, Any]]
) -> tuple[dict[str, float | None], dict[str, float], float, float]:
    """Print a model's table; return the mean absolute errors, also of bandwidth alone, the
    correlation, and the regret."""
    seconds, seconds_spread = _medians([row["seconds"] for row in rows])
    network, network_spread = _medians([row["network_seconds"] for row in rows])
    memory, memory_spread = _medians([row["peak_bytes"] for row in rows])
    predicted = np.array([row["predicted"]["seconds"] for row in rows])
    predicted_network = np.array([row["predicted"]["network_seconds"] for row in rows])
    predicted_memory = np.array([row["predicted_peak_bytes"] for row in rows])
    columns = (
        ("step (ms)", predicted * 1e3, seconds * 1e3),
        ("network (ms)", predicted_network * 1e3, network * 1e3),
        ("peak (MiB)", predicted_memory / 2**20, memory / 2**20),
    )
    header = ["strategy"]
    for name, _, _ in columns:
        header += [f"{name} predicted", "measured", "error"]
    lines = [
        [str(number)]
        + [
            cell
            for _, ours, real in columns
            for cell in (
                f"{ours[number]:.2f}",
                f"{real[number]:.2f}",
                f"{_error(ours, real)[number]:+.1%}",
            )
        ]
        for number in range(len(rows))
    ]
    print(f"{model}\n{table(header, lines, [True] * len(header))}")
    errors = {
        key: float(np.nanmean(np.abs(_error(ours, real))))
        for key, (_, ours, real) in zip(("execution", "network", "memory"), columns, strict=True)
    }
    spreads = (seconds_spread, network_spread, memory_spread)
    for (key, error), spread in zip(errors.items(), spreads, strict=True):
        print(f"mean absolute error of {key}: {error:.2%} (repeatable to {spread:.2%})")
    crude = {
        "execution": np.array([row["bandwidth_only"]["seconds"] for row in rows]),
        "network": np.array([row["bandwidth_only"]["network_seconds"] for row in rows]),
    }
    alone = {
        "execution": float(np.nanmean(np.abs(_error(crude["execution"], seconds)))),
        "network": float(np.nanmean(np.abs(_error(crude["network"], network)))),
    }
    print(
        f"bytes over bandwidth: {alone['execution']:.2%} and {alone['network']:.2%} of network "
        f"(paper, its RNN on 16 GPUs: {PAPER_BANDWIDTH_ONLY:.1%})"
    )
    correlation = float(spearmanr(predicted, seconds).statistic)
    regret = float(seconds[int(np.argmin(predicted))] / seconds.min() - 1)
    print(f"rank correlation {correlation:.3f}; predicted best is {regret:.2%} above the best\n")
    return {k: None if np.isnan(v) else v for k, v in errors.items()}, alone, correlation, regret


def _medians(values: list[list[float]]) -> tuple[Floats, float]:
    """The median for each strategy, and the mean of half their relative interquartile ranges."""
    table_ = np.array(values, np.float64)
    low, middle, high = np.nanquantile(table_, [0.25, 0.5, 0.75], axis=1)
    return middle, float(np.nanmean((high - low) / 2 / middle))


def _error(predicted: Floats, measured: Floats) -> Floats:
    error: Floats = (measured - predicted) / measured
    return error


main()
