"""``python -m benchmarks.composition``: the default beside each of the options that it combines.

A cell is a step on a number of devices with a memory limit: ample, or 60, 30 or 12 % of the memory
of data parallelism. In each cell the predicted step of the default is compared with the plain whole
batch and with ``rewrite=True``, ``pipeline="auto"``, microbatches and ``save_memory=True``, one at
a time. The default counts as worse if an option alone is more than 3 % faster, which is the
resolution of predictions, or fits while the default does not. Nothing is trained.

With ``--results``, cells in that file are not planned again. Cells in which only a combination
fits, or is at least 5 % faster, are named at the end. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.composition.cells import LIMITS, Cell, cells_of, summary
from benchmarks.composition.models import NAMES, step_request
from tensoropt.planner.kernels import load_kernels

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan the cells; the status is 1 if an option alone is better in one of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.composition", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 16, 32])
    parser.add_argument("--limits", nargs="+", type=_limit, default=list(LIMITS))
    parser.add_argument("--small", action="store_true", help="the fewest layers of the zoo")
    parser.add_argument("--search-seconds", type=float, default=30.0)
    parser.add_argument("--steps", type=int, default=100_000, help="that the job makes")
    parser.add_argument("--results", type=Path, help="a file of cells, one a line")
    options = parser.parse_args(arguments)
    load_kernels()
    known = _kept(options.results)
    cells: list[Cell] = []
    for devices in options.devices:
        for model in options.models:
            kept = {
                cell.limit: cell for cell in known if (cell.model, cell.devices) == (model, devices)
            }
            missing = [limit for limit in options.limits if limit not in kept]
            cells += kept.values()
            if not missing:
                continue
            request = step_request(model, devices, small=options.small)
            ends = {"search_seconds": options.search_seconds, "steps": options.steps}
            for cell in cells_of(model, replace(request, **ends), missing):
                print(cell, flush=True)
                cells.append(cell)
                if options.results is not None:
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(cell.to_json()) + "\n")
    print("Only a combination fits, or is at least 5 % faster:")
    for cell in cells:
        if cell.is_notable:
            print(cell)
    found = summary(cells)
    print(json.dumps(found))
    return int(found["default_worse_than_an_option"] > 0)


def _limit(text: str) -> float | None:
    return None if text == "ample" else float(text)


def _kept(path: Path | None) -> list[Cell]:
    if path is None or not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    values = [json.loads(line) for line in lines]
    return [Cell(**{**each, "spaces": tuple(each["spaces"])}) for each in values]


if __name__ == "__main__":
    raise SystemExit(main())
