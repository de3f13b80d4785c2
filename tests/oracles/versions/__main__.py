"""``python -m tests.oracles.versions``: TensorOpt under several versions of Python and TensorFlow.

Each cell is a fresh virtual environment into which pip installs a wheel of this checkout and one
version of TensorFlow; "newest" is the one that pip takes by itself. Three trials run there: the
quick start of the documentation, random strategies beside plain TensorFlow, and ``fit`` of Keras on
two ranks. Environments are in a temporary folder, each deleted after its trials. pip downloads some
600 MB for a cell, and keeps them in its cache.

A cell is "not available" if this machine has no such interpreter, or TensorFlow no wheel for it.
The last line is one JSON object. The exit status is 1 if a cell fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tensoropt.report.text_table import table
from tests.oracles.versions.cell import Cell, tried
from tests.oracles.versions.environments import NotAvailable, Wheels, interpreter

__all__ = ["main"]

TENSORFLOWS = ("newest", "2.18.1", "2.17", "2.16")
PYTHONS = ("3.13", "3.12", "3.11", "3.10")


def main() -> int:
    """Try the cells one after another; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", nargs="+", default=TENSORFLOWS, metavar="VERSION")
    parser.add_argument("--python", nargs="+", default=PYTHONS, metavar="VERSION")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="keeps passed cells, which do not run again"
    )
    options = parser.parse_args()
    kept = _kept(options.keep)
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="versions.") as folder:
        wheels = Wheels(Path(folder))
        for python, tensorflow in _in_turns(options.python, options.tensorflow):
            cell = kept.get((python, tensorflow)) or _cell(python, tensorflow, wheels)
            cells.append(cell)
            sys.stderr.write(f"{json.dumps(asdict(cell))}\n")
            sys.stderr.flush()
            if options.keep is not None:
                kept[python, tensorflow] = cell
                passed = [asdict(each) for each in kept.values() if each.state == "passed"]
                options.keep.write_text(json.dumps(passed, indent=1))
    failures = sum(cell.state == "failed" for cell in cells)
    print(_table(cells))
    print(json.dumps({"cells": [asdict(cell) for cell in cells], "failures": failures}))
    return 1 if failures else 0


def _in_turns(pythons: Sequence[str], tensorflows: Sequence[str]) -> list[tuple[str, str]]:
    """All pairs, diagonal by diagonal: the first ones have each version once."""
    cells = [(p, t) for p in range(len(pythons)) for t in range(len(tensorflows))]
    cells.sort(key=lambda cell: ((cell[0] - cell[1]) % len(pythons), cell))
    return [(pythons[p], tensorflows[t]) for p, t in cells]


def _kept(file: Path | None) -> dict[tuple[str, str], Cell]:
    """The cells that passed in an earlier run, by their versions."""
    if file is None or not file.exists():
        return {}
    cells = [Cell(**values) for values in json.loads(file.read_text())]
    return {(cell.python, cell.tensorflow): cell for cell in cells}


def _cell(python: str, tensorflow: str, wheels: Wheels) -> Cell:
    """Try one cell in an environment of its own."""
    begun = time.monotonic()

    def seconds() -> float:
        return round(time.monotonic() - begun, 1)

    try:
        with wheels.environment(interpreter(python), tensorflow) as environment:
            return tried(python, tensorflow, environment, seconds)
    except NotAvailable as error:
        return Cell(python, tensorflow, "not available", str(error))
    except RuntimeError as error:
        return Cell(python, tensorflow, "failed", f"install: {error}", seconds=seconds())


def _table(cells: list[Cell]) -> str:
    """A row for each version of TensorFlow, a column for each of Python; reasons below."""
    pythons = dict.fromkeys(cell.python for cell in cells)
    tensorflows = dict.fromkeys(cell.tensorflow for cell in cells)
    of = {(cell.python, cell.tensorflow): cell for cell in cells}
    rows = [
        [tensorflow, *(_in_words(of[python, tensorflow]) for python in pythons)]
        for tensorflow in tensorflows
    ]
    reasons = [
        f"Python {cell.python}, TensorFlow {cell.tensorflow}: {cell.state}: {cell.reason}"
        for cell in cells
        if cell.reason
    ]
    header = ["TensorFlow", *(f"Python {python}" for python in pythons)]
    return "\n".join([str(table(header, rows, [False] * len(header))), *reasons])


def _in_words(cell: Cell) -> str:
    return f"passed ({cell.installed['tensorflow']})" if cell.state == "passed" else cell.state


if __name__ == "__main__":
    sys.exit(main())
