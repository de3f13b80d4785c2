"""``python -m benchmarks.overlap --traces FOLDER``: the share of communication that is hidden.

The folder has the traces that ``TENSOROPT_TRACE`` wrote for any script. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median

from tensoropt.report.text_table import table
from tensoropt.view.traced import traced_runs

__all__ = ["communication"]

_COLUMNS = ("step_ms", "computation_ms", "communication_ms", "hidden_ms")


def main() -> None:
    """Print the times, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces")
    found = communication(parser.parse_args().traces)
    columns = list(dict.fromkeys(name for parts in found.values() for name in parts))
    rows = [[run[:60], *(f"{parts[name]:.2f}" for name in columns)] for run, parts in found.items()]
    print(table(["run", *columns], rows, [False] + [True] * len(columns)))
    print(json.dumps(found))


def communication(folder: Path) -> dict[str, dict[str, float]]:
    """The communication in the traces of a folder, by the name of the run.

    Returns:
        Milliseconds of a step, the median over its traced runs and the mean over ranks; and
            ``hidden_share``, the hidden share of communication.

    Raises:
        PlanError: if there is no trace, or a trace is damaged.
    """
    ranks: dict[str, list[dict[str, float]]] = defaultdict(list)
    for of_rank in traced_runs(folder):
        runs: dict[str, list[Mapping[str, float]]] = defaultdict(list)
        for traced in of_rank:
            runs[traced.program].append(traced.times)
        for run, steps in runs.items():
            ranks[run].append({name: median(each[name] for each in steps) for name in _COLUMNS})
    found = {
        run: {name: mean(each[name] for each in of) for name in _COLUMNS}
        for run, of in ranks.items()
    }
    for parts in found.values():
        sent = parts["communication_ms"]
        parts["hidden_share"] = parts["hidden_ms"] / sent if sent else 0.0
    return found


if __name__ == "__main__":
    main()
