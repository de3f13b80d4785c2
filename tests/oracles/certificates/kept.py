"""Frontiers of earlier runs, so that certificates can be computed in portions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from reproduction.paper.results import code_digest
from tensoropt.search import Frontier

__all__ = ["kept_frontier"]

_MODELS = Path(__file__).parent / "models.py"


def kept_frontier(folder: Path | None, name: str, search: Callable[[], Frontier]) -> Frontier:
    """The frontier of this code in a file; searched if there is no file yet.

    Args:
        folder: folder of the files, made if missing; None to keep nothing.
        name: name of the file.
        search: finds the frontier.
    """
    if folder is None:
        return search()
    folder.mkdir(parents=True, exist_ok=True)
    models = hashlib.sha256(_MODELS.read_bytes()).hexdigest()[:16]
    path = folder / f"{name}-{code_digest()}-{models}.npz"
    if path.exists():
        with np.load(path) as values:
            within = float(values["within"])
            return Frontier(
                values["memory"],
                values["time"],
                values["strategies"],
                exact=bool(values["exact"]),
                within=None if np.isnan(within) else within,
            )
    found = search()
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        np.savez(
            file,
            memory=found.memory,
            time=found.time,
            strategies=found.strategies,
            exact=found.exact,
            within=np.nan if found.within is None else found.within,
        )
    unfinished.replace(path)  # an interrupted run leaves no file that looks complete
    return found
